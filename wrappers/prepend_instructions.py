"""Shows the instructions in the first observation, for loops that pass plain strings to a model."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.pictures.picture import ImageObservation, around
from agent_envs.wrapping.order import Place, PlacedWrapper


class PrependInstructions(PlacedWrapper):
    """Put the instructions, and the tools with the way to call them, before the first observation of each episode.

    Where every observation is a whole prompt (``RebuildPrompt``), they go before each. Policies that build a prompt
    from ``instructions`` and ``tools`` find them empty, so that nothing is shown twice.

    Args:
        separator: What stands between the instructions and the observation.

    >>> import agent_envs
    >>> env = PrependInstructions(gym.make("AgentR1/GSM8K-v0"))
    >>> observation, info = env.reset(seed=0)
    >>> observation.startswith(env.unwrapped.instructions), env.instructions
    (True, '')
    """

    place = Place.INSTRUCTIONS
    carries_pictures = True
    recorded_arguments = ("separator",)
    instructions = ""
    """Empty: the observation has them."""
    tools: tuple[()] = ()
    """Empty: the observation has them."""

    def __init__(self, env: gym.Env[Any, str], separator: str = "\n\n") -> None:
        self.separator = checks.string("separator", separator)
        super().__init__(env, separator=separator)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_instructions(observation), info

    def step(self, action: str) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info.get("rebuilt", False):
            observation = self._with_instructions(observation)
        return observation, reward, terminated, truncated, info

    def _with_instructions(self, observation: str | ImageObservation) -> Any:
        parts = [self.env.get_wrapper_attr(name) for name in ("instructions", "tool_instructions")]
        return around("".join(part + self.separator for part in parts if part), observation, "")
