"""Show how to act within the first observation, for loops that pass bare strings to a model."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError
from agent_envs.wrapping.order import check_order

__all__ = ["PrependInstructions"]


class PrependInstructions(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Puts the instructions, and the tools and how to call them, before the first observation of each episode.

    Where every observation is all there is to know (``RebuildPrompt``), before each.

    Policies that build a prompt out of ``instructions`` and ``tools`` then find them empty: nothing is said twice.

    Args:
        env: The environment.
        separator: What stands between the instructions and the observation.

    >>> import agent_envs
    >>> env = PrependInstructions(gym.make("AgentR1/GSM8K-v0"))
    >>> observation, info = env.reset(seed=0)
    >>> observation.startswith(env.unwrapped.instructions), env.instructions
    (True, '')
    """

    instructions = ""
    """Empty: they are part of the observation."""
    tools: tuple[()] = ()
    """Empty: they are part of the observation."""

    def __init__(self, env: gym.Env[str, str], separator: str = "\n\n") -> None:
        if not isinstance(separator, str):
            raise ConfigError(f"PrependInstructions: separator must be a text, got {separator!r}")
        check_order(env, "PrependInstructions")
        RecordConstructorArgs.__init__(self, separator=separator)
        gym.Wrapper.__init__(self, env)
        self.separator = separator

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Reset, with the instructions before the observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_instructions(observation), info

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step; an observation that is all there is to know (``info["rebuilt"]``) has the instructions too."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info.get("rebuilt", False):
            observation = self._with_instructions(observation)
        return observation, reward, terminated, truncated, info

    def _with_instructions(self, observation: str) -> str:
        parts = [self.env.get_wrapper_attr(name) for name in ("instructions", "tool_instructions")]
        return self.separator.join([*filter(None, parts), observation])
