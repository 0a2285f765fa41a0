"""The results page: what random play, experts, tiny-base and trained models reach on held-out tasks of every id.

    python benchmarks/results.py run                     # every cell that is missing, one after another; resumable
    python benchmarks/results.py run --only HotpotQA/grpo/0 WebShop
    python benchmarks/results.py page                    # docs/results.md, other tables and figures, from the cells

A cell is a file of benchmarks/results/: an id, and a policy or an algorithm with a seed. A training cell is one
`agentr1 train` with the preset cpu-tiny; its values are those of the run's own validation, task by task, before the
first step and after the last. A cell counts as missing when its tasks, the preset's settings or tiny-base are others
now. One that fails does not keep the others from running. `--force` repeats a cell; `--out` is where the runs go.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pictures_learning
from clock import counted_seconds
from tqdm import tqdm

from agent_envs import __version__
from agent_envs.adapters.run import read_records as read_metrics
from agent_envs.adapters.tiny.model import base_folder
from agent_envs.adapters.verl.config.compose import Composed, compose_run
from agent_envs.adapters.verl.run.tasks import Tasks, choose_tasks
from agent_envs.episodes.record import Episode, read_episodes
from agent_envs.episodes.statistics import Interval, clustered_mean, clustered_share, difference, share
from agent_envs.errors import AgentEnvsError, first_line
from agent_envs.files import write_text
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.rollout.comparison import EvaluatedRun, PairedComparison, compare_runs
from agent_envs.rollout.many import run_episodes
from agent_envs.rollout.panel import Panel, digest_of, panel_of
from agent_envs.wrapping.specs import make_text_env

ROOT = Path(__file__).resolve().parents[1]
CELLS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"
OTHERS = CELLS / "README.md"
"""Every run with its command, and the studies."""

NAMES = (
    "GSM8KTool", "GSM8K", "GSM8KCode", "HotpotQA", "TwoWikiMultihopQA", "MuSiQue", "ALFWorld", "WebShop", "PaperSearch",
)  # fmt: skip
POLICIES = {"random": RandomPolicy(seed=0), "noisy expert": ExpertPolicy(noise=0.5, seed=0), "expert": ExpertPolicy()}
TRAINED = {
    "grpo": dict.fromkeys(NAMES, 3)
    | dict.fromkeys(("GSM8K", "GSM8KCode", "TwoWikiMultihopQA", "MuSiQue"), 1)
    | {"GSM8KTool": 5},
    "steppo": {"GSM8KTool": 3, "ALFWorld": 1},
    "gae": {"GSM8KTool": 1, "ALFWorld": 1},
    "gigpo": {"GSM8KTool": 1, "ALFWorld": 1},
}
"""Seeds by algorithm and id."""
MAIN = ("GSM8KTool", "HotpotQA", "ALFWorld", "WebShop", "PaperSearch")
"""The ids in the READMEs."""
HEADS = {
    "README.md": ("grpo, held-out tasks", "success", "gain", "minutes, two cores"),
    "README.zh.md": ("grpo，留出任务", "成功率", "提升", "两个 CPU 核心的分钟数"),
}
"""The columns of the table in each README."""
JUDGED = {"PaperSearch": ("success", "score"), "WebShop": ("score", "success")}
"""Ids whose score may be between 0 and 1: what they are judged by, and what is shown besides. Success is rare on
WebShop."""
CONTEXTS = {
    "append": (),
    "window": ("ChatMessages", "SlidingWindow(k=1)"),
    "summary": ("ChatMessages", "contexts:Summary"),
    "rebuilt": ("RebuildPrompt(history=4)",),
}
"""The wrappers of each context in the study of contexts."""
DEFAULT_TASKS = 256
"""Held-out tasks of an id as `gym.make` gives it, that a trained model plays too."""
STUDIED = ("HotpotQA", "ALFWorld", "PaperSearch")
STUDY_SEEDS = 3
STUDY = {"steps": 20, "warm_start": 100, "overrides": ["run.validation_tasks=256", "trainer.test_freq=20"]}
"""Settings of the study: tiny-base has not seen each context, so a warm start in it comes first."""
STUDY_NOISE = {"ALFWorld": 0.2}
"""Share of wrong demonstrations where half of them would teach tiny-base less than it knows."""


@dataclass(frozen=True)
class Cell:
    """What is measured on its own."""

    name: str
    """The id without namespace and version."""
    row: str
    """A policy or an algorithm."""
    seed: int | None = None
    context: str | None = None
    """What the policy sees of earlier steps, in the study of contexts."""

    @property
    def env(self) -> str:
        return f"AgentR1/{self.name}-v0"

    def __str__(self) -> str:
        parts = (self.name, self.row.replace(" ", "-"), self.context, self.seed)
        return "/".join(str(part) for part in parts if part is not None)

    @property
    def path(self) -> Path:
        return CELLS / f"{str(self).replace('/', '.')}.json"


def cells() -> list[Cell]:
    """Return all cells, the cheap ones first."""
    played = [Cell(name, row) for name in NAMES for row in POLICIES]
    seeds = [
        (algo, name, seed) for algo, ids in TRAINED.items() for name, count in ids.items() for seed in range(count)
    ]
    trained = [Cell(name, algo, seed) for algo, name, seed in seeds]
    studied = [
        Cell(name, "grpo", seed, context) for name in STUDIED for context in CONTEXTS for seed in range(STUDY_SEEDS)
    ]
    return played + sorted(trained + studied, key=lambda cell: cell.seed or 0)


def _base() -> str:
    """Return the digest of tiny-base's weights; what another one was trained to is no result of this one."""
    return json.loads((base_folder() / "digest.json").read_text(encoding="utf-8"))["model.safetensors"]


def _values(episodes: Iterable[Episode]) -> dict[str, list[float]]:
    """Return success and score by the task's index, with its split before that if there are several."""
    played = sorted(episodes, key=lambda e: (e.reset_info["split"], e.index or 0))
    several = len({e.reset_info["split"] for e in played}) > 1
    named = {f"{e.reset_info['split']}/{e.index}" if several else str(e.index): e for e in played}
    return {name: [int(e.success), round(e.score, 4)] for name, e in named.items()}


@lru_cache
def _composed(env: str, algo: str, context: str | None = None) -> tuple[Composed, Tasks]:
    """Return a run of the preset and its tasks; neither the settings nor what is held out depends on the seed."""
    arguments = dict.fromkeys(("steps", "data", "env_kwargs", "out", "model", "warm_start", "demo_noise"))
    arguments |= {"wrappers": [], "overrides": []}
    if context is not None:
        arguments |= STUDY | {"wrappers": list(CONTEXTS[context])}
    composed = compose_run(**arguments, env=env, algo=algo, preset="cpu-tiny", split="train", seed=0, val_fraction=0.1)
    held_out = composed.unresolved.run.validation_tasks
    return composed, choose_tasks(composed.run, tasks_per_step=1, validation_tasks=held_out)


@lru_cache
def _panel(env: str, context: str | None = None) -> str:
    """Return the digest of the tasks that a run holds out."""
    composed, tasks = _composed(env, "grpo", context)
    digests = []
    for split, indices in tasks.held_out:
        kwargs = composed.run.env_kwargs_of(split)
        made = make_text_env(env, kwargs, composed.run.wrappers)
        digests.append(panel_of(made, indices, env, kwargs, composed.run.wrappers).digest)
        made.close()
    return digest_of(digests)[:12]


@lru_cache
def current(cell: Cell) -> dict[str, Any]:
    """Return what a cell's values depend on, as it is now: the tasks and, of a training run, its settings and start."""
    if cell.row in POLICIES:
        return {"panel": _panel(cell.env)}
    run, verl = (composed := _composed(cell.env, cell.row, cell.context)[0]).run, composed.verl()
    settings = {
        "steps": run.steps,
        "tasks_per_step": verl.data.train_batch_size,
        "samples": verl.actor_rollout_ref.rollout.n,
        "learning_rate": verl.actor_rollout_ref.actor.optim.lr,
        "response_length": verl.data.max_response_length,
        "env_kwargs": run.env_kwargs,
        "wrappers": list(run.wrappers),
    }
    if cell.context is not None:
        settings["warm_start"] = STUDY["warm_start"]
        settings |= {"demo_noise": STUDY_NOISE[cell.name]} if cell.name in STUDY_NOISE else {}
    return {"panel": _panel(cell.env, cell.context), "settings": settings, "base": _base()}


def play(cell: Cell) -> dict[str, Any]:
    """Play a policy on the tasks that a training run of the id holds out."""
    composed, tasks = _composed(cell.env, "grpo")
    episodes: list[Episode] = []
    for split, indices in tasks.held_out:
        episodes += run_episodes(
            cell.env, POLICIES[cell.row], len(indices), options=[{"index": i} for i in indices],
            env_kwargs=composed.run.env_kwargs_of(split), wrappers=composed.run.wrappers, progress=False,
        )  # fmt: skip
    return {"after": _values(episodes)}


def train(cell: Cell, folder: Path) -> dict[str, Any]:
    """Train, and return both ends, the curve and what it cost."""
    options = ["--env", cell.env, "--algo", cell.row, "--preset", "cpu-tiny", "--seed", str(cell.seed)]
    if cell.context is not None:
        options += ["--steps", str(STUDY["steps"]), "--warm-start", str(STUDY["warm_start"])]
        options += ["--demo-noise", str(STUDY_NOISE[cell.name])] if cell.name in STUDY_NOISE else []
        options += [f"--wrapper={wrapper}" for wrapper in CONTEXTS[cell.context]] + STUDY["overrides"]
    command = [sys.executable, "-m", "agent_envs", "train", *options, "--out", str(folder)]
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with counted_seconds(_clock(folder)) as seconds:
        subprocess.run(command, cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": path})
    minutes = seconds() / 60
    records = list(read_metrics(folder / "metrics.jsonl"))
    curve = [r for r in records if r.get("val/success") is not None]
    costs = {"tokens": "env/tokens/processed", "seconds": "timing_s/step"}
    trained = [r for r in records if r["step"]]
    ends = []
    for record in (curve[0], curve[-1]):
        files = sorted((folder / "episodes").glob(f"val*-{record['step']:06d}.jsonl*"))
        ends.append(_values(chain.from_iterable(map(read_episodes, files))))
    names = {"val/success": "success", "val/score/mean": "score", "val/calls/mean": "calls",
             "val/tokens/response_per_episode": "length"}  # fmt: skip
    return {
        "command": shlex.join(["agentr1", "train", *options]),
        "steps": curve[-1]["step"],
        "minutes": round(minutes, 1),
        "before": ends[0],
        "after": ends[1],
        "cost": {name: round(sum(r[key] for r in trained) / len(trained), 1) for name, key in costs.items()},
        "curve": [{"step": r["step"], **{name: round(r[key], 4) for key, name in names.items()}} for r in curve],
        **({} if cell.context else {"default": on_default(cell, folder)}),
    }


def on_default(cell: Cell, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Play held-out tasks of the id as `gym.make` gives it, with tiny-base and with what a run made of it."""
    out, agentr1 = {}, [sys.executable, "-m", "agent_envs"]
    if not (after := folder / "exported").exists():  # --checkpoint would play with the arguments of the run
        subprocess.run([*agentr1, "export", str(folder), "--out", str(after)], cwd=ROOT, check=True)
    for end, model in (("before", base_folder()), ("after", after)):
        played = folder / f"default-{end}"
        options = ["--env", cell.env, "--split", "validation", "--n", str(DEFAULT_TASKS), "--context-length", "4096"]
        options += ["--max-tokens", "64", "--out", str(played), "--quiet"]
        subprocess.run([*agentr1, "eval", *options, "--model", str(model)], cwd=ROOT, check=True)
        out[end] = _values(read_episodes(played / "episodes.jsonl"))
    return out


def run(only: Sequence[str], force: bool, out: Path) -> None:
    names = list(map(str, cells()))
    if unknown := [prefix for prefix in only if not any(name.startswith(prefix) for name in names)]:
        sys.exit(f"there is no cell {' or '.join(unknown)}; there are {', '.join(names)}")
    wanted = [cell for cell in cells() if not only or str(cell).startswith(tuple(only))]
    others = {name: metadata.version(name) for name in ("torch", "transformers", "verl")}
    about = {"versions": {"agent_envs": __version__, **others}, "cores": os.cpu_count()}
    failed = []
    for cell in tqdm([c for c in wanted if force or _read(c) is None], desc="cells"):
        folder = out.resolve() / str(cell).replace("/", "-")
        if force or cell.path.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _clock(folder).unlink(missing_ok=True)
        try:
            found = play(cell) if cell.row in POLICIES else train(cell, folder)
        except (AgentEnvsError, subprocess.CalledProcessError) as e:
            tqdm.write(f"{cell}: {first_line(e)}", file=sys.stderr)
            failed.append(str(cell))
            continue
        CELLS.mkdir(exist_ok=True)
        write_text(cell.path, json.dumps({"cell": str(cell), **about, **current(cell), **found}) + "\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; run it again to go on")


def _clock(folder: Path) -> Path:
    """Return the file that counts the seconds of a run."""
    return folder.with_name(f"{folder.name}.seconds")


# ------------------------------------------------------------------------------------------------------ the page


def _read(cell: Cell) -> dict[str, Any] | None:
    """Return what was found, None if it is missing or of other tasks, settings or another tiny-base than today's."""
    if not cell.path.exists():
        return None
    found = json.loads(cell.path.read_text(encoding="utf-8"))
    now = current(replace(cell, seed=None))  # the same for all seeds
    return found if {name: found.get(name) for name in now} == now else None


def _run(name: str, values: dict[str, list[float]]) -> EvaluatedRun:
    numbered = list(enumerate(sorted(values.items())))
    rows = {number: [[success, score, score, 0.0]] for number, (_, (success, score)) in numbered}
    return EvaluatedRun(name, Panel(name, {}, [], {}, {number: (task, "") for number, (task, _) in numbered}), rows, 0)


def _compared(found: Sequence[dict[str, Any]]) -> PairedComparison:
    return compare_runs(*([_run("held out", each[end]) for each in found] for end in ("before", "after")))


def _mean(runs: Sequence[dict[str, list[float]]], measure: str) -> str:
    """Return the mean over tasks and runs, with its interval over tasks."""
    groups = [[run[task][measure == "score"] for run in runs] for task in runs[0]]
    found: Interval = clustered_share(groups) if measure == "success" else clustered_mean(groups, 0.0, 1.0)
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _seeds(name: str, algo: str) -> list[dict[str, Any]]:
    """Return the runs of an id and an algorithm that there are."""
    return [found for seed in range(TRAINED[algo].get(name, 0)) if (found := _read(Cell(name, algo, seed)))]


def _table() -> Iterator[str]:
    """Yield a line for each id and measure; what is not there yet is an empty field, and policies have no interval."""
    head = ["id", "arguments and wrappers", *POLICIES, "tiny-base", "after grpo"]
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for name, measure in _rows():
        row = [_judged(name, measure), _setting(_composed(f"AgentR1/{name}-v0", "grpo")[0].run)]
        for policy in POLICIES:
            found = _read(Cell(name, policy))
            row.append(_mean([found["after"]], measure).partition(" ")[0] if found else "")
        runs = _seeds(name, "grpo")
        row += [_mean([run["before"] for run in runs], measure), _gain(runs, measure)] if runs else ["", ""]
        yield f"| {' | '.join(row)} |"


def _estimators_table() -> Iterator[str]:
    """Yield a line for each id that several estimators trained on."""
    others = [algo for algo in TRAINED if algo != "grpo"]
    names = [name for name in NAMES if any(_seeds(name, algo) for algo in others)]
    if not names:
        return
    yield f"| id | arguments and wrappers | grpo | {' | '.join(others)} |"
    yield f"|{' --- |' * (len(others) + 3)}"
    for name in names:
        runs = [_seeds(name, algo) for algo in ("grpo", *others)]
        setting = _setting(_composed(f"AgentR1/{name}-v0", "grpo")[0].run)
        yield f"| {name} | {setting} | {' | '.join(_gain(each, 'success') if each else '' for each in runs)} |"


def _rows() -> list[tuple[str, str]]:
    """Return every id with what it is judged by."""
    return [(name, measure) for name in NAMES for measure in JUDGED.get(name, ("success",))]


def _judged(name: str, measure: str) -> str:
    return name if measure == "success" else f"{name} ({measure})"


def _setting(run: Any) -> str:
    """Return the arguments of a run's environment, as `gym.make` takes them, and its wrappers."""
    return _call(run.env_kwargs, run.wrappers)


def _call(env_kwargs: dict[str, Any], wrappers: Iterable[str] = ()) -> str:
    """Return arguments and wrappers as a field of a table, "none" where the id is played with its defaults."""
    shown = [f"`{each}`" for each in (*(f"{k}={v!r}" for k, v in env_kwargs.items()), *wrappers)]
    return ", ".join(shown) or "none"


def _default_table() -> Iterator[str]:
    """Yield a line for each id whose trained model also played the id's defaults; nothing if none did."""
    found = [(name, measure, run) for name, measure in _rows() for run in _seeds(name, "grpo") if "default" in run]
    if found:
        yield "| id | seed | arguments as above | `gym.make(id)` |"
        yield "| --- | --- | --- | --- |"
    for name, measure, run in found:
        ends = [[_mean([each[end]], measure) for end in ("before", "after")] for each in (run, run["default"])]
        shown = " | ".join(" → ".join(values) for values in ends)
        yield f"| {_judged(name, measure)} | {run['cell'].rpartition('/')[2]} | {shown} |"


def _real_table() -> Iterator[str]:
    """Yield a line for each of benchmarks/real_model.py's cells; nothing while there is none."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(CELLS.glob("smollm2.*.json"))]
    if found:
        yield "| id, arguments | demonstrations | seed | as released | after them | after grpo | calls | minutes |"
        yield f"|{' --- |' * 8}"
    for each in found:
        call = _call(each["env_kwargs"], each["wrappers"])
        id_ = each["env"].rpartition("/")[2] + ("" if call == "none" else f", {call}")
        rows = {row["what"]: row for row in each["rows"]}
        success = [
            f"{row['success']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" if row else ""
            for row in map(rows.get, ("untrained", "warm start", "trained"))
        ]
        calls = " → ".join(f"{row['calls']:.1f}" for row in each["rows"])
        minutes = f"{each['minutes']:.0f}, {each['device'].removeprefix('NVIDIA ').partition(' ')[0]}"
        demonstrations = f"{each['loop']['warm_start']} steps, {each['loop']['demo_noise']:.0%} wrong"
        yield f"| {' | '.join([id_, demonstrations, str(each['seed']), *success, calls, minutes])} |"


def _gain(runs: Sequence[dict[str, Any]], measure: str) -> str:
    row = _compared(runs).measures[measure]
    seeds = "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
    d = row.difference
    return f"{row.second:.3f}, **{d.value:+.3f}** [{d.low:+.3f}, {d.high:+.3f}], {seeds}"


def _runs_table() -> Iterator[str]:
    """Yield a line for each command, with what its seeds cost and reached."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for cell in cells():
        found = _read(cell)
        if found and "before" in found:
            options = found["command"].partition(f" --seed {cell.seed}")[2].strip()
            before, after = (found[end].values() for end in ("before", "after"))
            judged = JUDGED.get(cell.name, ("success",))[0] == "score"
            ends = (f"{_average(value[judged] for value in values):.3f}" for values in (before, after))
            name = (cell.name, cell.row, f"`{options}`" if options else "", str(found["steps"]))
            rows.setdefault(name, []).append(f"{cell.seed}: {found['minutes']}, {' → '.join(ends)}")
    yield "| id | algorithm | options | steps | seed: minutes, before → after |"
    yield "| --- | --- | --- | --- | --- |"
    for name, seeds in rows.items():
        yield f"| {' | '.join(name)} | {'; '.join(seeds)} |"


def _contexts_table() -> Iterator[str]:
    head = "arguments and wrappers | context | seeds | before | after | gain | actions | tokens a step | seconds a step"
    yield f"| id | {head} |"
    yield f"|{' --- |' * 10}"
    for name in STUDIED:
        for context in CONTEXTS:
            runs = [run for seed in range(STUDY_SEEDS) if (run := _read(Cell(name, "grpo", seed, context)))]
            if not runs:
                continue
            row = _compared(runs).measures["success"]
            gain = f"**{row.difference.value:+.3f}** [{row.difference.low:+.3f}, {row.difference.high:+.3f}]"
            ends = [f"{_average(run['curve'][end]['calls'] for run in runs):.1f}" for end in (0, -1)]
            tokens, seconds = (_average(run["cost"][what] for run in runs) for what in ("tokens", "seconds"))
            values = [len(runs), f"{row.first:.3f}", f"{row.second:.3f}", gain, " → ".join(ends), f"{tokens:,.0f}"]
            setting = _setting(_composed(f"AgentR1/{name}-v0", "grpo", context)[0].run)
            yield f"| {name} | {setting} | {context} | {' | '.join(map(str, values))} | {seconds:.0f} |"


def _average(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _pictures_table() -> Iterator[str]:
    yield "| environment | arguments and wrappers | trainer | seed | minutes | steps | before | after | gain |"
    yield f"|{' --- |' * 9}"
    for path in sorted(CELLS.glob("pictures.*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        ends = [(end["success"], end["episodes"]) for end in (found["curve"][0], found["curve"][-1])]
        shown = [share(value * count, count).shown() for value, count in ends]
        gain = difference(*ends[0], *ends[1]).shown("+")
        options = pictures_learning.TASKS[found["env"]]
        wrappers = [value for name, value in pairwise(options) if name == "--wrapper"]
        setting = _call(json.loads(options[options.index("--env-kwargs") + 1]), wrappers)
        about = [found["env"], setting, *(found[name] for name in ("trainer", "seed", "minutes"))]
        row = [*about, found["curve"][-1]["step"], *shown, gain]
        yield f"| {' | '.join(map(str, row))} |"


def _versions() -> str:
    """Return with what the trained cells were made."""
    found = [cell for algo, ids in TRAINED.items() for name in ids for cell in _seeds(name, algo)]
    packages = sorted({package for cell in found for package in cell["versions"]})
    said = [f"{p} {' and '.join(sorted({cell['versions'][p] for cell in found}))}" for p in packages]
    return f"Trained with {', '.join(said)}."


def _readme(file: str) -> Iterator[str]:
    """Yield the table's top for a README, one line an id: means over the seeds."""
    yield " | ".join(HEADS[file])
    yield " | ".join(["---"] * len(HEADS[file]))
    for name in MAIN:
        runs, measure = _seeds(name, "grpo"), JUDGED.get(name, ("success",))[0]
        row = _compared(runs).measures[measure]
        minutes = sum(run["minutes"] for run in runs) / len(runs)
        gain = f"{row.difference.value:+.3f}"
        yield f"{_judged(name, measure)} | {row.first:.3f} → {row.second:.3f} | **{gain}** | {minutes:.1f}"


def _between(text: str, mark: str, lines: Iterable[str]) -> str:
    """Return a text with other lines between a pair of marks."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{chr(10).join(lines)}\n{end}{rest.partition(end)[2]}"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with a table of results and what belongs into it."""
    shown = {"real": _real_table(), "table": _table(), "default": _default_table(), "versions": [_versions()]}
    others = {"runs": _runs_table(), "estimators": _estimators_table(), "contexts": _contexts_table(),
              "pictures": _pictures_table()}  # fmt: skip
    readmes = {ROOT / name: {"results": _readme(name)} for name in HEADS}
    for path, parts in {PAGE: shown, OTHERS: others, **readmes}.items():
        text = path.read_text(encoding="utf-8")
        for mark, lines in parts.items():
            text = _between(text, mark, lines)
        yield path, text


def page() -> None:
    """Write the tables of every page between their marks, and draw the figures."""
    missing = [
        str(cell)
        for cell in cells()
        if cell.row == "grpo" and cell.name in MAIN and not cell.context and _read(cell) is None
    ]
    if missing:
        sys.exit(f"the READMEs and the figures need {', '.join(missing)}: python benchmarks/results.py run")
    for path, text in pages():
        write_text(path, text)
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the results page.")
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run the cells that are missing")
    runs.add_argument("--only", nargs="+", default=(), metavar="CELL", help="cells, or how their names start")
    runs.add_argument("--force", action="store_true", help="repeat those that there are")
    runs.add_argument("--out", type=Path, default=ROOT / "runs" / "results", help="folder for the training runs")
    commands.add_parser("page", help="write docs/results.md from the cells that there are")
    arguments = parser.parse_args()
    if arguments.command == "page":
        page()
    else:
        run(arguments.only, arguments.force, arguments.out)


if __name__ == "__main__":
    main()
