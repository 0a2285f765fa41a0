"""Episodes per minute of asynchronous training against synchronous training, where environments have a heavy tail.

    python benchmarks/asynchronous.py [--episodes 32] [--steps 40] [--lookahead 0 1 3] [--out runs/asynchronous]

Every step of an environment sleeps for a time that is drawn by its task and step: 0.2 s in the median, 10 s in one of a
hundred. Runs are `agentr1 train` on a CPU and differ in `agentr1.mode` and `agentr1.lookahead` alone; the first updates
are left out. `slow` is the share of trained episodes with a step of 10 s, which a buffer that prefers fast ones loses.
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
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np

from agent_envs.wrapping.order import Place, PlacedWrapper

ENV = "AgentR1/GSM8KTool-v0"
GROUP = 8
_LEFT_OUT = 3  # updates until as much is under way as later


class Slow(PlacedWrapper):
    """Sleeps at every step, for a time drawn by the task, how often a worker has played it, and the step.

    So every run, in whatever mode and order, sleeps for the same times.

    Args:
        env: The environment.
        median: Seconds of most steps.
        tail: Seconds of one step in a hundred.
    """

    place = Place.REWARD
    _played: ClassVar[Counter[int]] = Counter()

    def __init__(self, env: gym.Env[str, str], median: float = 0.2, tail: float = 10.0) -> None:
        super().__init__(env, median=median, tail=tail)
        self._median, self._tail = median, tail

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        task = int(info["index"])
        self._rng = np.random.default_rng([task, self._played[task]])
        self._played[task] += 1
        return observation, {**info, "slow": False}

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        slow = self._rng.random() < 0.01
        time.sleep(self._tail if slow else self._median * float(np.exp(self._rng.normal(0.0, 0.3))))
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "slow": bool(slow)}


def measure(out: Path, episodes: int, steps: int, lookahead: int | None) -> dict[str, Any]:
    """Train, or go on, and return what the updates after the first few show; `lookahead` None is synchronous."""
    mode = ["agentr1.mode=sync"] if lookahead is None else ["agentr1.mode=colocate", f"agentr1.lookahead={lookahead}"]
    prompts = episodes // GROUP
    command = [
        sys.executable, "-m", "agent_envs.cli", "train", "--env", ENV, "--out", str(out), "--steps", str(steps),
        "--wrapper", "asynchronous:Slow", f"data.train_batch_size={prompts}", f"actor_rollout_ref.rollout.n={GROUP}",
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
    base = None
    for lookahead in (None, *options.lookahead):
        name = f"{options.episodes}-{'sync' if lookahead is None else lookahead}"
        found = measure(options.out.resolve() / name, options.episodes, options.steps, lookahead)
        base = base or found["episodes_per_minute"]
        print(json.dumps({**found, "times_sync": round(found["episodes_per_minute"] / base, 2)}), flush=True)


if __name__ == "__main__":
    main()
