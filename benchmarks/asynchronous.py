"""Episodes per minute of asynchronous training against synchronous training, where environments have a heavy tail.

    python benchmarks/asynchronous.py [--episodes 32] [--steps 40] [--lookahead 0 1 3] [--out runs/asynchronous]

An episode has one to ten steps, each of which sleeps: 0.2 s in the median, 10 s in one of a hundred. How many, and how
long, is drawn by the task and how often it was played. Runs are `agentr1 train` on a CPU and differ in `agentr1.mode`
and `agentr1.lookahead` alone; the first updates are left out. `slow` is the share of trained episodes with a step of 10
s, which a buffer that prefers fast ones loses, `bound` what no lookahead can pass: a synchronous step over an update.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from agent_envs import TextEnv
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome

ENV = "asynchronous:Bench/Errands-v0"
GROUP = 8
MEDIAN, TAIL, SHARE, MOST = 0.2, 10.0, 0.01, 10
_LEFT_OUT = 3  # updates until as much is under way as later


class Errands(IndexedTasks[Problem]):
    """Tasks that are a number."""

    def __len__(self) -> int:
        return 4096

    def get(self, index: int) -> Problem:
        """Return a task."""
        return Problem(f"errands/{self.split}/{index}", f"Errand {index}.", "")


class ErrandsEnv(TextEnv):
    """Waits at every step; in whatever mode and order, all runs wait for the same times."""

    _played: ClassVar[Counter[str]] = Counter()

    def open_tasks(self) -> Errands:
        """Return the tasks of the split."""
        return Errands("generated", self.split)

    def begin(self, task: Problem) -> tuple[str, None]:
        """Draw how many steps the episode has."""
        self._rng = np.random.default_rng([int(task.task_id.rpartition("/")[2]), self._played[task.task_id]])
        self._played[task.task_id] += 1
        self._left = int(self._rng.integers(1, MOST + 1))
        return task.question, None

    def act(self, action: str) -> Outcome:
        """Wait; an action of even length is rewarded."""
        slow = bool(self._rng.random() < SHARE)
        time.sleep(TAIL if slow else MEDIAN * float(np.exp(self._rng.normal(0.0, 0.3))))
        self._left -= 1
        done = self._left == 0
        return Outcome("Done." if done else "Go on.", len(action) % 2, done, success=done, extra={"slow": slow})


gym.register("Bench/Errands-v0", entry_point="asynchronous:ErrandsEnv", max_episode_steps=MOST)


def measure(out: Path, episodes: int, steps: int, lookahead: int | None) -> dict[str, Any]:
    """Train, or go on, and return what the updates after the first few show; `lookahead` None is synchronous."""
    mode = ["agentr1.mode=sync"] if lookahead is None else ["agentr1.mode=colocate", f"agentr1.lookahead={lookahead}"]
    prompts = episodes // GROUP
    command = [
        sys.executable, "-m", "agent_envs", "train", "--env", ENV, "--out", str(out), "--steps", str(steps),
        "data.max_response_length=8", f"data.train_batch_size={prompts}", f"actor_rollout_ref.rollout.n={GROUP}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts}", "trainer.save_freq=-1", "trainer.test_freq=-1",
        "data.val_max_samples=8", *mode,
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(__file__).parent.resolve()), os.environ.get("PYTHONPATH", "")])
    if subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode:
        sys.exit(f"training failed; see {out / 'train.log'}")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    counted = records[1 + _LEFT_OUT :]
    seconds = sum(record["timing_s/step"] for record in counted)
    played = [json.loads(line) for path in sorted((out / "episodes").glob("train-*")) for line in path.open()]
    late = [any(step["info"].get("slow") for step in episode["steps"]) for episode in played]
    return {
        "mode": "sync" if lookahead is None else f"colocate, lookahead {lookahead}",
        "episodes_per_minute": round(60 * episodes * len(counted) / seconds, 1),
        "seconds_per_update": round(sum(record["timing_s/update_actor"] for record in counted) / len(counted), 2),
        "steps_per_episode": round(sum(len(episode["steps"]) for episode in played) / len(played), 3),
        "seconds_per_step": round(seconds / len(counted), 2),
        "slow": round(sum(late) / len(late), 4),
        "staleness": max(record.get("env/async/staleness/max", 0.0) for record in counted),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=32, help="episodes of a batch, a multiple of 8 (default: 32)")
    parser.add_argument("--steps", type=int, default=40, help="updates (default: 40)")
    parser.add_argument("--lookahead", type=int, nargs="+", default=[1, 3], help="batches ahead (default: 1 3)")
    parser.add_argument("--out", type=Path, default=Path("runs/asynchronous"), help="folder of the runs")
    options = parser.parse_args()
    if options.episodes % GROUP or options.steps <= _LEFT_OUT:
        parser.error(f"--episodes must be a multiple of {GROUP}, and --steps above {_LEFT_OUT}")
    base: dict[str, Any] = {}
    for lookahead in (None, *options.lookahead):
        name = f"{options.episodes}-{'sync' if lookahead is None else lookahead}"
        found = measure(options.out.resolve() / name, options.episodes, options.steps, lookahead)
        base = base or found
        times = {
            "times_sync": found["episodes_per_minute"] / base["episodes_per_minute"],
            "bound": base["seconds_per_step"] / found["seconds_per_update"],
        }
        print(json.dumps(found | {name: round(value, 2) for name, value in times.items()}), flush=True)


if __name__ == "__main__":
    main()
