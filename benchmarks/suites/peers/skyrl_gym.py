"""SkyRL-Gym: its own environment gsm8k, and a tool environment written as its search environment is."""

from __future__ import annotations

import json
import re
from typing import Any

import skyrl_gym
from probe import CALLS, QUESTION, RESULT
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.tools.core import ToolGroup, tool
from skyrl_gym.tools.python import PythonCodeExecutorToolGroup

IMPORT = "import skyrl_gym"
TASK = "gsm8k, whose rows are the user's: one answer"
WHY = {
    "gymnasium_env": "is no gymnasium.Env: `init(prompt)`, and `step` returns a dictionary",
    "tool_limit": "its tool groups have no limit; each tool sees to its own",
    "hostile_calls": "each environment parses its own calls, by whoever wrote it",
    "expert": "has no solver: the answer is the user's row",
    "processed": "is no trainer; SkyRL's is another package",
}
_CALL = re.compile("<tool_call>(.*?)</tool_call>", re.DOTALL)
_functions: dict[str, Any] = {}


class Calculator(ToolGroup):
    def __init__(self) -> None:
        super().__init__("Calculator")

    @tool
    def calculator(self, expression: str) -> str:
        return _functions["calculator"](expression)


class Loop(BaseTextEnv):
    def __init__(self) -> None:
        super().__init__()
        self.max_turns = CALLS + 1
        self.init_tool_groups([Calculator()])
        self.messages: list[dict[str, str]] = []

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        self.messages.append({"role": "assistant", "content": action})
        match = _CALL.search(action)
        if match is None or self.turns >= self.max_turns:
            return BaseTextEnvStepOutput(observations=[], reward=float(RESULT in action), done=True, metadata={})
        wanted = json.loads(match[1])
        content = self._execute_tool("Calculator", wanted["name"], (wanted["arguments"]["expression"],))
        message = {"role": "user", "content": content}
        self.messages.append(message)
        metadata = {"tool_group": "Calculator", "tool_name": wanted["name"], "tool_input": wanted["arguments"]}
        return BaseTextEnvStepOutput(observations=[message], reward=0.0, done=False, metadata=metadata)


skyrl_gym.register("suites-loop", Loop)


class Played:
    """It has no reset: a new episode is a new environment."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.env: Any = None

    def reset(self, seed: int) -> str:
        extras = {"reward_spec": {"ground_truth": str(seed)}}
        self.env = skyrl_gym.make(self.name, **({"extras": extras} if self.name == "gsm8k" else {}))
        return str(self.env.init([{"role": "user", "content": f"{QUESTION} ({seed})"}])[0][-1]["content"])

    def step(self, action: str) -> tuple[str, float, bool]:
        out = self.env.step(action)
        return "".join(m["content"] for m in out["observations"]), float(out["reward"]), out["done"]


def task() -> Played:
    return Played("gsm8k")


def action(number: int) -> str:
    return f"It is 7 times 6.\n#### {number}"


def loop(functions: dict[str, Any], limit: float | None) -> Played:
    _functions.update(functions)
    return Played("suites-loop")


def call(name: str, arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def answer(text: str) -> str:
    return text


def program(code: str, seconds: float) -> str:
    return str(PythonCodeExecutorToolGroup(timeout=seconds).execute_tool("python", code))
