"""Groups of episodes that grow from inner states of one: the same state, played on several times.

A group of independent episodes meets only at its first state, so what an action in the middle was worth is compared
with nothing. Here an episode is played, and then again with a model that answers as it did up to some call and draws
from there on. Every episode is recorded whole, with the steps before the state that it grew from, so estimators,
exports and pages need to know nothing of it; with the layout ``tree`` the shared steps are trained at the cost of one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import checks
from agent_envs.agents.loading import Agent
from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError, PolicyError
from agent_envs.messages import Message, ToolSpec
from agent_envs.policies.model import ModelActor, ModelPolicy
from agent_envs.policies.policy import Response
from agent_envs.rollout.one import run_episode


def branch(
    env: gym.Env[Any, str], policy: ModelPolicy, size: int, *, at: Sequence[int] | None = None,
    seed: int | None = None, options: Mapping[str, Any] | None = None, agent: str | Agent | None = None,
) -> list[Episode]:  # fmt: skip
    """Play an episode, and grow a group of ``size`` episodes from its states.

    Args:
        env: The environment, which answers the same actions in the same way; it stays open and can be used again.
        policy: A policy of a model: ``TransformersPolicy``, ``VLLMPolicy``, ``OpenAIPolicy``.
        size: Episodes of the group, the first one included.
        at: Calls of the model in the first episode from which the others begin to differ, in turn; those that it does
            not have are left out, and if it has none of them, it is alone. None draws one for each, among all but the
            first if there are others.
        seed: Seed of the reset and of the draw, or None.
        options: Options of the reset, for example ``{"index": 3}``.
        agent: As in `run_episode`.

    Returns:
        The episodes, with one ``group_id``: that of the task. The first is the one that the others grew from, and the
        only one if the model was not asked. An exception is not raised, as in ``run_episode``; one episode ends with an
        error if the agent or the environment does not do again what it did.

    Raises:
        ConfigError: ``policy`` asks no model.
    """
    checks.integer("size", size, minimum=1)
    for call in at or ():
        checks.integer("at", call, minimum=0)
    if not isinstance(policy, ModelPolicy):
        raise ConfigError(f"{type(policy).__name__} cannot branch: it asks no model")
    rng = np.random.default_rng(seed)
    reset: dict[str, Any] = {"seed": int(rng.integers(2**31)) if seed is None else seed, "options": options}
    trunk = _Recalling(policy)
    first = run_episode(env, trunk, agent=agent, **reset)
    taken = len(trunk.answers)
    if not taken or size == 1:
        return [first]
    if at is None:
        begins = [int(rng.integers(min(1, taken - 1), taken)) for _ in range(size - 1)]
    else:
        inner = [call for call in at if call < taken]
        begins = [inner[i % len(inner)] for i in range(size - 1)] if inner else []
    out = [first]
    for number, begin in enumerate(begins, start=1):
        again = _Recalling(policy, trunk.model.fork(number), trunk.answers[:begin])
        out.append(dataclasses.replace(run_episode(env, again, agent=agent, **reset), group_id=first.group_id))
    return out


class _Recalling:
    """A policy of one episode and its model, which first answers as it did before."""

    def __init__(self, policy: ModelPolicy, model: Any = None, known: Sequence[tuple[Any, Response]] = ()) -> None:
        self.policy, self.model, self._known = policy, model, known
        self.answers: list[tuple[Any, Response]] = []
        """Each prompt with its tools, and the response to it."""

    def start(self, env: gym.Env[Any, str]) -> ModelActor:
        return ModelActor(self.open(env), env)

    def open(self, env: gym.Env[Any, str]) -> _Recalling:
        if self.model is None:
            self.model = self.policy.open(env)
        return self

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        return self.model.count(messages, tools)

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, task_id: str = "", limit: int = 0,
        ordered: bool = True,
    ) -> Response:  # fmt: skip
        number, prompt = len(self.answers), (list(messages), list(tools))
        if number >= len(self._known):
            response = await self.model.ask(messages, tools, task_id=task_id, limit=limit, ordered=ordered)
        else:
            before, response = self._known[number]
            if before != prompt:
                raise PolicyError(
                    f"step {number} was asked another prompt than recorded: the agent or its environment is not "
                    "deterministic, so it cannot branch"
                )
        self.answers.append((prompt, response))
        return response
