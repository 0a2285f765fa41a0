"""Rewards and penalties per step, beside the task's own: for bad actions, for calls, for taking long."""

from __future__ import annotations

import math
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError
from agent_envs.layers import offered_tools

__all__ = ["InvalidActionPenalty", "StepPenalty", "ToolCallReward"]


class _StepReward(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Adds ``_part(info)`` to every step's reward, and to ``info["reward_components"]`` under ``component``."""

    component: ClassVar[str]

    def __init__(self, env: gym.Env[str, str], **arguments: Any) -> None:
        for name, value in arguments.items():
            if name == "tool":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError(f"{type(self).__name__}: {name} must be a finite number, got {value!r}")
        RecordConstructorArgs.__init__(self, **arguments)
        gym.Wrapper.__init__(self, env)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and add the part."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        part = self._part(info)
        components = dict(info.get("reward_components", {}))
        components[self.component] = components.get(self.component, 0.0) + part
        info["reward_components"] = components
        return observation, float(reward) + part, terminated, truncated, info

    def _part(self, info: dict[str, Any]) -> float:
        raise NotImplementedError


class InvalidActionPenalty(_StepReward):
    """Takes ``penalty`` off the reward of a step whose action the environment marked with ``info["invalid_action"]``.

    The part is ``info["reward_components"]["invalid_action"]``. GiGPO's reference code takes 0.1 (arXiv 2505.10978).

    Args:
        env: The environment.
        penalty: What a bad action costs, at least 0.

    >>> import agent_envs
    >>> env = InvalidActionPenalty(gym.make("AgentR1/GSM8KTool-v0"), penalty=0.1)
    >>> _ = env.reset(seed=0)
    >>> env.step("<tool_call>oops</tool_call>")[1]
    -0.1
    """

    component = "invalid_action"

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.1) -> None:
        super().__init__(env, penalty=penalty)
        if penalty < 0:
            raise ConfigError(f"InvalidActionPenalty: penalty must be at least 0, got {penalty}")
        self.penalty = float(penalty)

    def _part(self, info: dict[str, Any]) -> float:
        return -self.penalty if info["invalid_action"] else 0.0


class StepPenalty(_StepReward):
    """Takes ``penalty`` off the reward of every step, so that shorter episodes are worth more.

    The part is ``info["reward_components"]["step"]``.

    Args:
        env: The environment.
        penalty: What a step costs, at least 0.

    >>> import agent_envs
    >>> env = StepPenalty(gym.make("AgentR1/GSM8KTool-v0"), penalty=0.01)
    >>> _ = env.reset(seed=0)
    >>> env.step("")[1]
    -0.01
    """

    component = "step"

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.01) -> None:
        super().__init__(env, penalty=penalty)
        if penalty < 0:
            raise ConfigError(f"StepPenalty: penalty must be at least 0, got {penalty}")
        self.penalty = float(penalty)

    def _part(self, info: dict[str, Any]) -> float:
        return -self.penalty


class ToolCallReward(_StepReward):
    """Adds ``success`` for each tool call of a step that gave a result, and ``error`` for each that failed.

    The part is ``info["reward_components"]["tool_call"]``. A reward for calling is easily farmed: keep it far below the
    task's, and let ``limit`` end it.

    Args:
        env: An environment with tools.
        success: Added for a call that gave a result.
        error: Added for a call that failed; at most 0 so that failing never pays.
        tool: Count calls of this tool alone; None for all.
        limit: Calls of an episode that are rewarded.

    >>> import agent_envs
    >>> env = ToolCallReward(gym.make("AgentR1/GSM8KTool-v0"), success=0.05)
    >>> _ = env.reset(seed=0)
    >>> env.step(env.unwrapped.format_call("calculator", {"expression": "1+1"}))[1]
    0.05
    """

    component = "tool_call"

    def __init__(
        self,
        env: gym.Env[str, str],
        success: float = 0.05,
        error: float = 0.0,
        tool: str | None = None,
        limit: int = 10,
    ) -> None:
        super().__init__(env, success=success, error=error, tool=tool, limit=limit)
        if error > 0:
            raise ConfigError(f"ToolCallReward: error must be at most 0: a failed call must not pay, got {error}")
        names = [spec["function"]["name"] for spec in offered_tools(env)]
        if not names or (tool is not None and tool not in names):
            has = f"has the tools {', '.join(names)}" if names else "has no tools"
            raise ConfigError(f"ToolCallReward: the environment {has}" + (f", not {tool!r}" if tool else ""))
        self.success, self.error, self.tool, self.limit = float(success), float(error), tool, limit
        self._rewarded = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset, and count anew."""
        self._rewarded = 0
        return self.env.reset(seed=seed, options=options)

    def _part(self, info: dict[str, Any]) -> float:
        part = 0.0
        for result in info["tool_results"]:
            if self.tool is not None and result["name"] != self.tool:
                continue
            if result["error"]:
                part += self.error
            elif self._rewarded < self.limit:
                self._rewarded += 1
                part += self.success
        return part
