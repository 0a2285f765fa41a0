"""Groups that branch from inner states beside plain groups, at equal numbers of sampled tokens.

    python benchmarks/branching.py --out runs/branching                      # every arm, one after another; resumable
    python benchmarks/branching.py --out runs/branching --arm branched-rloo --seed 1
    python benchmarks/branching.py --raw benchmarks/results/branching.json --figure docs/images/branching.svg

Each arm trains tiny-base with the PyTorch loop until the policy has sampled `--tokens` tokens. A plain group is 8
episodes of a task; a branched one (`--branch 1-3:3` of the loop) is 2 episodes, from a state of each of which 3 more
are played on, so that its tokens are sampled once however many episodes share them. OUT/ARM-SEED is an ordinary run of
the loop, with `sampled_tokens` in its metrics; OUT/branching.json has the success on held-out tasks of all runs in OUT.
The table and the figure show it after equal shares of the budget; the last line compares arms of the same seeds.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

import agent_envs
from agent_envs.adapters.run import FailureBudget, Record, read_records
from agent_envs.adapters.torch.loop import evaluate, iterate
from agent_envs.adapters.torch.run import Run
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.episodes.figures import new_figure, save
from agent_envs.episodes.statistics import clustered_mean
from agent_envs.files import write_text

ARMS = {
    "grpo": ("grpo", ""),
    "branched-grpo": ("grpo", "1-3:3"),
    "rloo": ("rloo", ""),
    "branched-rloo": ("rloo", "1-3:3"),
}
"""Estimator, and how groups branch."""
POINTS = 2  # evaluations of an arm after the first


def train(config: LoopConfig, budget: int) -> list[Record]:
    """Train until `budget` tokens are sampled, or go on where that was stopped."""
    run, failures = Run(config), FailureBudget(config.max_broken)
    if not run.records:
        run.log({"step": 0, "sampled_tokens": 0, **evaluate(run, 0)})
    done = run.records[-1]["sampled_tokens"]
    for number in run.iterations():
        if done >= budget:
            break
        record: Record = {"step": number, **iterate(run, number, failures)}
        before, done = done, done + record["env/tokens/trained"]
        record["sampled_tokens"] = done
        if done * POINTS // budget > before * POINTS // budget:
            record |= evaluate(run, number)
        run.log(record)
        run.save(number)
    return run.records


def collected(out: Path, budget: int, command: str) -> dict[str, Any]:
    """Return the evaluations of every run in a folder, up to the first one after the budget was spent."""
    runs = []
    for arm, seed in product(ARMS, range(100)):
        folder = out / f"{arm}-{seed}"
        if (folder / "metrics.jsonl").exists():
            points: list[dict[str, Any]] = []
            for r in read_records(folder / "metrics.jsonl"):
                if "val/success" in r and (not points or points[-1]["tokens"] < budget):
                    values = {name: r[f"val/{name}"] for name in ("success", "success_low", "success_high", "episodes")}
                    points.append({"tokens": r["sampled_tokens"], "iterations": r["step"], **values})
            runs.append({"arm": arm, "seed": seed, "points": points})
    others = {name: metadata.version(name) for name in ("torch", "transformers")}
    return {"command": command, "versions": {"agent_envs": agent_envs.__version__, **others}, "runs": runs}


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a table in Markdown, and one on the differences at the end of the budget."""
    marks = max(len(run["points"]) for run in found["runs"])
    yield f"| arm | seed |{' sampled tokens: success |' * marks}"
    yield f"| --- | --- |{' --- |' * marks}"
    last: dict[str, dict[int, float]] = {}
    for run in found["runs"]:
        shown = [f"{p['tokens']:,}: {p['success']:.3f} [{p['success_low']:.3f}, {p['success_high']:.3f}]"
                 for p in run["points"]]  # fmt: skip
        yield f"| {run['arm']} | {run['seed']} | {' | '.join(shown + [''] * (marks - len(shown)))} |"
        if len(run["points"]) == marks:
            last.setdefault(run["arm"], {})[run["seed"]] = run["points"][-1]["success"]
    for one, two in combinations(last, 2):
        seeds = sorted(last[one].keys() & last[two].keys())
        if len(seeds) > 1:
            d = clustered_mean([[last[two][seed] - last[one][seed]] for seed in seeds])
            yield f"\n{two} - {one}: {d.shown('+')} (95 % interval over {len(seeds)} seeds)"


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draw a curve for each run, and the means of the arms."""
    figure = new_figure(7.5, 4)
    axes = figure.subplots()
    for number, arm in enumerate(dict.fromkeys(run["arm"] for run in found["runs"])):
        curves = [run["points"] for run in found["runs"] if run["arm"] == arm]
        color, count = f"C{number}", min(map(len, curves))
        for points in curves:
            axes.errorbar(
                [p["tokens"] for p in points], [p["success"] for p in points], color=color, alpha=0.35, capsize=2,
                yerr=[[p["success"] - p["success_low"] for p in points],
                      [p["success_high"] - p["success"] for p in points]],
            )  # fmt: skip
        mean = [[float(np.mean([points[i][key] for points in curves])) for i in range(count)]
                for key in ("tokens", "success")]  # fmt: skip
        axes.plot(*mean, color=color, linewidth=2.5, marker="o", label=f"{arm}, {len(curves)} seeds")
    axes.set(xlabel="tokens sampled by the policy", ylabel="success on held-out tasks", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Groups that branch beside plain groups, at equal sampled tokens.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", type=Path, help="folder; the same command goes on where it was stopped")
    where.add_argument("--raw", type=Path, help="trains nothing: shows this branching.json")
    parser.add_argument("--env", default="AgentR1/GSM8KTool-v0")
    parser.add_argument("--env-kwargs", default={"level": "1-2"}, type=json.loads)
    parser.add_argument("--arm", action="append", choices=ARMS, help="(default: all)")
    parser.add_argument("--seed", action="append", type=int, help="(default: 0, 1, 2)")
    parser.add_argument("--tokens", type=int, default=40_000, help="tokens to sample in an arm (default: %(default)s)")
    parser.add_argument("--eval-tasks", type=int, default=256)
    parser.add_argument("--figure", type=Path, help="draw the curves to this file: .svg, .png or .pdf")
    options = parser.parse_args()
    if options.raw:
        found = json.loads(options.raw.read_text(encoding="utf-8"))
    else:
        for seed, arm in product(options.seed or range(3), options.arm or ARMS):
            estimator, branch = ARMS[arm]
            config = LoopConfig(
                env=options.env, env_kwargs=options.env_kwargs, wrappers=("FormatReward(weight=0.1)",),
                out=str(options.out / f"{arm}-{seed}"), steps=10_000, estimator=estimator, branch=branch, seed=seed,
                eval_tasks=options.eval_tasks, eval_split="validation", save_every=1, max_tokens=3072,
            )  # fmt: skip
            train(config, options.tokens)
        command = ["python", "benchmarks/branching.py", "--env", options.env, "--env-kwargs",
                   json.dumps(options.env_kwargs), "--tokens", str(options.tokens)]  # fmt: skip
        found = collected(options.out, options.tokens, shlex.join(command))
        write_text(options.out / "branching.json", json.dumps(found, indent=1) + "\n")
    print("\n".join(table(found)))
    if options.figure:
        draw(found, options.figure)


if __name__ == "__main__":
    main()
