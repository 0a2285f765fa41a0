"""Removes reasoning from actions before the environment reads them, for models that think before they act."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from agent_envs.parsers.reasoning import strip_reasoning
from agent_envs.wrappers.chat_messages import action_parser
from agent_envs.wrapping.order import ObservationWrapper, Place


class StripReasoning(ObservationWrapper):
    """Remove reasoning from an action before the environment reads it: ``<think>``, ``[THINK]``, Harmony's analysis.

    Environments with tools do this themselves, in their parsers. Those whose action is the whole text need this wrapper
    with a model that thinks. Later prompts show the action as it was, or without reasoning under
    ``ChatMessages(reasoning="strip")``.

    >>> import agent_envs
    >>> env = StripReasoning(gym.make("AgentR1/ALFWorld-v0", size=1))
    >>> _ = env.reset(seed=0)
    >>> env.step("<think>What do I have?</think>inventory")[0]
    'You are not carrying anything.'
    """

    place = Place.REASONING
    carries_pictures = True
    recorded_arguments = ()

    def __init__(self, env: gym.Env[Any, str]) -> None:
        super().__init__(env)

    def _sent(self, action: str) -> str:
        return strip_reasoning(action, action_parser(self.env)) if isinstance(action, str) else action
