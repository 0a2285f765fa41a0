"""ToolEnv: tools in any form, what after_tools gets, and steps that cost the same however long the episode."""

from __future__ import annotations

import pickle
import time
from typing import Any

import gymnasium as gym
import pytest

from agent_envs.messages import ParseFailure
from agent_envs.problem_env import Problem
from agent_envs.tasks import IndexedTasks
from agent_envs.text_env import Outcome
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, tool


def double(number: int) -> str:
    """Double a number."""
    return str(2 * number)


@tool
def triple(number: int) -> str:
    """Triple a number."""
    return str(3 * number)


class OneTask(IndexedTasks[Problem]):
    def __len__(self) -> int:
        return 1

    def get(self, index: int) -> Problem:
        return Problem("double/0", "Double 4.", "8")


class DoubleEnv(ToolEnv):
    def open_tasks(self) -> OneTask:
        return OneTask("generated", self.split)

    def begin(self, task: Problem) -> tuple[str, list[Any]]:
        return task.question, []

    def after_tools(self, calls: Any, results: Any, outcome: Outcome) -> Outcome:
        self.state.append((calls, results))
        outcome.reward = 0.25 * sum(not result.error for result in results)
        return outcome

    def answer(self, text: str) -> Outcome:
        return Outcome("Done.", terminated=True)


@pytest.mark.parametrize("tools", [[double, triple], (tool(double), triple), ToolRegistry([double, triple])])
def test_tools_are_functions_tool_objects_or_a_registry(tools: Any) -> None:
    env = DoubleEnv(tools=tools)
    assert [spec["function"]["name"] for spec in env.tools] == ["double", "triple"]
    env.reset()
    action = env.format_call("double", {"number": 4}) + env.format_call("triple", {"number": 4})
    assert env.step(action)[:2] == ("8\n12", 0.5)


def test_after_tools_gets_calls_and_results() -> None:
    env = DoubleEnv(tools=[double])
    env.reset()
    action = env.format_call("double", {"number": 4}) + "<tool_call>{oops}</tool_call>"
    _, reward, _, _, info = env.step(action + env.format_call("halve", {}))
    ((calls, results),) = env.state
    assert (calls[0].name, calls[0].arguments) == ("double", {"number": 4})
    assert isinstance(calls[1], ParseFailure) and calls[2].name == "halve"
    assert [result.to_info() for result in results] == info["tool_results"]
    assert [(result.error, result.invalid) for result in results] == [(False, False), (True, True), (True, True)]
    assert reward == 0.25 and info["invalid_action"] is True


def test_a_called_name_is_short_and_clean() -> None:
    env = DoubleEnv(tools=[double])
    env.reset()
    info = env.step(env.format_call("x\ud800" * 500, {}))[4]
    (result,) = info["tool_results"]
    assert result["name"] == "x\ufffd" * 100


def test_tools_can_be_pickled() -> None:
    plain = pickle.loads(pickle.dumps(tool(double, name="twice")))
    assert (plain.name, plain(4)) == ("twice", "8")
    assert pickle.loads(pickle.dumps(triple)) is triple


def test_a_late_step_costs_what_an_early_one_does() -> None:
    env = gym.make("AgentR1/GSM8KTool-v0", max_episode_steps=10**6)
    env.reset(options={"index": 0})
    call = env.unwrapped.format_call("calculator", {"expression": "12*7"})  # type: ignore[attr-defined]

    def fastest(steps: int) -> float:
        times = []
        for _ in range(steps):
            started = time.perf_counter()
            env.step(call)
            times.append(time.perf_counter() - started)
        return min(times)

    early = fastest(200)
    fastest(10_000)
    assert fastest(200) < 3 * early
