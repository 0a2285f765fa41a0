"""What the environments cost: import, making, stepping, memory. Run: python benchmarks/env_speed.py

Stepping is compared in the same run with a plain gymnasium environment that calls the same calculator and has none of
the rest (call parsing, validation, info contract, records), as a ratio, and with the tool loops of gem (`gem-llm`) and
skyrl-gym, which are given the same calculator, if they are installed. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import re
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
CALL = re.compile("<tool_call>(.*?)</tool_call>", re.DOTALL)


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


def gem_episode(call: str) -> Callable[[], None]:
    """An episode of gem's tool wrapper around an environment that ends with the first answer."""
    from gem.core import Env
    from gem.tools.base_tool import BaseTool
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    class Problem(Env):  # type: ignore[misc]
        def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
            return "How many?", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 1.0, True, False, {}

    class Calculator(BaseTool):  # type: ignore[misc]
        def instruction_string(self) -> str:
            return "Call the calculator."

        def execute_action(self, action: str) -> tuple[bool, bool, str, str]:
            match = CALL.search(action)
            if match is None:
                return False, True, "", ""
            observation = evaluate(json.loads(match[1])["arguments"]["expression"])
            return True, False, observation, action[: match.end()]

    env = ToolEnvWrapper(Problem(), [Calculator()])

    def play() -> None:
        env.reset()
        for _ in range(CALLS_PER_EPISODE):
            env.step(call)
        env.step("#### 72")

    return play


def skyrl_episode(call: str) -> Callable[[], None]:
    """An episode of a skyrl-gym environment with a tool group, written as its search environment is."""
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
    from skyrl_gym.tools.core import ToolGroup, tool

    class Calculator(ToolGroup):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__("Calculator")

        @tool  # type: ignore[untyped-decorator]
        def calculator(self, expression: str) -> str:
            return evaluate(expression)

    class Problem(BaseTextEnv):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.max_turns = CALLS_PER_EPISODE + 1
            self.init_tool_groups([Calculator()])
            self.messages: list[dict[str, str]] = []

        def step(self, action: str) -> BaseTextEnvStepOutput:
            self.turns += 1
            self.messages.append({"role": "assistant", "content": action})
            match = CALL.search(action)
            if match is None or self.turns >= self.max_turns:
                return BaseTextEnvStepOutput(observations=[], reward=1.0, done=True, metadata={})
            arguments = json.loads(match[1])["arguments"]
            content = self._execute_tool("Calculator", "calculator", (arguments["expression"],))
            message = {"role": "user", "content": content}
            self.messages.append(message)
            metadata = {"tool_group": "Calculator", "tool_name": "calculator", "tool_input": arguments}
            return BaseTextEnvStepOutput(observations=[message], reward=0.0, done=False, metadata=metadata)

    skyrl_gym.register("calculator-problem", Problem)

    def play() -> None:
        env = skyrl_gym.make("calculator-problem")  # it has no reset: each episode is a new environment
        env.init([{"role": "user", "content": "How many?"}])
        for _ in range(CALLS_PER_EPISODE):
            env.step(call)
        env.step("#### 72")

    return play


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
    for name, peer in (("gem", gem_episode), ("skyrl-gym", skyrl_episode)):
        try:
            plays[f"{name}, same calculator"] = peer(call)
        except ImportError:
            print(f"{name} is not installed and so not compared")
    speeds: dict[str, list[float]] = {name: [] for name in plays}
    for _ in range(15):
        for name, play in plays.items():
            speeds[name].append(calls_per_second(play, arguments.episodes // 15 or 1))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    for name, median in medians.items():
        ratio = median / medians["plain gymnasium env, same calculator"]
        target = "; at least 0.35" if TOOL_ID in name else ""
        rows.append((name, f"{median:,.0f} calls/s", f"{ratio:.2f} of plain{target}"))
    for env_id in agent_envs.ENV_IDS:
        rows.append((f"memory per further {env_id}", f"{bytes_per_env(env_id, 50) / 1e3:.1f} kB", "below 50 kB"))
    width = max(len(row[0]) for row in rows)
    for name, value, target in rows:
        print(f"{name:<{width}}  {value:>16}  {target}")


if __name__ == "__main__":
    main()
