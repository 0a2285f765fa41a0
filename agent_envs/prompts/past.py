"""The past of an episode: which recorded conversation a prompt continues, so that sampled text keeps its tokens.

Agents re-send their history with every request, open side conversations and start over. So a prompt is not told which
conversation it belongs to; it is found out: the longest recorded one that begins the new messages is continued.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Self, TypeVar

from agent_envs.messages import Message, ToolSpec, content_parts, content_text, pictures_of
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.builder import PromptBuilder

T = TypeVar("T")


@dataclass
class Past(Generic[T]):
    """What is known of each reply of an episode, found again by the conversation that it ends.

    Messages are the same if their roles and contents are; white space around a reply does not count, since clients
    strip it.

    >>> past = Past[int]()
    >>> asked = [{"role": "user", "content": "2 + 2?"}]
    >>> past.add(past.digests(asked), "4", 7)
    >>> longer = [*asked, {"role": "assistant", "content": "4 "}, {"role": "user", "content": "Sure?"}]
    >>> past.longest(longer, past.digests(longer))
    (2, 7)
    """

    latest_only: bool = False
    """Whether only the latest reply can be continued, as in a loop with one conversation."""
    _replies: dict[tuple[bytes, str | None], T] = field(default_factory=dict)
    # Notes by the digest of the conversation up to and with a reply, each under its exact text and under None.

    def digests(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[bytes]:
        """Return a digest of the tools and the messages up to and with each one."""
        digest = _digest(b"", [json.dumps(tools, sort_keys=True)] if tools else [])
        return [digest := _digest(digest, _canonical(message)) for message in messages]

    def longest(self, messages: Sequence[Message], digests: Sequence[bytes]) -> tuple[int, T | None]:
        """Return how many messages the longest recorded conversation has that begins these, and its last reply's note.

        It leaves at least one message that is new; (0, None) if there is none.
        """
        for end in range(len(messages) - 1, 0, -1):
            if (noted := self.reply(messages[end - 1], digests[end - 1])) is not None:
                return end, noted
        return 0, None

    def reply(self, message: Message, digest: bytes) -> T | None:
        """Return what was noted of a message of the assistant, the one with its very text if several are alike."""
        if message["role"] != "assistant":
            return None
        exact = self._replies.get((digest, content_text(message["content"])))
        return self._replies.get((digest, None)) if exact is None else exact

    def known(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> bool:
        """Return whether the last message is a recorded reply to those before it."""
        return self.reply(messages[-1], self.digests(messages, tools)[-1]) is not None

    def add(self, digests: Sequence[bytes], text: str, note: T) -> None:
        """Note a reply to a prompt, of which `digests` are those of the messages."""
        if self.latest_only:
            self._replies.clear()
        digest = _digest(digests[-1], _canonical({"role": "assistant", "content": text}))
        self._replies[digest, None] = self._replies[digest, text] = note

    def copy(self) -> Self:
        """Return an independent past with the same replies."""
        return type(self)(self.latest_only, dict(self._replies))


class TokenPrompt(NamedTuple):
    """A prompt as the model gets it."""

    ids: list[int]
    """Tokens, shape [prompt tokens]."""
    pictures: tuple[Picture, ...]
    """Its pictures, in the order of their tokens."""
    after: int | None
    """Number of the call whose conversation it continues."""
    digests: list[bytes]
    """See `Past.digests`."""


class _Reply(NamedTuple):
    """A response as sampled, the prompt that it answered, and the number of the call."""

    prompt: TokenPrompt
    response_ids: Sequence[int]
    number: int


class TokenPast(Past[_Reply]):
    """The past of a model of tokens: a prompt that continues a conversation extends its tokens."""

    def prompt(
        self, builder: PromptBuilder, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> TokenPrompt:
        """Return the tokens of a prompt.

        Raises:
            PromptError: The chat template rejects the messages.
        """
        digests = self.digests(messages, tools)
        known, reply = self.longest(messages, digests)
        new = messages[known:]
        seen = tuple(pictures_of(new)) if builder.pictures is not None else ()
        if reply is None:
            return TokenPrompt(builder.start(new), seen, None, digests)
        ids = builder.extend(reply.prompt.ids, reply.response_ids, new)
        return TokenPrompt(ids, (*reply.prompt.pictures, *seen), reply.number, digests)

    def answer(self, prompt: TokenPrompt, text: str, response_ids: Sequence[int], number: int = 0) -> None:
        """Note a response: its text, by which it is found again, and its tokens as sampled."""
        self.add(prompt.digests, text, _Reply(prompt, response_ids, number))


def _canonical(message: Message) -> list[str]:
    parts = [
        part["text"] if part["type"] == "text" else part["image"].digest for part in content_parts(message["content"])
    ]
    if message["role"] == "assistant":
        parts = ["".join(parts).strip()]
    return [message["role"], *parts]


def _digest(before: bytes, parts: Sequence[str]) -> bytes:
    sizes = ",".join(str(len(part)) for part in parts)
    return hashlib.blake2b(
        "\0".join([sizes, *parts]).encode("utf-8", "surrogatepass"), key=before, digest_size=16
    ).digest()
