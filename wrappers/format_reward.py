"""A small reward for acting in the form the environment reads, whatever the content."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError

__all__ = ["FormatReward"]


class FormatReward(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Adds ``weight`` times the share of well-formed actions to the reward of an episode's last step.

    An action is well-formed where the environment did not mark it with ``info["invalid_action"]``. An episode that a
    step limit ends gets nothing: it never came to an end of its own. The part is
    ``info["reward_components"]["format"]``.

    Args:
        env: The environment, its step limit included.
        weight: The greatest reward an episode can get, at least 0. Keep it small beside the task's reward.

    >>> import agent_envs
    >>> env = FormatReward(gym.make("AgentR1/GSM8K-v0"), weight=0.1)
    >>> _ = env.reset(seed=0)
    >>> env.step("#### -1")[1]
    0.1
    """

    def __init__(self, env: gym.Env[str, str], weight: float = 0.1) -> None:
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
            raise ConfigError(f"FormatReward: weight must be a number of at least 0, got {weight!r}")
        RecordConstructorArgs.__init__(self, weight=weight)
        gym.Wrapper.__init__(self, env)
        self.weight = float(weight)
        self._steps = 0
        self._well_formed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset, and count anew."""
        self._steps = self._well_formed = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and add the reward where the task ends."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._well_formed += not info["invalid_action"]
        if terminated:
            bonus = self.weight * self._well_formed / self._steps
            info["reward_components"] = {**info["reward_components"], "format": bonus}
            reward = float(reward) + bonus
        return observation, reward, terminated, truncated, info
