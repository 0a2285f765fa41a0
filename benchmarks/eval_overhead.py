"""What `evaluate` adds to an episode beside its policy and its environment, in milliseconds per step.

    python benchmarks/eval_overhead.py

The same policy on the same tasks, first in a bare loop of reset, act and step, then through `evaluate` with a folder,
intervals and a summary. The policy takes no time, so that the difference is all overhead: threads, records, JSON, disk.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

import agent_envs
from agent_envs.policies import ScriptedPolicy


def bare(env_id: str, env_kwargs: dict[str, Any], act: Any, indices: list[int]) -> tuple[float, int]:
    """Seconds and steps of the loop that anybody would write."""
    env = gym.make(env_id, **env_kwargs)
    began, steps = time.perf_counter(), 0
    for index in indices:
        observation, info = env.reset(seed=0, options={"index": index})
        over = False
        while not over:
            observation, _, terminated, truncated, info = env.step(act(observation, info))
            steps += 1
            over = terminated or truncated
    return time.perf_counter() - began, steps


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=300)
    count = parser.parse_args().episodes
    calls = gym.make("AgentR1/GSM8KTool-v0").get_wrapper_attr("format_call")("calculator", {"expression": "6*7"})
    rows = [
        ("AgentR1/GSM8KTool-v0", {"split": "test"}, lambda seen, info: calls),
        ("AgentR1/WebShop-v0", {"split": "test"}, lambda seen, info: "search[red shoes]"),
        ("AgentR1/ALFWorld-v0", {"split": "test"}, lambda seen, info: "look"),
    ]
    print(
        f"{'environment':24} {'concurrency':>11} {'steps':>6} {'kB/step':>8} {'bare':>9} {'evaluate':>9} "
        f"{'overhead':>9}"
    )
    for env_id, kwargs, act in rows:
        indices = list(range(min(count, 1000)))
        bare(env_id, kwargs, act, indices[:2])
        loop, steps = bare(env_id, kwargs, act, indices)
        for concurrency in (1, 32):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                result = agent_envs.evaluate(
                    env_id, ScriptedPolicy(act), indices=indices, env_kwargs=kwargs, out=folder, concurrency=concurrency
                )
                took = time.perf_counter() - began
                size = os.path.getsize(Path(folder) / "episodes.jsonl") / 1000 / steps
            assert sum(score.steps for score in result.scores) == steps
            ours, theirs = took / steps * 1000, loop / steps * 1000
            print(
                f"{env_id:24} {concurrency:>11} {steps:>6} {size:>8.1f} {theirs:>6.3f} ms {ours:>6.3f} ms "
                f"{ours - theirs:>6.3f} ms"
            )


if __name__ == "__main__":
    main()
