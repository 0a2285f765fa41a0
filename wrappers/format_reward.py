"""A small reward for acting in the form that the environment reads, whatever the content."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.wrapping.order import Place, PlacedWrapper


class FormatReward(PlacedWrapper):
    """Add ``weight`` times the share of well-formed actions to the reward of an episode's last step.

    An action is well-formed unless the environment marks it with ``info["invalid_action"]``. An episode that a step
    limit cuts off gets nothing. The part is ``info["reward_components"]["format"]``.

    Args:
        env: The environment, including its step limit.
        weight: The largest reward of an episode, at least 0. Keep it small beside the task's reward.

    >>> import agent_envs
    >>> env = FormatReward(gym.make("AgentR1/GSM8K-v0"), weight=0.1)
    >>> _ = env.reset(seed=0)
    >>> env.step("#### -1")[1]
    0.1
    """

    place = Place.REWARD
    recorded_arguments = ("weight",)

    def __init__(self, env: gym.Env[str, str], weight: float = 0.1) -> None:
        self.weight = checks.number("weight", weight, minimum=0)
        super().__init__(env, weight=weight)
        self._steps = self._well_formed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._steps = self._well_formed = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._well_formed += not info["invalid_action"]
        if terminated:
            bonus = self.weight * self._well_formed / self._steps
            info["reward_components"] = {**info["reward_components"], "format": bonus}
            reward = float(reward) + bonus
        return observation, reward, terminated, truncated, info
