"""The chat history of an episode: the one place that decides whether a prompt grows or starts again.

An observation is either new text, which follows what was shown before, or a list of messages: the whole next prompt.
Every actor keeps its history here, so that all of them show the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from agent_envs.messages import Message, Observation, observation_messages
from agent_envs.prompts.builder import with_instructions


class Turn(NamedTuple):
    """What an observation adds to a conversation."""

    new: list[Message]
    """The messages that were not shown before; all of them if `fresh`."""
    fresh: bool
    """Whether the conversation starts again with them."""


class Conversation:
    """The messages of one episode.

    Args:
        instructions: The system message, "" for none. They are added to the system message of a list observation if
            it lacks them, as for an actor that describes the tools in words.

    >>> conversation = Conversation("Answer.")
    >>> conversation.observe("2 + 2?", {}).fresh
    True
    >>> conversation.respond("3")
    >>> conversation.observe("No.", {})
    Turn(new=[{'role': 'user', 'content': 'No.'}], fresh=False)
    >>> [message["role"] for message in conversation.messages]
    ['system', 'user', 'assistant', 'user']
    """

    def __init__(self, instructions: str = "") -> None:
        self.instructions = instructions
        self.messages: list[Message] = []
        """The next prompt: all messages that the model sees."""

    def observe(self, observation: Observation, info: Mapping[str, Any]) -> Turn:
        """Add an observation.

        New text follows what was shown, unless `info["rebuilt"]` marks it as a whole prompt. A list extends what was
        shown if it starts with exactly that.
        """
        shown = self.messages
        if isinstance(observation, list):
            whole = with_instructions(observation, self.instructions)
            grows = bool(shown) and len(whole) > len(shown) and whole[: len(shown)] == shown
            self.messages = whole
            return Turn(whole[len(shown) :] if grows else list(whole), not grows)
        new = observation_messages(observation, info)
        if shown and not info.get("rebuilt", False):
            self.messages = shown + new
            return Turn(new, False)
        if self.instructions:
            new = [{"role": "system", "content": self.instructions}, *new]
        self.messages = new
        return Turn(list(new), True)

    def respond(self, text: str) -> None:
        """Add the model's response."""
        self.messages = [*self.messages, {"role": "assistant", "content": text}]
