"""A learning curve on one GPU: a model of 114 million parameters, made here, learns HotpotQA or ALFWorld.

    python benchmarks/gpu_learning.py --env HotpotQA --out runs/gpu --minutes 8     # again until it is done
    python benchmarks/gpu_learning.py --env HotpotQA --out runs/gpu-toy --toy       # seconds, on a CPU

It needs PyTorch and transformers with this package, no trainer, no engine, no network. The model is made from tasks of
the split "train" as tiny-base is (`adapters/tiny/pretrain.py`), only larger and on one environment, then trained by the
PyTorch loop (`adapters/torch`) with grpo, and evaluated on held-out tasks on the way. Each call goes on where the last
one was stopped or killed; after `--minutes` it stops by itself. OUT/ENV.json holds the curve; docs/results.md shows the
file once it is in benchmarks/results/ as gpu.ENV.json.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from agent_envs.adapters.tiny.model import save_model
from agent_envs.adapters.tiny.pretrain import Recipe, mixture, pretrain
from agent_envs.adapters.torch.loop import train
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.files import write_text

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
    made={"tokens": 16_384, "unique_tokens": 16_384, "tokens_per_step": 2048, "copying_steps": 2, "openings_steps": 2},
    loop={"steps": 4, "tasks": 2, "group": 2, "eval_tasks": 4, "eval_every": 2, "save_every": 1},
)


def main() -> None:
    parser = argparse.ArgumentParser(description="A learning curve on one GPU.")
    parser.add_argument("--env", choices=RECIPES, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder; the same command goes on where it was stopped")
    parser.add_argument("--minutes", type=float, default=8.0, help="stop after so many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--toy", action="store_true", help="a small model and few tasks, to try the script")
    options = parser.parse_args()
    began, size = time.monotonic(), TOY if options.toy else FULL
    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = next(recipe for recipe in mixture() if recipe.name == RECIPES[options.env])
    start = options.out / options.env / "start"
    if not start.exists():
        save_model(*_made(recipe, size, options.out / options.env / "pretraining", options.seed, device), start)
        print(f"the model is made, after {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    left = options.minutes - (time.monotonic() - began) / 60
    config = LoopConfig(
        env=recipe.env, env_kwargs=recipe.env_kwargs, wrappers=tuple(recipe.wrappers), model=str(start),
        out=str(options.out / options.env / "run"), seed=options.seed, minutes=max(0.01, left), device=device,
        eval_split="validation", **size.loop,
    )  # fmt: skip
    records = train(config)
    names = ("success", "success_low", "success_high", "calls", "length")
    curve = [r for r in records if "val/success" in r]
    found = {
        "env": options.env,
        "command": f"python benchmarks/gpu_learning.py --env {options.env} --seed {options.seed}",
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "parameters": _parameters(start),
        "held_out": curve[0]["val/episodes"],
        "minutes": round(sum(r.get("seconds/play", 0) + r.get("seconds/update", 0) for r in records) / 60, 1),
        "curve": [{"step": r["step"], **{name: round(r[f"val/{name}"], 4) for name in names}} for r in curve],
    }
    write_text(options.out / f"{options.env}.json", json.dumps(found) + "\n")
    done = records[-1]["step"] == config.steps
    print(json.dumps(found["curve"][-1]), "done" if done else f"stopped at step {records[-1]['step']}: call it again")


def _made(recipe: Recipe, size: Size, folder: Path, seed: int, device: str) -> tuple[Any, Any]:
    """Pretrain the model, or go on where that was stopped."""
    return pretrain(folder, [recipe], shape=size.shape, seed=seed, device=device, **size.made)


def _parameters(folder: Path) -> int:
    from transformers import AutoModelForCausalLM

    return int(AutoModelForCausalLM.from_pretrained(folder).num_parameters())


if __name__ == "__main__":
    main()
