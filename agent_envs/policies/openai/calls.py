"""Native tool calls: a server's calls as the text that an environment reads, and its results as the server wants them.

A server returns calls with ids and wants each result under its id; an environment reads one text and shows its
results in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agent_envs.messages import Content, ImagePart, Message, TextPart, content_parts, content_text, joined_content
from agent_envs.parsers.json_calls import load_json
from agent_envs.pictures.png import data_url
from agent_envs.policies.openai.reply import read_reply
from agent_envs.policies.policy import Response

_PICTURES = "The pictures of the results, in order:"

FormatCall = Callable[[str, dict[str, Any]], str]
"""``env.unwrapped.format_call``: a tool's name and arguments in the wire format that the environment reads."""


class Turn(NamedTuple):
    """A response of a server."""

    message: dict[str, Any]
    """The response as a message."""
    call_ids: Sequence[str | None]
    """Ids of its calls; None for a call shown as text: its arguments are not JSON, or no tools were sent."""
    calls: str = ""
    """The calls in the environment's wire format, at the end of the action; "" if one was not JSON."""


def call_text(name: str, arguments: str, format_call: FormatCall | None) -> tuple[str, bool]:
    """Return a call in the environment's wire format, and whether its arguments were a JSON object.

    Malformed arguments stay as the model wrote them, in the arguments' place; in formats that name each argument, under
    a name that no tool has. The environment then answers what is wrong with them.

    >>> call_text("add", '{"a": 1}', lambda name, arguments: f"{name} {arguments}")
    ("add {'a': 1}", True)
    >>> call_text("add", "[1", lambda name, arguments: f"{name} {arguments}")
    ('add [1', False)
    """
    if format_call is None:
        return f"{name}({arguments})", False
    try:
        value = load_json(arguments) if arguments.strip() else {}
    except ValueError:
        value = None
    if isinstance(value, dict):
        return format_call(name, value), True
    before, braces, after = format_call(name, {}).rpartition("{}")
    return before + arguments + after if braces else format_call(name, {"arguments": arguments}), False


def text_with_calls(text: str, calls: Iterable[tuple[str, str]], format_call: FormatCall | None) -> str:
    """Return a reply as an environment reads it: its text, then its calls, each a name and its arguments as JSON."""
    written = [call_text(name, arguments, format_call)[0] for name, arguments in calls]
    return "\n".join([text, *written] if text else written)


def answer_calls(call_ids: Sequence[str | None], messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return an environment's new messages with each result under its call's id and the rest from the user.

    The ids are in the calls' order, None for a call that the history shows as text; there are none without calls.

    >>> answer_calls(["c1"], [{"role": "tool", "name": "add", "content": "4"}])
    [{'role': 'tool', 'tool_call_id': 'c1', 'content': '4'}]
    >>> answer_calls([], [{"role": "tool", "name": "add", "content": "4"}])  # calls written in the text
    [{'role': 'user', 'content': '4'}]
    """
    results: list[Content] = [message["content"] for message in messages if message["role"] == "tool"]
    others: list[dict[str, Any]] = [{**message} for message in messages if message["role"] != "tool"]
    if not call_ids:
        return others + ([{"role": "user", "content": joined_content(results, "\n")}] if results else [])
    if len(results) != len(call_ids):
        # A wrapper changed the observation, or the text had calls too: every id still needs an answer.
        content = joined_content((message["content"] for message in messages), "\n")
        results, others = [content, *["(shown with the first call)"] * (len(call_ids) - 1)], []
    answers = list(zip(call_ids, results, strict=True))
    with_ids = [(i, content) for i, content in answers if i is not None]
    by_id = [{"role": "tool", "tool_call_id": i, "content": content_text(content)} for i, content in with_ids]
    # Servers take pictures from the user alone: a result has `<image>` in their place.
    pictures = [part for _, content in with_ids for part in content_parts(content) if part["type"] == "image"]
    seen: list[TextPart | ImagePart] = [{"type": "text", "text": _PICTURES}, *pictures]
    rest: list[Content] = [seen] if pictures else []
    rest += [content for i, content in answers if i is None]
    return by_id + ([{"role": "user", "content": joined_content(rest, "\n")}] if rest else []) + others


def server_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as OpenAI-compatible servers take it: pictures as ``image_url`` parts with PNG data.

    Format: https://platform.openai.com/docs/guides/images-vision. A picture without Pillow is a MissingExtraError.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return {**message}
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(part["image"])}} if part["type"] == "image" else part
        for part in content
    ]
    return {**message, "content": parts}


def to_openai(
    messages: Sequence[Message], call_ids: Sequence[str | None] = (), turn: Callable[[Message], Turn] | None = None
) -> list[dict[str, Any]]:
    """Return a conversation, as `ChatMessages` shows it, as OpenAI-compatible servers take it.

    Results follow under the ids of the calls in the message before them, or as the user's words where the calls are
    written in its text; pictures become ``image_url`` parts.

    >>> to_openai([{"role": "assistant", "content": "add(1, 2)"}, {"role": "tool", "name": "add", "content": "3"}])
    [{'role': 'assistant', 'content': 'add(1, 2)'}, {'role': 'user', 'content': '3'}]

    ``call_ids`` are of the calls in the response before these messages, as for `answer_calls`; ``turn`` gives what
    the server said where a message of the assistant is, None if that is the message itself. A picture without Pillow
    is a MissingExtraError.
    """
    shown: list[dict[str, Any]] = []
    since: list[Message] = []  # the latest response
    for message in messages:
        if message["role"] != "assistant":
            since.append(message)
            continue
        said = turn(message) if turn else Turn({**message}, [call["id"] for call in message.get("tool_calls", ())])
        shown += [*map(server_message, answer_calls(call_ids, since)), server_message(said.message)]
        call_ids, since = said.call_ids, []
    return [*shown, *map(server_message, answer_calls(call_ids, since))]


def from_openai(reply: Any, format_call: FormatCall | None = None) -> Response:
    """Return a chat completion as what a policy answers, with its tokens and its usage where the server tells them.

    >>> reply = {"choices": [{"message": {"content": "Let me see."}}], "usage": {"prompt_tokens": 9}}
    >>> response = from_openai(reply)
    >>> response.text, response.usage
    ('Let me see.', {'prompt_tokens': 9})

    Args:
        reply: The completion as the ``openai`` package returns it, or decoded from JSON.
        format_call: ``env.get_wrapper_attr("format_call")``, which writes native calls as the environment reads them.

    Raises:
        BackendError: It is no completion; says what was expected and what came.
    """
    read = read_reply(reply.model_dump() if callable(getattr(reply, "model_dump", None)) else reply)
    text = text_with_calls(read.text, [(call.name, call.arguments) for call in read.calls], format_call)
    return Response(text, *read.tokens, read.usage or None)
