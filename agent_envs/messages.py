"""Chat messages and tool calls, in the form that chat templates and OpenAI-compatible servers take.

Formats: https://platform.openai.com/docs/api-reference/chat (messages, tools); Hugging Face's
``apply_chat_template``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from agent_envs.errors import ConfigError
from agent_envs.pictures.picture import (
    IMAGE,
    ImageObservation,
    Picture,
    Pictured,
    as_picture,
    literal,
    observation_parts,
)


class FunctionSpec(TypedDict):
    """Name, description and the JSON schema of the arguments of one function."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolSpec(TypedDict):
    """One tool, as a chat template's ``tools=`` takes it."""

    type: Literal["function"]
    function: FunctionSpec


class TextPart(TypedDict):
    """Words of a message that has pictures too."""

    type: Literal["text"]
    text: str


class ImagePart(TypedDict):
    """A picture of a message."""

    type: Literal["image"]
    image: Picture


Content = str | list[TextPart | ImagePart]
"""What a message says: text, or its parts in order if it has pictures."""


class Message(TypedDict):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content
    name: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]


Observation = str | ImageObservation | list[Message]
"""What a policy sees: the environment's reply, or with ``ChatMessages`` the whole next prompt."""


@dataclass(slots=True)  # not frozen, for speed: see Outcome
class ToolCall:
    """A tool call that a parser could read."""

    name: str
    """The tool's name, as written."""
    arguments: dict[str, Any]
    """The decoded arguments."""
    raw: str = ""
    """The text the call was read from."""


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A tool call that could not be read."""

    error: str
    """What was expected and what came instead, for the policy."""
    raw: str = ""
    """The text that could not be read."""


def join_tool_results(results: list[dict[str, Any]]) -> str:
    """Return the observation that shows tool results: their contents in call order, one per line."""
    if len(results) == 1:
        return results[0]["content"]
    return "\n".join(result["content"] for result in results)


def observation_messages(observation: str | ImageObservation, info: Mapping[str, Any]) -> list[Message]:
    """Return the messages that show an observation to a chat model.

    Tool results become one message of role ``tool`` per call. Any other observation, or one that a wrapper or a length
    limit has changed, becomes one message of role ``user``. If ``info["rebuilt"]`` is true, the conversation starts
    again from this observation. A message with pictures has a list of parts as its content.
    """
    results = info.get("tool_results")
    text = observation if isinstance(observation, str) else observation["text"]
    if not results or info.get("rebuilt", False) or join_tool_results(results) != text:
        return [{"role": "user", "content": content_of(observation)}]
    if isinstance(observation, str):
        return [{"role": "tool", "name": r["name"], "content": r["content"]} for r in results]
    messages: list[Message] = []
    start = 0
    for result in results:
        end = start + result["content"].count(IMAGE)
        part: ImageObservation = {"text": result["content"], "images": observation["images"][start:end]}
        messages.append({"role": "tool", "name": result["name"], "content": content_of(part)})
        start = end
    return messages


def content_of(observation: str | ImageObservation) -> Content:
    """Return the content of a message that shows an observation: its text, or its parts if it has pictures."""
    if isinstance(observation, str):
        return observation
    if not observation["images"]:
        return observation["text"]
    return [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": as_picture(part)}
        for part in observation_parts(observation)
    ]


def content_parts(content: Content) -> list[TextPart | ImagePart]:
    """Return a content as a list of parts, of which a text is one.

    >>> content_parts("Go.")
    [{'type': 'text', 'text': 'Go.'}]
    """
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def content_text(content: Content | None) -> str:
    """Return a message's content as text, with ``<image>`` for each picture; None, as beside calls, is no text.

    >>> content_text("Go."), content_text([{"type": "text", "text": "Go."}]), content_text(None)
    ('Go.', 'Go.', '')
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(literal(part["text"]) if part["type"] == "text" else IMAGE for part in content)


def joined_content(contents: Iterable[Content], separator: str) -> Content:
    """Return the contents of several messages as one, with a text between them.

    >>> joined_content(["a", "b"], " "), joined_content(["a", [{"type": "text", "text": "b"}]], " ")
    ('a b', [{'type': 'text', 'text': 'a b'}])
    """
    contents = list(contents)
    if all(isinstance(content, str) for content in contents):
        return separator.join(contents)  # type: ignore[arg-type]
    parts: list[TextPart | ImagePart] = []
    for number, content in enumerate(contents):
        own: list[TextPart | ImagePart] = [{"type": "text", "text": separator}] if number else []
        own += content_parts(content)
        for part in own:
            last = parts[-1] if parts else None
            if part["type"] == "text" and last is not None and last["type"] == "text":
                parts[-1] = {"type": "text", "text": last["text"] + part["text"]}
            else:
                parts.append(part)
    return [part for part in parts if part["type"] == "image" or part["text"]]


def text_alone(message: Message, who: str) -> str:
    """Return the content of a message; a ConfigError says that it has pictures, which `who` cannot show."""
    content = message["content"]
    if isinstance(content, str):
        return content
    raise ConfigError(f"{who} cannot show pictures, got a message with {len(pictures_of([message]))}")


def cut_content(content: Content, length: int, note: str) -> Content:
    """Return the first characters of a content and a note; the pictures before the cut stay.

    >>> cut_content("abc", 2, "...")
    'ab...'
    """
    if isinstance(content, str):
        return content[:length] + note
    text = content_text(content)[:length]
    images = [part["image"] for part in content if part["type"] == "image"]
    beginning = Pictured.of({"text": text, "images": tuple(images[: text.count(IMAGE)])})
    return content_of(Pictured(beginning, note).observation())


def copied(messages: Sequence[Message]) -> list[Message]:
    """Return copies of messages, which can be changed without changing the originals; pictures never change."""
    return [
        message.copy()
        if content.__class__ is str  # no call: every step copies every message
        else {**message, "content": content if isinstance(content, str) else [part.copy() for part in content]}
        for message in messages
        for content in (message["content"],)
    ]


def pictures_of(messages: Sequence[Message]) -> list[Picture]:
    """Return the pictures of messages in order."""
    return [
        part["image"]
        for message in messages
        if not isinstance(message["content"], str)
        for part in message["content"]
        if part["type"] == "image"
    ]


def observation_pictures(observation: Observation) -> list[Picture]:
    """Return the pictures of an observation in order."""
    if isinstance(observation, str):
        return []
    return pictures_of(observation) if isinstance(observation, list) else list(map(as_picture, observation["images"]))


def without_pictures(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], list[Picture]]:
    """Return messages with bare ``{"type": "image"}`` parts, as chat templates take them, and the pictures in order."""
    plain: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            plain.append(message)  # type: ignore[arg-type]
        else:
            parts = [{"type": "image"} if part["type"] == "image" else part for part in content]
            plain.append({**message, "content": parts})
    return plain, pictures_of(messages)


def with_pictures(messages: list[dict[str, Any]], pictures: Sequence[Picture]) -> list[Message]:
    """Return the messages that `without_pictures` took apart; the given ones are changed."""
    left = iter(pictures)
    for message in messages:
        if not isinstance(message["content"], str):
            for part in message["content"]:
                if part["type"] == "image":
                    part["image"] = next(left)
    return messages  # type: ignore[return-value]


def latest_words(observation: Observation) -> Observation:
    """Return what follows the policy's last message in a prompt, or all of it if the policy has not spoken yet.

    >>> prompt: list[Message] = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "North."}]
    >>> latest_words([*prompt, {"role": "user", "content": "A wall."}])
    [{'role': 'user', 'content': 'A wall.'}]
    """
    if not isinstance(observation, list):
        return observation
    indices = [i for i, message in enumerate(observation) if message.get("role") == "assistant"]
    return observation[indices[-1] + 1 :] if indices else observation


def observation_text(observation: Observation) -> str:
    """Return an observation as text for a person, with the role of each message.

    >>> observation_text([{"role": "user", "content": "Go."}])
    '[user]\\nGo.'
    """
    if isinstance(observation, str):
        return observation
    if not isinstance(observation, list):
        return observation["text"]
    return "\n\n".join(
        f"[{message.get('role', '')}]\n{content_text(message.get('content', ''))}" for message in observation
    )
