"""A learning curve with pictures on a CPU: tiny-base with a vision tower learns FrozenLake by what it sees.

    python benchmarks/pictures_learning.py --out runs/lake --minutes 15

The board of 4 x 4 fields, which is not slippery, is shown at 64 x 64 pixels, and each prompt has the present picture
alone (`ImageGame`, `RebuildPrompt`). The model is warmed up on demonstrations of which a share is wrong on purpose,
then trained by the PyTorch loop with grpo, each seed in a folder of its own; a call goes on where the last one was
stopped. OUT.json holds for each seed the success before and after, with 95 % intervals, the curve, and the seconds it
took.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from agent_envs.adapters.torch.loop import train
from agent_envs.adapters.torch.settings import LoopConfig
from agent_envs.episodes.statistics import difference
from agent_envs.files import write_text

SETTINGS: dict[str, Any] = {
    "env": "FrozenLake-v1",
    "env_kwargs": {"render_mode": "rgb_array", "is_slippery": False, "max_episode_steps": 30},
    "wrappers": ("ImageGame(max_side=64)", 'RebuildPrompt(template="$observation")', "LimitInvalidActions(limit=3)"),
    "warm_start": 120, "demo_noise": 0.4, "steps": 30, "tasks": 8, "group": 8, "eval_tasks": 128, "eval_every": 5,
    "save_every": 5, "max_response_tokens": 4, "max_tokens": 256, "learning_rate": 1e-4, "warmup": 2,
}  # fmt: skip


def learn(out: Path, seed: int, minutes: float) -> dict[str, Any]:
    """Train with one seed, and return what was measured."""
    wall, cpu = time.monotonic(), time.process_time()
    records = train(LoopConfig(**SETTINGS, out=str(out / str(seed)), seed=seed, minutes=minutes))
    curve = [
        {name: record[f"val/{name}"] for name in ("success", "success_low", "success_high", "episodes")}
        | {"step": record["step"]}
        for record in records
        if "val/success" in record
    ]
    first, last = curve[0], curve[-1]
    gain = difference(first["success"], first["episodes"], last["success"], last["episodes"])
    return {
        "seed": seed,
        "gain": {"value": gain.value, "low": gain.low, "high": gain.high},
        "validation": curve,
        "training": [record["train/success"] for record in records if "train/success" in record],
        "seconds": round(time.monotonic() - wall, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }


def main() -> None:
    """Train with each seed, and write what was measured."""
    parser = argparse.ArgumentParser(description="Learn FrozenLake from pictures on a CPU.")
    parser.add_argument("--out", type=Path, default=Path("runs/lake"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, default=15.0, help="of each seed, the warm start included")
    args = parser.parse_args()
    runs = [learn(args.out, seed, args.minutes) for seed in args.seeds]
    text = json.dumps({"settings": SETTINGS, "runs": runs}, indent=1)
    write_text(args.out.with_suffix(".json"), text + "\n")
    for run in runs:
        print("seed {seed}: success {gain[value]:+.3f} [{gain[low]:+.3f}, {gain[high]:+.3f}]".format(**run))


if __name__ == "__main__":
    main()
