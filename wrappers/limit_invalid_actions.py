"""Ends an episode whose policy writes one invalid action after the other."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.episodes.record import GIVEN_UP
from agent_envs.wrapping.order import Place, PlacedWrapper


class LimitInvalidActions(PlacedWrapper):
    """Truncate an episode after ``limit`` actions in a row that are marked with ``info["invalid_action"]``.

    ``info["given_up"]`` is True at that step, and the episode's record has ``StopReason.INVALID_ACTIONS``: it is the
    policy's doing, so it is trained on, unlike an episode that broke.

    Args:
        limit: Invalid actions in a row, at least 1.

    >>> import agent_envs
    >>> env = LimitInvalidActions(gym.make("AgentR1/GSM8KTool-v0"), limit=2)
    >>> _ = env.reset(seed=0)
    >>> [env.step("<tool_call>oops</tool_call>")[3] for _ in range(2)]
    [False, True]
    """

    place = Place.REWARD
    recorded_arguments = ("limit",)

    def __init__(self, env: gym.Env[str, str], limit: int = 5) -> None:
        self.limit = checks.integer("limit", limit, minimum=1)
        super().__init__(env, limit=limit)
        self._in_a_row = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._in_a_row = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._in_a_row = self._in_a_row + 1 if info["invalid_action"] else 0
        info[GIVEN_UP] = self._in_a_row >= self.limit and not terminated and not truncated
        return observation, reward, terminated, truncated or info[GIVEN_UP], info
