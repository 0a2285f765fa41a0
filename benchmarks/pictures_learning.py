"""Learning curves with pictures on a CPU: FrozenLake and PictureSearch, by what is seen.

    python benchmarks/pictures_learning.py --out runs/pictures [--env PictureSearch] [--seeds 0 1 2] [--trainer verl]

FrozenLake's board of 4 x 4 fields, which is not slippery, is shown at 64 x 64 pixels, and each prompt has the present
picture alone (`ImageGame`, `RebuildPrompt`): tiny-base with a new vision tower is warmed up on demonstrations, of which
a share is wrong on purpose. PictureSearch is level 1, family "find", and starts from tiny-vision. Both are trained
with grpo by the PyTorch loop, or by verl's trainer (`agentr1 train`; PictureSearch by the preset cpu-tiny). A call goes
on where the last one was stopped. benchmarks/results/pictures.ENV.TRAINER.SEED.json has the success on the way and the
minutes of all calls; `results.py page` shows them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from clock import counted_seconds

from agent_envs.adapters.run import read_records
from agent_envs.episodes.statistics import difference
from agent_envs.files import write_text

RESULTS = Path(__file__).parent / "results"
TASKS = {
    "FrozenLake": [
        "--env", "FrozenLake-v1",
        "--env-kwargs", json.dumps({"render_mode": "rgb_array", "is_slippery": False, "max_episode_steps": 30}),
        "--wrapper", "ImageGame(max_side=64)",
        "--wrapper", 'RebuildPrompt(template="$observation")',
        "--wrapper", "LimitInvalidActions(limit=3)",
        "--warm-start", "120", "--demo-noise", "0.4", "--steps", "20",
    ],
    "PictureSearch": [
        "--env", "AgentR1/PictureSearch-v0",
        "--env-kwargs", json.dumps({"level": 1, "families": "find", "max_episode_steps": 6}),
        "--steps", "20",
    ],
}  # fmt: skip
LIMITS = {"FrozenLake": (4, 256, 1e-4, 128, 5), "PictureSearch": (80, 3072, 5e-5, 256, 10)}
"""Tokens of an action and of a prompt, the learning rate, held-out tasks, and the steps between playing these."""


def command(env: str, trainer: str) -> list[str]:
    """Return what is run, except the seed and the folder."""
    action, prompt, rate, tasks, every = LIMITS[env]
    if trainer == "torch":
        return ["-m", "agent_envs.adapters.torch.loop", *TASKS[env], *shlex.split(f"""
            --tasks 8 --group 8 --eval-tasks {tasks} --eval-every {every} --save-every 5
            --max-response-tokens {action} --max-tokens {prompt} --learning-rate {rate} --warmup 2""")]  # fmt: skip
    if env == "PictureSearch":
        return ["-m", "agent_envs", "train", "--env", "AgentR1/PictureSearch-v0", "--preset", "cpu-tiny"]
    return ["-m", "agent_envs", "train", *TASKS[env], *shlex.split(f"""
        data.train_batch_size=8 run.validation_tasks={tasks} trainer.test_freq={every} trainer.save_freq=5
        data.max_response_length={action} data.max_prompt_length={prompt} actor_rollout_ref.actor.ppo_mini_batch_size=4
        actor_rollout_ref.actor.optim.lr={rate} actor_rollout_ref.actor.optim.lr_warmup_steps=2""")]  # fmt: skip


def learn(env: str, trainer: str, out: Path, seed: int) -> dict[str, Any]:
    """Train with one seed, and return what was measured."""
    options = [*command(env, trainer), "--seed", str(seed)]
    folder = out / f"{env}-{trainer}-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    clock = folder.with_name(f"{folder.name}.seconds")
    if not folder.exists():
        clock.unlink(missing_ok=True)
    with counted_seconds(clock) as seconds:
        subprocess.run([sys.executable, *options, "--out", str(folder)], check=True)
    minutes = seconds() / 60
    curve = [
        {"step": record["step"], "success": record["val/success"], "episodes": round(record["val/episodes"])}
        for record in read_records(folder / "metrics.jsonl")
        if record.get("val/success") is not None
    ]
    return {
        "command": shlex.join(["python", *options]), "env": env, "trainer": trainer, "seed": seed,
        "minutes": round(minutes, 1), "curve": curve,
    }  # fmt: skip


def main() -> None:
    """Train with each seed, and write what was measured."""
    parser = argparse.ArgumentParser(description="Learn from pictures on a CPU.")
    parser.add_argument("--out", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--env", choices=list(TASKS), default="FrozenLake")
    parser.add_argument("--trainer", choices=["torch", "verl"], default="torch")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    for seed in args.seeds:
        run = learn(args.env, args.trainer, args.out, seed)
        write_text(RESULTS / f"pictures.{args.env}.{args.trainer}.{seed}.json", json.dumps(run) + "\n")
        first, last = ((end["success"], end["episodes"]) for end in (run["curve"][0], run["curve"][-1]))
        print(f"seed {seed}: success {difference(*first, *last).shown('+')} in {run['minutes']} minutes")


if __name__ == "__main__":
    main()
