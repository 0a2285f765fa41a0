"""Gymnasium itself: an environment over text written by hand with no help of any suite, which is the floor."""

from __future__ import annotations

import json
import string
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Text
from probe import CALLS, QUESTION, RESULT, OfGymnasium, calculator

IMPORT = "import gymnasium"
TASK = "a question and a calculator, written by hand"
_OWN = "the parsing and its errors are those of whoever writes the environment"
WHY = {
    "tool_limit": "has no tools",
    "program": "has no tools",
    "hostile_texts": _OWN,
    "hostile_calls": _OWN,
    "expert": "has no text tasks, and no solver",
    "processed": "is no trainer",
}


class Loop(gym.Env[str, str]):
    def __init__(self, functions: dict[str, Any]) -> None:
        self.observation_space = self.action_space = Text(10_000, min_length=0, charset=string.printable)
        self.functions = functions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return QUESTION, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if not action.startswith("{"):
            return "", float(RESULT in action), True, False, {}
        wanted = json.loads(action)
        return self.functions[wanted["name"]](**wanted["arguments"]), 0.0, False, False, {}


gym.register("Suites/Loop-v0", Loop, max_episode_steps=CALLS + 1)


def loop(functions: dict[str, Any], limit: float | None) -> OfGymnasium:
    return OfGymnasium(gym.make("Suites/Loop-v0", functions=functions))


def task() -> OfGymnasium:
    return loop({"calculator": calculator}, None)


def action(number: int) -> str:
    return call("calculator", {"expression": f"{number}*7"})


def gymnasium_env() -> gym.Env[str, str]:
    return gym.make("Suites/Loop-v0", functions={"calculator": calculator})


def call(name: str, arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def answer(text: str) -> str:
    return text
