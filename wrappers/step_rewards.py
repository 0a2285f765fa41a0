"""Rewards and penalties per step beside the task's own: for invalid actions, for tool calls, for long episodes."""

from __future__ import annotations

from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.registration import offered_tools
from agent_envs.wrapping.order import Place, PlacedWrapper


class _StepReward(PlacedWrapper):
    """Add ``_part(info)`` to the reward of every step, and to ``info["reward_components"]`` under ``component``."""

    place = Place.REWARD
    component: ClassVar[str]

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        part = self._part(info)
        components = dict(info.get("reward_components", {}))
        components[self.component] = components.get(self.component, 0.0) + part
        info["reward_components"] = components
        return observation, float(reward) + part, terminated, truncated, info

    def _part(self, info: dict[str, Any]) -> float:
        raise NotImplementedError


class InvalidActionPenalty(_StepReward):
    """Subtract ``penalty`` from the reward of each step whose action is marked with ``info["invalid_action"]``.

    The part is ``info["reward_components"]["invalid_action"]``. GiGPO's reference code uses 0.1 (arXiv 2505.10978).

    Args:
        penalty: The cost of an invalid action, at least 0.

    >>> import agent_envs
    >>> env = InvalidActionPenalty(gym.make("AgentR1/GSM8KTool-v0"), penalty=0.1)
    >>> _ = env.reset(seed=0)
    >>> env.step("<tool_call>oops</tool_call>")[1]
    -0.1
    """

    component = "invalid_action"
    recorded_arguments = ("penalty",)

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.1) -> None:
        self.penalty = checks.number("penalty", penalty, minimum=0)
        super().__init__(env, penalty=penalty)

    def _part(self, info: dict[str, Any]) -> float:
        return -self.penalty if info["invalid_action"] else 0.0


class StepPenalty(_StepReward):
    """Subtract ``penalty`` from the reward of every step, so that shorter episodes earn more.

    The part is ``info["reward_components"]["step"]``.

    Args:
        penalty: The cost of a step, at least 0.

    >>> import agent_envs
    >>> env = StepPenalty(gym.make("AgentR1/GSM8KTool-v0"), penalty=0.01)
    >>> _ = env.reset(seed=0)
    >>> env.step("")[1]
    -0.01
    """

    component = "step"
    recorded_arguments = ("penalty",)

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.01) -> None:
        self.penalty = checks.number("penalty", penalty, minimum=0)
        super().__init__(env, penalty=penalty)

    def _part(self, info: dict[str, Any]) -> float:
        return -self.penalty


class ToolCallReward(_StepReward):
    """Add ``success`` for each tool call of a step that returns a result, and ``error`` for each that fails.

    The part is ``info["reward_components"]["tool_call"]``. A reward for calling is easily farmed: keep it far below the
    task's reward, and let ``limit`` end it.

    Args:
        env: An environment with tools.
        success: Added for a call that returns a result.
        error: Added for a call that fails; at most 0, so that failing never pays.
        limit: Number of calls per episode that are rewarded.

    >>> import agent_envs
    >>> env = ToolCallReward(gym.make("AgentR1/GSM8KTool-v0"), success=0.05)
    >>> _ = env.reset(seed=0)
    >>> env.step(env.unwrapped.format_call("calculator", {"expression": "1+1"}))[1]
    0.05
    """

    component = "tool_call"
    recorded_arguments = ("success", "error", "limit")

    def __init__(self, env: gym.Env[str, str], success: float = 0.05, error: float = 0.0, limit: int = 10) -> None:
        self.success = checks.number("success", success)
        self.error = checks.number("error", error, maximum=0)
        self.limit = checks.integer("limit", limit)
        super().__init__(env, success=success, error=error, limit=limit)
        if not offered_tools(env):
            raise ConfigError("ToolCallReward is for environments with tools; this one has none")
        self._rewarded = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._rewarded = 0
        return self.env.reset(seed=seed, options=options)

    def _part(self, info: dict[str, Any]) -> float:
        part = 0.0
        for result in info["tool_results"]:
            if result["error"]:
                part += self.error
            elif self._rewarded < self.limit:
                self._rewarded += 1
                part += self.success
        return part
