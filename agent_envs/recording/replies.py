"""Chat completions as JSON: what a step keeps of requests and replies, and what is taken out of a reply."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_envs.errors import MissingExtraError
from agent_envs.messages import Content, Message, ToolCall, ToolSpec, joined_content
from agent_envs.parsers import get_parser
from agent_envs.pictures.picture import Picture
from agent_envs.policies.openai.calls import call_text

try:
    from aiohttp import web
except ImportError as e:
    raise MissingExtraError("aiohttp", extra="record") from e

__all__ = ["StreamedCompletion", "action_text", "error_reply", "observed_messages", "offered_tools", "strip_reply"]

_ROLES = {"developer": "system", "function": "tool"}
_KNOWN_ROLES = ("system", "user", "assistant", "tool")


def observed_messages(
    messages: Sequence[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], Picture | None] | None = None
) -> list[Message]:
    """Return a request's messages as a step's observation: text and pictures, other parts as their type in brackets.

    Args:
        messages: The request's messages.
        read: Returns the picture of an ``image_url`` part, or None to leave it out; None leaves out all.

    >>> parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "..."}}]
    >>> observed_messages([{"role": "developer", "content": "Look."}, {"role": "user", "content": parts}])
    [{'role': 'system', 'content': 'Look.'}, {'role': 'user', 'content': 'What is it?[image_url]'}]
    """
    observed: list[Message] = []
    for message in messages:
        role = _ROLES.get(str(message.get("role")), str(message.get("role")))
        entry: dict[str, Any] = {"role": role if role in _KNOWN_ROLES else "user"}
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
    specs: list[ToolSpec] = []
    for tool in tools if isinstance(tools, list) else []:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            schema = function.get("parameters") or {"type": "object", "properties": {}}
            spec = {"name": function["name"], "description": function.get("description") or "", "parameters": schema}
            specs.append({"type": "function", "function": spec})  # type: ignore[typeddict-item]
    return specs


def action_text(message: Mapping[str, Any]) -> str:
    """Return the model's message as text: its content, then its calls in Hermes' format.

    >>> call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    >>> print(action_text({"content": "So:", "tool_calls": [call]}))
    So:
    <tool_call>
    {"name": "add", "arguments": {"a": 1}}
    </tool_call>
    """
    parts = [_text(message.get("content")) or _text(message.get("refusal"))]
    parser = get_parser("hermes")

    def format_call(name: str, arguments: dict[str, Any]) -> str:
        return parser.format(ToolCall(name, arguments))

    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        arguments = function.get("arguments")
        arguments = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        parts.append(call_text(str(function.get("name")), arguments, format_call)[0])
    return "\n".join(part for part in parts if part)


def error_reply(status: int, message: str) -> web.Response:
    """Return an error in the form that clients of OpenAI's API read."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": f"agentr1 record: {message}", "type": kind, "param": None, "code": f"record_{status}"}
    return web.json_response({"error": error}, status=status)


def strip_reply(reply: dict[str, Any], request: Mapping[str, Any]) -> None:
    """Remove from a completion, or a chunk of one, what the recorder asked for and the agent did not."""
    ids, logprobs = bool(request.get("return_token_ids")), bool(request.get("logprobs"))
    if not ids:
        reply.pop("prompt_token_ids", None)
    choices = reply.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        if not isinstance(choice, dict):
            continue
        if not ids:
            for name in ("token_ids", "response_token_ids", "prompt_token_ids"):
                choice.pop(name, None)
        if not logprobs and choice.get("logprobs") is not None:
            choice["logprobs"] = None


class StreamedCompletion:
    """Puts the chunks of a stream together into the completion that the server would have sent whole.

    `policies.openai.reply.StreamedReply` does so for one choice and refuses malformed chunks; a recorder keeps all
    choices and takes whatever a server sends.
    """

    def __init__(self) -> None:
        self.completion: dict[str, Any] = {"choices": []}
        self.error: Any = None
        """The error that the server sent instead of a chunk, or None."""
        self._choices: dict[int, dict[str, Any]] = {}

    @property
    def finished(self) -> bool:
        """Whether every choice is complete."""
        return bool(self._choices) and all(choice["finish_reason"] for choice in self._choices.values())

    @property
    def text(self) -> str:
        """The text of the first choice so far."""
        choices = self.completion["choices"]
        return action_text(choices[0]["message"]) if choices else ""

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Add a chunk."""
        if chunk.get("error") is not None:
            self.error = chunk["error"]
        for key in ("id", "model", "created", "usage", "prompt_token_ids", "system_fingerprint"):
            if chunk.get(key) is not None:
                self.completion[key] = chunk[key]
        choices = chunk.get("choices")
        for part in choices if isinstance(choices, list) else []:
            if isinstance(part, Mapping):
                self._add_choice(part)

    def _add_choice(self, part: Mapping[str, Any]) -> None:
        index = part["index"] if type(part.get("index")) is int else 0
        if index not in self._choices:
            message: dict[str, Any] = {"role": "assistant", "content": None}
            self._choices[index] = {"index": index, "message": message, "finish_reason": None}
            self.completion["choices"] = [self._choices[i] for i in sorted(self._choices)]
        choice = self._choices[index]
        if part.get("finish_reason"):
            choice["finish_reason"] = part["finish_reason"]
        if part.get("prompt_token_ids"):
            choice["prompt_token_ids"] = part["prompt_token_ids"]
        if isinstance(part.get("token_ids"), list):
            choice.setdefault("token_ids", []).extend(part["token_ids"])
        logprobs = part.get("logprobs")
        if isinstance(logprobs, Mapping) and isinstance(logprobs.get("content"), list):
            choice.setdefault("logprobs", {"content": []})["content"].extend(logprobs["content"])
        delta, message = part.get("delta"), choice["message"]
        if not isinstance(delta, Mapping):
            return
        for key in ("content", "reasoning_content", "reasoning", "refusal"):
            if isinstance(delta.get(key), str):
                message[key] = (message.get(key) or "") + delta[key]
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, Mapping):
                _add_call(message.setdefault("tool_calls", []), call)


def _add_call(calls: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Add a piece of a tool call; its ``index`` says of which."""
    index = part.get("index")
    call = None if index is None else next((call for call in calls if call["index"] == index), None)
    if call is None:
        call = {"index": index, "id": None, "type": "function", "function": {"name": "", "arguments": ""}}
        calls.append(call)
    function = part.get("function")
    call["id"] = part.get("id") or call["id"]
    if isinstance(function, Mapping):
        for key in ("name", "arguments"):
            if isinstance(function.get(key), str):
                call["function"][key] += function[key]


def _text(content: Any) -> str:
    """Return a message's content as text, parts joined."""
    if isinstance(content, list):
        return "".join(map(_part_text, content))
    return "" if content is None else str(content)


def _part_text(part: Any) -> str:
    if isinstance(part, Mapping):
        return part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]"
    return str(part)
