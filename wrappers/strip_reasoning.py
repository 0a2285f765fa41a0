"""The environment reads a text without its reasoning, for models that think before they act."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.parsers.reasoning import strip_reasoning
from agent_envs.wrappers.chat_messages import action_parser
from agent_envs.wrapping.order import check_order

__all__ = ["StripReasoning"]


class StripReasoning(gym.Wrapper[str, str, str, str], RecordConstructorArgs):
    """Takes the reasoning off a text before the environment reads it: ``<think>``, ``[THINK]``, Harmony's analysis.

    Environments with tools skip reasoning themselves, as their parsers do; those whose action is the whole text, such
    as ALFWorld and WebShop, need this with a model that thinks. What later prompts show is the text as it was, or what
    ``ChatMessages(reasoning="strip")`` leaves of it.

    Args:
        env: An environment over text.

    >>> import agent_envs
    >>> env = StripReasoning(gym.make("AgentR1/ALFWorld-v0", size=1))
    >>> _ = env.reset(seed=0)
    >>> env.step("<think>What do I have?</think>inventory")[0]
    'You are not carrying anything.'
    """

    def __init__(self, env: gym.Env[str, str]) -> None:
        check_order(env, "StripReasoning")
        RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step with what is left of the text."""
        if isinstance(action, str):
            action = strip_reasoning(action, action_parser(self.env))
        return self.env.step(action)
