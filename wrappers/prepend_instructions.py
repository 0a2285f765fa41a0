"""Shows the instructions in the first observation, for loops that pass plain strings to a model."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.pictures.picture import around
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown


class PrependInstructions(ObservationWrapper):
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

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        if action is None or info.get("rebuilt", False):
            parts = [self.env.get_wrapper_attr(name) for name in ("instructions", "tool_instructions")]
            observation = around("".join(part + self.separator for part in parts if part), observation, "")
        return observation, info
