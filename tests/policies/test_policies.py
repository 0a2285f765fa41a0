"""Policies that need no model. What these tests pin: actions depend on the seed and the task alone, scripts that end
too early and tasks without an expert say so."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jsonschema
import numpy as np
import pytest

import agent_envs.policies
from agent_envs import Problem
from agent_envs.episodes.record import StopReason
from agent_envs.errors import ConfigError
from agent_envs.policies import ExpertPolicy, RandomPolicy, Response, ScriptedPolicy
from agent_envs.policies.policy import episode_rng
from agent_envs.policies.scripted import random_value
from agent_envs.rollout.many import run_episodes
from agent_envs.rollout.one import run_episode
from agent_envs.tasks import ListedTasks
from agent_envs.text_env import Outcome, TextEnv
from agent_envs.tool_env import ToolEnv
from agent_envs.tools import ToolRegistry, tool


def tasks() -> ListedTasks[Problem]:
    return ListedTasks([Problem(f"task/{i}", "", "") for i in range(50)], "a file", "all")


@tool
def double(number: int, times: int = 1) -> str:
    """Double a number."""
    return str(number * 2**times)


class DoubleEnv(ToolEnv):
    """Ends at "done"; its expert calls the tool first."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(tools=ToolRegistry([double]), **kwargs)

    def open_tasks(self) -> ListedTasks[Problem]:
        return tasks()

    def begin(self, task: Problem) -> tuple[str, Any]:
        return "go", None

    def answer(self, text: str) -> Outcome:
        return Outcome("", float(text == "done"), text == "done", success=text == "done")

    def expert_action(self) -> str | None:
        return "done" if len(self._transcript) > 1 else self.format_call("double", {"number": 4})

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        if rng.random() < noise:
            return self.format_call("double", {"number": int(rng.integers(1000))})
        return self.expert_action()


class RoomEnv(TextEnv):
    """Lists what can be done; the last of it ends the episode. It has no expert."""

    def open_tasks(self) -> ListedTasks[Problem]:
        return tasks()

    def begin(self, task: Problem) -> tuple[str, Any]:
        return "a room", None

    def act(self, action: str) -> Outcome:
        return Outcome("a room", terminated=action == "leave")

    def available_actions(self) -> list[str]:
        return ["look", "wait", "say ...", "leave"]


gym.register("Test/Double-v0", DoubleEnv, max_episode_steps=8)
gym.register("Test/Room-v0", RoomEnv, max_episode_steps=8)


def actions(env_id: str, policy: Any, n: int = 20, concurrency: int = 1) -> list[list[str]]:
    options = [{"index": i} for i in range(n)]
    episodes = run_episodes(env_id, policy, n, options=options, concurrency=concurrency, progress=False)
    assert all(e.error is None for e in episodes), next(e.error for e in episodes if e.error)
    return [[step.action for step in episode.steps] for episode in episodes]


@pytest.mark.parametrize(
    ("source", "todo"),
    [("a file", "Generated tasks have one"), ("generated", "An expert is the environment's expert_action(); or play")],
)
def test_a_task_without_an_expert_says_so(source: str, todo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoomEnv, "open_tasks", lambda self: ListedTasks([*tasks()], source, "all"))
    episode = run_episode(RoomEnv(), ExpertPolicy(), options={"index": 3})
    assert episode.stop_reason is StopReason.ERROR
    assert f"RoomEnv has no expert for task 'task/3' (source {source!r}). {todo}" in str(episode.error)


@pytest.mark.parametrize("policy", [ExpertPolicy(noise=0.5, seed=1), RandomPolicy(seed=1)])
def test_actions_depend_on_seed_and_task_alone(policy: Any) -> None:
    alone = actions("Test/Double-v0", policy)
    assert actions("Test/Double-v0", policy, concurrency=8) == alone
    assert len({tuple(a) for a in alone}) > 10  # tasks differ
    other = type(policy)(seed=2) if isinstance(policy, RandomPolicy) else ExpertPolicy(noise=0.5, seed=2)
    assert actions("Test/Double-v0", other) != alone


def test_noise_is_a_share() -> None:
    played = [a for episode in actions("Test/Double-v0", ExpertPolicy(noise=0.3), n=50) for a in episode]
    right = DoubleEnv().format_call("double", {"number": 4})
    wrong = sum(action not in (right, "done") for action in played)
    assert 0.15 < wrong / len(played) < 0.45


def test_random_calls_are_well_formed_and_so_are_some_answers_not() -> None:
    episodes = run_episodes("Test/Double-v0", RandomPolicy(), 30, progress=False)
    infos = [step.info for episode in episodes for step in episode.steps]
    called = [info for info in infos if info["tool_results"]]
    assert 0.5 < len(called) / len(infos) < 0.95
    assert not any(info["invalid_action"] for info in called)


def test_random_commands_are_admissible() -> None:
    played = actions("Test/Room-v0", RandomPolicy())
    assert {action for episode in played for action in episode} == {"look", "wait", "leave"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "minLength": 3, "maxLength": 3},
        {"type": ["string", "null"]},
        {"type": "integer", "minimum": -5, "maximum": -3},
        {"type": "integer", "minimum": 1000},
        {"type": "integer", "maximum": -1000},
        {"type": "number", "minimum": 0.5, "maximum": 0.6},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["x", 3]},
        {"const": [1]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 2},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "minItems": 2, "maxItems": 2},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a"]},
        {},
    ],
)
def test_random_values_fit_their_schema(schema: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        jsonschema.validate(random_value(schema, rng), schema)


def test_a_script_that_is_used_up_names_the_step() -> None:
    episode = run_episode(gym.make("Test/Double-v0"), ScriptedPolicy(["x", "y"]), options={"index": 2})
    assert len(episode.steps) == 2 and episode.error is not None
    assert "the script has 2 actions, but task 'task/2' continues with" in episode.error


def test_a_script_plays_anew_in_every_episode() -> None:
    assert actions("Test/Double-v0", ScriptedPolicy(["x", Response("done")]), n=3) == [["x", "done"]] * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ExpertPolicy(noise=1.5), "noise must be a number from 0 to 1"),
        (lambda: ExpertPolicy(seed=-1), "at least 0, got -1"),
        (lambda: RandomPolicy(seed=-1), "at least 0, got -1"),
        (lambda: ScriptedPolicy("done"), r"write \['done'\]"),
    ],
)
def test_arguments_that_do_not_fit(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_task_id_with_a_lone_surrogate_has_a_generator() -> None:
    assert episode_rng(0, "a\ud800").integers(10) == episode_rng(0, "a\ud800").integers(10)


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        agent_envs.policies.Nobody  # noqa: B018
