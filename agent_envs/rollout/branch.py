"""Groups of episodes that grow from inner states of one: the same state, played on several times.

A group of independent episodes meets only at its first state, so what an action in the middle was worth is compared
with nothing. Here an episode is played, and from some of its states the environment and the conversation are restored
and played on. Every episode is recorded whole, with the steps before the state that it grew from, so estimators,
exports and pages need to know nothing of it; with the layout ``tree`` the shared steps are trained at the cost of one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import branching, checks
from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError
from agent_envs.messages import Observation
from agent_envs.policies.best_of import ForkingActor
from agent_envs.policies.policy import Actor, Policy, check_policy
from agent_envs.rollout.one import run_episode

__all__ = ["branch"]

TextEnvLike = gym.Env[Any, str]


def branch(
    env: TextEnvLike, policy: Policy, size: int, *, at: Sequence[int] | None = None, seed: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[Episode]:  # fmt: skip
    """Play an episode, and grow a group of ``size`` episodes from its states.

    Args:
        env: The environment; it stays open and can be used again.
        policy: Its actors must be able to fork: those of models (``TransformersPolicy``, ``VLLMPolicy``,
            ``OpenAIPolicy``) are.
        size: Episodes of the group, the first one included.
        at: Steps of the first episode before which the others begin to differ, in turn; steps that it does not have
            are left out. None draws one for each, among all steps but the first if there are others.
        seed: Seed of the reset and of the draw, or None.
        options: Options of the reset, for example ``{"index": 3}``.

    Returns:
        The episodes, with one ``group_id``: that of the task. The first is the one that the others grew from, and the
        only one if it has no step. An exception is not raised, as in ``run_episode``.

    Raises:
        ConfigError: ``policy`` is none or its actors cannot fork, ``at`` has no step of the episode, or the environment
            cannot be restored.
    """
    checks.integer("size", size, minimum=1)
    for step in at or ():
        checks.integer("at", step, minimum=0)
    trunk = _Trunk(check_policy(policy), None if at is None else frozenset(at))
    first = run_episode(env, trunk, seed=seed, options=options)
    if trunk.error is not None:
        raise trunk.error
    taken = len(first.steps)
    if not taken or size == 1:
        return [first]
    if at is None:
        rng = np.random.default_rng(seed)
        begins = [int(rng.integers(min(1, taken - 1), taken)) for _ in range(size - 1)]
    else:
        inner = [step for step in at if step < taken]
        if not inner:
            raise ConfigError(f"at must have a step of the episode, which took {taken}, got {list(at)}")
        begins = [inner[i % len(inner)] for i in range(size - 1)]
    out = [first]
    for number, begin in enumerate(begins, start=1):
        point = trunk.points[begin]
        rest = run_episode(_Resumed(env, point), _Forked(point.actor.fork(number)), seed=seed, options=options)
        out.append(dataclasses.replace(
            rest, env_id=first.env_id, group_id=first.group_id, index=first.index, reset_info=first.reset_info,
            steps=(*first.steps[:begin], *rest.steps),
        ))  # fmt: skip
    return out


@dataclass(frozen=True)
class _Point:
    """What is needed to play on from a state."""

    env: branching.EnvSnapshot
    observation: Observation
    info: dict[str, Any]
    actor: ForkingActor


class _Trunk:
    """The policy of the first episode, and its actor, which keeps the states before its steps."""

    def __init__(self, policy: Policy, at: frozenset[int] | None) -> None:
        self._policy, self._at, self._step = policy, at, 0
        self.points: dict[int, _Point] = {}
        self.error: ConfigError | None = None
        """Why a state could not be kept; an error of an actor would only end the episode."""

    def start(self, env: TextEnvLike) -> Actor:
        self._env = env
        self._actor: Any = self._policy.start(env)
        return self

    def act(self, observation: Observation, info: dict[str, Any]) -> Any:
        if self._at is None or self._step in self._at:
            try:
                if not callable(getattr(self._actor, "fork", None)):
                    raise ConfigError(
                        f"{type(self._policy).__name__} cannot branch: its actors have no fork(number); use a policy "
                        "of a model"
                    )
                here = branching.snapshot(self._env)
            except ConfigError as e:
                self.error = e
                raise
            self.points[self._step] = _Point(here, observation, dict(info), self._actor.fork(0))
        self._step += 1
        return self._actor.act(observation, info)


@dataclass(frozen=True)
class _Forked:
    """A policy whose one actor is there already."""

    actor: ForkingActor

    def start(self, env: TextEnvLike) -> ForkingActor:
        return self.actor


class _Resumed(gym.Wrapper[Any, str, Any, str]):
    """An environment whose reset returns to a state."""

    def __init__(self, env: TextEnvLike, point: _Point) -> None:
        super().__init__(env)
        self._point = point

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        branching.restore(self.env, self._point.env)
        return self._point.observation, dict(self._point.info)
