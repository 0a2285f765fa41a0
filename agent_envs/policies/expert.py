"""A policy that asks the environment's own solver."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.errors import ConfigError, PolicyError
from agent_envs.messages import Observation
from agent_envs.policies.policy import episode_rng

__all__ = ["ExpertPolicy"]


class ExpertPolicy:
    """Plays ``expert_action()``, or ``demo_action(rng, noise)`` where ``noise`` is above 0.

    They are the environment's own, or those of a wrapper that wants actions in another form.

    Noisy demonstrations are well-formed but sometimes wrong: they show the format without giving the task
    away. The noise of an episode depends on ``seed`` and the task alone, so a run is the same whatever the
    concurrency.

    Args:
        noise: share of actions that are wrong on purpose, in [0, 1].
        seed: seed of the noise, at least 0.

    Raises:
        ConfigError: noise or seed out of range.
    """

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ConfigError(f"noise is a share of actions in [0, 1], got {noise!r}.")
        if seed < 0:
            raise ConfigError(f"seed must be at least 0, got {seed!r}.")
        self.noise = noise
        self.seed = seed

    def start(self, env: gym.Env[Any, str]) -> _ExpertActor:
        return _ExpertActor(env, self.noise, self.seed)

    def with_seed(self, seed: int) -> ExpertPolicy:
        """The policy with another seed."""
        return ExpertPolicy(self.noise, seed)


class _ExpertActor:
    def __init__(self, env: gym.Env[Any, str], noise: float, seed: int) -> None:
        self._env = env
        self._noise = noise
        self._seed = seed
        self._rng: np.random.Generator | None = None

    def act(self, observation: Observation, info: dict[str, Any]) -> str:
        if self._noise > 0.0:
            if self._rng is None:
                self._rng = episode_rng(self._seed, info["task_id"])
            action = self._env.get_wrapper_attr("demo_action")(self._rng, self._noise)
        else:
            action = self._env.get_wrapper_attr("expert_action")()
        if action is None:
            raise PolicyError(
                f"{type(self._env.unwrapped).__name__} has no expert for task {info['task_id']!r} "
                f'(source {info["source"]!r}). Generated tasks have one: data="generated".'
            )
        return action
