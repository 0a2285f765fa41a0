"""The chat history of an episode: the one place that decides whether a prompt grows or starts again.

An observation is either new text, which follows what was shown before, or a list of messages: the whole next prompt.
Every actor keeps its history here, as messages or as tokens, so that all of them show the same.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent_envs.messages import (
    Message,
    Observation,
    observation_messages,
    pictures_of,
)
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.builder import PromptBuilder, with_instructions

__all__ = ["Conversation", "TokenConversation", "Turn"]


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

    def fork(self) -> Conversation:
        """Return an independent conversation with the same history."""
        return copy.copy(self)  # the list of messages is replaced, never changed


class TokenConversation:
    """The prompts of one episode as tokens; while the conversation grows, sampled text is never tokenized again.

    Args:
        builder: Renders messages with the model's chat template.
        instructions: The system message, "" for none.
    """

    def __init__(self, builder: PromptBuilder, instructions: str = "") -> None:
        self.builder = builder
        self.conversation = Conversation(instructions)
        self.prompt_ids: list[int] = []
        """The prompt of the last observation, shape [prompt tokens]."""
        self.pictures: tuple[Picture, ...] = ()
        """The pictures of that prompt, in the order of their tokens."""
        self.response_ids: list[int] = []
        """The response to it as sampled, shape [response tokens]."""

    def observe(self, observation: Observation, info: Mapping[str, Any]) -> list[int]:
        """Return the token ids of the prompt with this observation, shape [prompt tokens].

        Raises:
            PromptError: The chat template rejects the messages.
        """
        new, fresh = self.conversation.observe(observation, info)
        self.prompt_ids = (
            self.builder.start(new) if fresh else self.builder.extend(self.prompt_ids, self.response_ids, new)
        )
        if self.builder.pictures is not None:
            self.pictures = (*(() if fresh else self.pictures), *pictures_of(new))
        self.response_ids = []
        return self.prompt_ids

    def respond(self, text: str, response_ids: Sequence[int]) -> None:
        """Add a response: its tokens, and its text, by which a list observation is recognised as an extension."""
        self.conversation.respond(text)
        self.response_ids = list(response_ids)

    def fork(self) -> TokenConversation:
        """Return an independent conversation with the same history."""
        other = copy.copy(self)
        other.conversation = self.conversation.fork()
        return other
