"""What the environments cost: import, making, stepping, memory. Run: python benchmarks/env_speed.py

Stepping is compared in the same run with a plain gymnasium environment that calls the same calculator and has none of
the rest (call parsing, validation, info contract, records), as a ratio. Times are CPU seconds; suites/compare.py has
other packages beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import gymnasium as gym

import agent_envs
from agent_envs.spaces import UnicodeText
from agent_envs.tools.calculator import evaluate

CALLS_PER_EPISODE = 9  # and the final answer, within the ten steps of GSM8KTool-v0
TOOL_ID = "AgentR1/GSM8KTool-v0"


class PlainCalculatorEnv(gym.Env[str, str]):
    """The peer: a question, a JSON call, the calculator's result."""

    def __init__(self) -> None:
        self.observation_space = self.action_space = UnicodeText(65536)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "How many?", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if not action.startswith("{"):
            return "", 1.0, True, False, {}
        return evaluate(json.loads(action)["arguments"]["expression"]), 0.0, False, False, {}


def import_seconds(module: str, runs: int) -> float:
    """Median CPU seconds of a fresh interpreter that imports a module."""
    code = f"import time, {module}; print(time.process_time())"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in range(runs)
    ]
    return statistics.median(times)


def make_milliseconds(env_id: str, runs: int) -> float:
    """Median milliseconds of a warm `gym.make`."""
    gym.make(env_id).reset(seed=0)
    times = []
    for _ in range(runs):
        begin = time.process_time()
        gym.make(env_id)
        times.append(time.process_time() - begin)
    return statistics.median(times) * 1e3


def gym_episode(env: gym.Env[str, str], call: str, fresh: bool = False) -> Callable[[], None]:
    """An episode of a Gymnasium environment; ``fresh`` ones play a new task each, so that making it counts too."""
    env.reset(seed=0)

    def play() -> None:
        env.reset(options=None if fresh else {"index": 0})
        for _ in range(CALLS_PER_EPISODE):
            env.step(call)
        env.step("#### 72")

    return play


def steps_per_second(level: int, tasks: int) -> float:
    """Steps of HelpDesk per CPU second, resets included; what the expert does was written down beforehand."""
    env = gym.make("AgentR1/HelpDesk-v0", level=level)
    base: Any = env.unwrapped
    episodes: list[list[str]] = []
    for index in range(tasks):
        base.reset(options={"index": index})
        actions = [base.expert_action()]
        while not base.step(actions[-1])[2]:
            actions.append(base.expert_action())
        episodes.append(actions)
    begin = time.process_time()
    for index, actions in enumerate(episodes):
        env.reset(options={"index": index})
        for action in actions:
            env.step(action)
    return sum(map(len, episodes)) / (time.process_time() - begin)


def calls_per_second(play: Callable[[], None], episodes: int) -> float:
    """Calculator calls per CPU second, resets and final answers included."""
    begin = time.process_time()
    for _ in range(episodes):
        play()
    return episodes * CALLS_PER_EPISODE / (time.process_time() - begin)


def bytes_per_env(env_id: str, count: int) -> float:
    """Python memory of one more environment, after its first reset."""
    warm = gym.make(env_id)
    warm.reset(options={"index": 0})
    tracemalloc.start()
    envs = [gym.make(env_id) for _ in range(count)]
    for env in envs:
        env.reset(options={"index": 0})
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    base, ours = import_seconds("gymnasium", arguments.runs), import_seconds("agent_envs", arguments.runs)
    rows = [("import agent_envs over import gymnasium", f"{ours - base:.3f} s", "at most 0.1 s")]
    for env_id in agent_envs.ENV_IDS:
        rows.append((f"gym.make {env_id}, warm", f"{make_milliseconds(env_id, 50):.3f} ms", "below 1 ms"))
    env = gym.make(TOOL_ID)
    call = env.unwrapped.format_call("calculator", {"expression": "12*7"})  # type: ignore[attr-defined]
    gym.register("PlainCalculator-v0", PlainCalculatorEnv, max_episode_steps=10)
    plain = gym.make("PlainCalculator-v0")
    body = json.dumps({"name": "calculator", "arguments": {"expression": "12*7"}})
    plays = {
        f"{TOOL_ID}, one task": gym_episode(env, call),
        f"{TOOL_ID}, fresh tasks": gym_episode(env, call, fresh=True),
        "plain gymnasium env, same calculator": gym_episode(plain, body),
    }
    speeds: dict[str, list[float]] = {name: [] for name in plays}
    for _ in range(15):
        for name, play in plays.items():
            speeds[name].append(calls_per_second(play, arguments.episodes // 15 or 1))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    for name, median in medians.items():
        ratio = median / medians["plain gymnasium env, same calculator"]
        target = "; at least 0.35" if TOOL_ID in name else ""
        rows.append((name, f"{median:,.0f} calls/s", f"{ratio:.2f} of plain{target}"))
    for level in (1, 3, 5, 8):
        steps = statistics.median(steps_per_second(level, 40) for _ in range(3))
        rows.append((f"AgentR1/HelpDesk-v0, level {level}", f"{steps:,.0f} steps/s", "at least 2,000"))
    for env_id in agent_envs.ENV_IDS:
        rows.append((f"memory per further {env_id}", f"{bytes_per_env(env_id, 50) / 1e3:.1f} kB", "below 50 kB"))
    width = max(len(row[0]) for row in rows)
    for name, value, target in rows:
        print(f"{name:<{width}}  {value:>16}  {target}")


if __name__ == "__main__":
    main()
