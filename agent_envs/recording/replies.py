"""Chat completions as JSON: what a step keeps of requests and replies, and what is taken out of a reply.

The pictures of prompts go from ``data:`` URLs to files beside the episodes, within bounds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agent_envs.agents.chat_wire import error_body, offered_tool, role_of
from agent_envs.errors import DataError, MissingExtraError, needs_extra
from agent_envs.messages import Content, Message, ToolCall, ToolSpec, joined_content
from agent_envs.parsers import get_parser
from agent_envs.per_process import PerProcess
from agent_envs.pictures.folder import PictureFolder, reference
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import from_data_url
from agent_envs.policies.openai.calls import text_with_calls
from agent_envs.spaces import ROLES

with needs_extra("serve"):
    from aiohttp import web

_MOST_PIXELS = 1 << 27  # of a request, of pictures that have not been read before: 64 screens of 1920 x 1080
_KEPT = 4096  # pictures whose names are kept, since an agent sends all of them again with each call


def observed_messages(
    messages: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], Picture | None] | None = None
) -> list[Message]:
    """Return a request's messages as a step's observation: text and pictures, other parts as their type in brackets.

    Args:
        read: Returns the picture of an ``image_url`` part, or None to leave it out; None leaves out all.

    >>> parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "..."}}]
    >>> observed_messages([{"role": "developer", "content": "Look."}, {"role": "user", "content": parts}])
    [{'role': 'system', 'content': 'Look.'}, {'role': 'user', 'content': 'What is it?[image_url]'}]
    """
    observed: list[Message] = []
    for message in messages:
        role = role_of(message)
        entry: dict[str, Any] = {"role": role if role in ROLES else "user"}
        entry["content"] = _observed_content(message.get("content"), read)
        entry |= {key: str(message[key]) for key in ("name", "tool_call_id") if message.get(key) is not None}
        if isinstance(message.get("tool_calls"), list) and message["tool_calls"]:
            entry["tool_calls"] = message["tool_calls"]
        observed.append(entry)  # type: ignore[arg-type]
    return observed


def _observed_content(content: Any, read: Callable[[Mapping[str, Any]], Picture | None] | None) -> Content:
    if read is None or not isinstance(content, list):
        return _text(content)
    contents: list[Content] = []
    for part in content:
        pictured = isinstance(part, Mapping) and part.get("type") == "image_url"
        picture = read(part) if pictured else None
        contents.append(_part_text(part) if picture is None else [{"type": "image", "image": picture}])
    return joined_content(contents, "")


def offered_tools(tools: Any) -> list[ToolSpec]:
    """Return the function tools of a request, in the form that chat templates take."""
    return [offered_tool(function) for function in _functions(tools) if isinstance(function.get("name"), str)]


def _functions(entries: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the functions of a list of tools or calls; whatever is none is left out."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
            yield entry["function"]


def action_text(message: Mapping[str, Any]) -> str:
    """Return the model's message as text: its content, then its calls in Hermes' format.

    >>> call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    >>> print(action_text({"content": "So:", "tool_calls": [call]}))
    So:
    <tool_call>
    {"name": "add", "arguments": {"a": 1}}
    </tool_call>
    """
    parser, calls = get_parser("hermes"), list[tuple[str, str]]()
    for function in _functions(message.get("tool_calls")):
        arguments = function.get("arguments")
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        calls.append((str(function.get("name")), arguments))
    text = _text(message.get("content")) or _text(message.get("refusal"))
    return text_with_calls(text, calls, lambda *call: parser.format(ToolCall(*call)))


def error_reply(status: int, message: str) -> web.Response:
    """Return an error of the recorder in the form that clients of OpenAI's API read."""
    return web.json_response(error_body(status, f"agentr1 record: {message}", code=f"record_{status}"), status=status)


def strip_reply(reply: Any, request: Mapping[str, Any]) -> bool:
    """Remove from a completion, or a chunk of one, what the recorder asked for and the agent did not.

    Return whether there was any of it.
    """
    choices = reply.get("choices") if isinstance(reply, dict) else None
    parts = [part for part in (reply, *(choices if isinstance(choices, list) else ())) if isinstance(part, dict)]
    names = () if request.get("return_token_ids") else ("prompt_token_ids", "token_ids", "response_token_ids")
    removed = [part.pop(name) for part in parts for name in names if name in part]
    for part in parts if not request.get("logprobs") else ():
        if part.get("logprobs") is not None:
            removed.append(part["logprobs"])
            part["logprobs"] = None
    return bool(removed)


def _text(content: Any) -> str:
    """Return a message's content as text, parts joined."""
    if isinstance(content, list):
        return "".join(map(_part_text, content))
    return "" if content is None else str(content)


def _part_text(part: Any) -> str:
    if isinstance(part, Mapping):
        return part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]"
    return str(part)


def shows_pictures(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a request's messages have pictures."""
    contents = [message.get("content") for message in messages]
    return any(
        isinstance(part, Mapping) and part.get("type") == "image_url"
        for content in contents
        if isinstance(content, list)
        for part in content
    )


class PromptPictures:
    """Reads the pictures of prompts and stores each once in a folder. Several threads may call its methods."""

    def __init__(self, folder: PictureFolder) -> None:
        self._folder = folder
        self._known: PerProcess[Picture] = PerProcess(keep=_KEPT)  # by a digest of the URL; without their pixels

    def observed(self, messages: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[str]]:
        """Return a request's messages with their pictures, and why some of these are left out.

        A picture is read if it is in the message itself, as a PNG or JPEG in a ``data:`` URL; an address is not
        fetched. What is left out is ``[image_url]`` in the message. An OSError if a picture cannot be written.
        """
        left, problems = _MOST_PIXELS, list[str]()

        def stored(url: str, where: str) -> Picture:
            nonlocal left
            if left <= 0:
                raise DataError(f"{where}: the pictures of a call have more than {_MOST_PIXELS} pixels")
            picture = from_data_url(url, where)
            left -= picture.width * picture.height
            self._folder.add([picture])
            return self._folder.find(reference(picture))

        def read(part: Mapping[str, Any]) -> Picture | None:
            where, given = f"picture {len(problems) + 1} that is left out", part.get("image_url")
            url = given.get("url") if isinstance(given, Mapping) else given
            try:
                if not isinstance(url, str) or not url.startswith("data:"):
                    raise DataError(f"{where}: expected a data: URL; addresses are not fetched")
                key = hashlib.sha256(url.encode("utf-8", "surrogatepass")).digest()
                return self._known.get(key, lambda: stored(url, where))
            except (DataError, MissingExtraError) as e:
                problems.append(str(e))
                return None

        return observed_messages(messages, read), problems
