"""Learning curves with pictures on a CPU: tiny-base with a vision tower learns FrozenLake by what it sees.

    python benchmarks/pictures_learning.py --out runs/lake [--seeds 0 1 2] [--trainer verl]

The board of 4 x 4 fields, which is not slippery, is shown at 64 x 64 pixels, and each prompt has the present picture
alone (`ImageGame`, `RebuildPrompt`). The model is warmed up on demonstrations of which a share is wrong on purpose,
then trained with grpo by the PyTorch loop, or by verl's trainer (`agentr1 train`). A call goes on where the last one
was stopped. benchmarks/results/pictures.TRAINER.SEED.json has the success on the way and the minutes (of a run
that was stopped, those of its last call); `results.py page` shows them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent_envs.adapters.metrics_log import read_records
from agent_envs.episodes.statistics import difference
from agent_envs.files import write_text

RESULTS = Path(__file__).parent / "results"
TASK = [
    "--env", "FrozenLake-v1",
    "--env-kwargs", json.dumps({"render_mode": "rgb_array", "is_slippery": False, "max_episode_steps": 30}),
    "--wrapper", "ImageGame(max_side=64)",
    "--wrapper", 'RebuildPrompt(template="$observation")',
    "--wrapper", "LimitInvalidActions(limit=3)",
    "--warm-start", "120", "--demo-noise", "0.4", "--steps", "20",
]  # fmt: skip
COMMANDS = {
    "torch": ["-m", "agent_envs.adapters.torch.loop", *TASK, *shlex.split("""
        --tasks 8 --group 8 --eval-tasks 128 --eval-every 5 --save-every 5
        --max-response-tokens 4 --max-tokens 256 --learning-rate 1e-4 --warmup 2""")],
    "verl": ["-m", "agent_envs.cli", "train", *TASK, *shlex.split("""
        data.train_batch_size=8 run.validation_tasks=128 trainer.test_freq=5 trainer.save_freq=5
        data.max_response_length=4 data.max_prompt_length=256 actor_rollout_ref.actor.ppo_mini_batch_size=4
        actor_rollout_ref.actor.optim.lr=1e-4 actor_rollout_ref.actor.optim.lr_warmup_steps=2""")],
}  # fmt: skip
"""What is run for each trainer, but for the seed and the folder."""


def learn(trainer: str, out: Path, seed: int) -> dict[str, Any]:
    """Train with one seed, and return what was measured."""
    command = [*COMMANDS[trainer], "--seed", str(seed)]
    folder = out / f"{trainer}-{seed}"
    began = time.monotonic()
    subprocess.run([sys.executable, *command, "--out", str(folder)], check=True)
    minutes = (time.monotonic() - began) / 60
    curve = [
        {"step": record["step"], "success": record["val/success"], "episodes": round(record["val/episodes"])}
        for record in read_records(folder / "metrics.jsonl")
        if record.get("val/success") is not None
    ]
    return {
        "command": shlex.join(["python", *command]), "trainer": trainer, "seed": seed,
        "minutes": round(minutes, 1), "curve": curve,
    }  # fmt: skip


def main() -> None:
    """Train with each seed, and write what was measured."""
    parser = argparse.ArgumentParser(description="Learn FrozenLake from pictures on a CPU.")
    parser.add_argument("--out", type=Path, default=Path("runs/lake"))
    parser.add_argument("--trainer", choices=list(COMMANDS), default="torch")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    for seed in args.seeds:
        run = learn(args.trainer, args.out, seed)
        write_text(RESULTS / f"pictures.{args.trainer}.{seed}.json", json.dumps(run) + "\n")
        first, last = ((end["success"], end["episodes"]) for end in (run["curve"][0], run["curve"][-1]))
        print(f"seed {seed}: success {difference(*first, *last).shown('+')} in {run['minutes']} minutes")


if __name__ == "__main__":
    main()
