"""A policy that plays the actions of the environment's expert."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs import checks
from agent_envs.errors import PolicyError
from agent_envs.messages import Observation
from agent_envs.policies.policy import episode_rng


class ExpertPolicy:
    """Play ``expert_action()``, or ``demo_action(rng, noise)`` with ``noise`` above 0.

    Noisy demonstrations are well-formed but sometimes wrong: they show the format without giving the solution away. The
    noise of an episode depends only on ``seed`` and the task, so that a run does not depend on the concurrency.

    Args:
        noise: Share of actions that are wrong on purpose, from 0 to 1.
        seed: Seed of the noise, at least 0.
    """

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self.noise = checks.number("noise", noise, minimum=0, maximum=1)
        self.seed = checks.integer("seed", seed, minimum=0)

    def start(self, env: gym.Env[Any, str]) -> _ExpertActor:
        return _ExpertActor(self, env)

    def with_seed(self, seed: int) -> ExpertPolicy:
        """Return the policy with another seed."""
        return ExpertPolicy(self.noise, seed)


class _ExpertActor:
    def __init__(self, policy: ExpertPolicy, env: gym.Env[Any, str]) -> None:
        self._policy, self._env = policy, env
        self._rng: np.random.Generator | None = None

    def act(self, observation: Observation, info: dict[str, Any]) -> str:
        if self._policy.noise > 0.0:
            if self._rng is None:
                self._rng = episode_rng(self._policy.seed, info["task_id"])
            action = self._env.get_wrapper_attr("demo_action")(self._rng, self._policy.noise)
        else:
            action = self._env.get_wrapper_attr("expert_action")()
        if action is None:
            source, todo = info.get("source", ""), 'Generated tasks have one: data="generated".'
            if source == "generated":
                todo = "An expert is the environment's expert_action(); or play another policy."
            raise PolicyError(
                f"{type(self._env.unwrapped).__name__} has no expert for task {info['task_id']!r} "
                f"(source {source!r}). {todo}"
            )
        return action
