"""A learning curve on one GPU: a model of 114 million parameters, made here, learns HotpotQA or ALFWorld.

    python -m benchmarks.gpu_learning --env HotpotQA --out runs/gpu --minutes 8     # again until it is done
    python -m benchmarks.gpu_learning --env HotpotQA --out runs/gpu-toy --toy       # a minute or two, on a CPU

It needs PyTorch and transformers with this package, no trainer, no engine, no network. The model is made from tasks of
the split "train" as tiny-base is (benchmarks/pretraining), only larger and on one environment, then trained by the
PyTorch loop (`adapters/torch`) with grpo, and evaluated on held-out tasks on the way. Each call goes on where the last
one was stopped or killed; after `--minutes` it stops by itself, with what it is at: a step, an evaluation, the
tokenizer, demonstrations of a kind. OUT/ENV.json holds the curve; its minutes are the wall time of all calls, from the
first file to the last evaluation. docs/results.md shows the file once it is in benchmarks/results/ as gpu.ENV.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from agent_envs.adapters.run import read_records
from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.torch.loop import train
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.episodes.run_folder import counted_seconds, keep_settings
from agent_envs.errors import run_command
from agent_envs.files import write_text
from benchmarks.pretraining.language import OutOfTime, mixture, pretrain

RECIPES = {"HotpotQA": "hotpotqa", "ALFWorld": "alfworld"}
"""The part of tiny-base's mixture that demonstrates each environment: its arguments and wrappers are trained with."""


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    shape: dict[str, Any]
    """Of the model."""
    made: dict[str, Any]
    """Of its pretraining: what `pretrain` takes."""
    loop: dict[str, Any] = field(default_factory=dict)
    """Of its training: what `LoopConfig` takes."""


FULL = Size(
    shape={"hidden_size": 768, "layers": 12, "heads": 12, "intermediate_size": 3072, "rope_theta": 100_000.0,
           "context_length": 4096},
    made={"tokens": 24_000_000, "unique_tokens": 6_000_000, "tokens_per_step": 32_768, "copying_steps": 150,
          "openings_steps": 150, "learning_rate": 1e-3, "save_seconds": 60.0},
    loop={"steps": 300, "tasks": 32, "group": 8, "eval_tasks": 256, "eval_every": 20, "save_every": 10,
          "dtype": "bfloat16", "learning_rate": 3e-5, "concurrency": 256, "micro_tokens": 65_536},
)  # fmt: skip
TOY = Size(
    shape={"hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 192, "context_length": 4096},
    made={
        "tokens": 16_384,
        "unique_tokens": 16_384,
        "tokens_per_step": 2048,
        "copying_steps": 2,
        "openings_steps": 2,
        "tokenizer_characters": 200_000,
    },
    loop={"steps": 4, "tasks": 2, "group": 2, "eval_tasks": 4, "eval_every": 2, "save_every": 1},
)


def main(words: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words
    parser = argparse.ArgumentParser(description="A learning curve on one GPU.")
    parser.add_argument("--env", choices=RECIPES, required=True)
    parser.add_argument("--out", required=True, help="folder; the same command goes on where it was stopped")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--toy", action="store_true", help="a small model and few tasks, to try the script")
    options = parser.parse_args(words)
    return run_command(lambda: learn(options, _command(words, options.out)))


def learn(options: argparse.Namespace, command: str) -> str:
    """Go on for as long as `--minutes` says, write the curve, and return a line about it.

    Raises:
        ConfigError: The folder is of another seed or size.
    """
    began, folder, size = time.monotonic(), Path(options.out, options.env), TOY if options.toy else FULL
    settings = {"env": options.env, "seed": options.seed, "toy": options.toy}
    folder.mkdir(parents=True, exist_ok=True)
    clock = folder / "seconds"
    keep_settings(folder / "settings.json", settings, writes=("pretraining", "run", clock.name, "start"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = next(recipe for recipe in mixture() if recipe.name == RECIPES[options.env])
    start, deadline = folder / "start", began + 60 * options.minutes
    records = read_records(folder / "run" / "metrics.jsonl")
    if not records or records[-1]["step"] < size.loop["steps"]:
        with counted_seconds(clock) as seconds:
            if not start.exists():
                how: dict[str, Any] = {"seed": options.seed, "device": device, "deadline": deadline}
                try:
                    made = pretrain(folder / "pretraining", [recipe], shape=size.shape, **size.made, **how)
                except OutOfTime as e:
                    return f"the model is not made yet: {e}; call it again"
                save_model(*made, start)
                print(f"the model is made, after {seconds() / 60:.1f} minutes", flush=True)
                if time.monotonic() > deadline:
                    return "time is up before the first step: call it again"
            left = (deadline - time.monotonic()) / 60
            config = LoopConfig(
                env=recipe.env, env_kwargs=recipe.env_kwargs, wrappers=tuple(recipe.wrappers), model=str(start),
                out=str(folder / "run"), seed=options.seed, minutes=max(0.01, left), device=device,
                eval_split="validation", **size.loop,
            )  # fmt: skip
            records = train(config)
    names = ("success", "success_low", "success_high", "calls", "length")
    curve = [r for r in records if "val/success" in r]
    found = {
        "env": options.env,
        "command": command,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "parameters": _parameters(start),
        "held_out": curve[0]["val/episodes"],
        "minutes": round(float(clock.read_text()) / 60, 1),
        "curve": [{"step": r["step"], **{name: round(r[f"val/{name}"], 4) for name in names}} for r in curve],
    }
    write_text(Path(options.out, f"{options.env}.json"), json.dumps(found) + "\n")
    step = records[-1]["step"]
    return f"{json.dumps(found['curve'][-1])} " + (
        "done" if step == size.loop["steps"] else f"stopped at step {step}: call it again"
    )


def _command(words: Sequence[str], out: str) -> str:
    """The command line as it was typed; a folder elsewhere is shown as one of the same name in runs/."""
    path = Path(out)
    if path.is_absolute() or ".." in path.parts:
        words = [word.removesuffix(out) + f"runs/{path.name}" if word.endswith(out) else word for word in words]
    return shlex.join(["python", "-m", "benchmarks.gpu_learning", *words])


def _parameters(folder: Path) -> int:
    from transformers import AutoModelForCausalLM

    return int(AutoModelForCausalLM.from_pretrained(folder).num_parameters())


if __name__ == "__main__":
    sys.exit(main())
