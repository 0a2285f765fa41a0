"""Requests and replies of chat completions as JSON: what a step keeps of them, and what the agent did not ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_envs.messages import Message, ToolCall, ToolSpec
from agent_envs.parsers import get_parser
from agent_envs.policies.openai.calls import call_text

__all__ = ["StreamedCompletion", "action_text", "observed_messages", "offered_tools", "strip_reply"]

_ROLES = {"developer": "system", "function": "tool"}
_KNOWN_ROLES = ("system", "user", "assistant", "tool")


def observed_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a request as a step's observation: text alone, other parts by the name of their kind.

    >>> parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "..."}}]
    >>> observed_messages([{"role": "developer", "content": "Look."}, {"role": "user", "content": parts}])
    [{'role': 'system', 'content': 'Look.'}, {'role': 'user', 'content': 'What is it?[image_url]'}]
    """
    shown: list[Message] = []
    for message in messages:
        role = _ROLES.get(str(message.get("role")), str(message.get("role")))
        entry: dict[str, Any] = {"role": role if role in _KNOWN_ROLES else "user"}
        entry["content"] = _text(message.get("content"))
        entry |= {key: str(message[key]) for key in ("name", "tool_call_id") if message.get(key) is not None}
        if isinstance(message.get("tool_calls"), list) and message["tool_calls"]:
            entry["tool_calls"] = message["tool_calls"]
        shown.append(entry)  # type: ignore[arg-type]
    return shown


def offered_tools(tools: Any) -> list[ToolSpec]:
    """The function tools of a request, in the form that chat templates take."""
    found: list[ToolSpec] = []
    for tool in tools if isinstance(tools, list) else []:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("name"), str):
            schema = function.get("parameters") or {"type": "object", "properties": {}}
            spec = {"name": function["name"], "description": function.get("description") or "", "parameters": schema}
            found.append({"type": "function", "function": spec})  # type: ignore[typeddict-item]
    return found


def action_text(message: Mapping[str, Any]) -> str:
    """What the model said as text: its words, and its calls in Hermes' form.

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


def strip_reply(reply: dict[str, Any], request: Mapping[str, Any]) -> None:
    """Take from a completion or a chunk of one what the recorder asked for and the request did not."""
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
    """The chunks of a stream put together as the completion that the server would have sent at once."""

    def __init__(self) -> None:
        self.completion: dict[str, Any] = {"choices": []}
        self.error: Any = None
        """The error that the server sent in place of a chunk, or None."""
        self._choices: dict[int, dict[str, Any]] = {}

    @property
    def finished(self) -> bool:
        """Whether every choice has come to its end."""
        return bool(self._choices) and all(choice["finish_reason"] for choice in self._choices.values())

    @property
    def text(self) -> str:
        """What has been said so far, of the first choice."""
        choices = self.completion["choices"]
        return action_text(choices[0]["message"]) if choices else ""

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take in one chunk."""
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
            self._choices[index] = {
                "index": index,
                "message": {"role": "assistant", "content": None},
                "finish_reason": None,
            }
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
    """Take in a piece of a tool call; ``index`` says of which."""
    index = part.get("index")
    known = [call for call in calls if call["index"] == index]
    if index is None or not known:
        calls.append(
            {"index": index, "id": None, "type": "function", "function": {"name": "", "arguments": ""}},
        )
        known = calls[-1:]
    call, function = known[0], part.get("function")
    call["id"] = part.get("id") or call["id"]
    if isinstance(function, Mapping):
        for key in ("name", "arguments"):
            if isinstance(function.get(key), str):
                call["function"][key] += function[key]


def _text(content: Any) -> str:
    """A content as text: its own, or its parts' one after another."""
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content)
    return content if isinstance(content, str) else "" if content is None else str(content)


def _part_text(part: Any) -> str:
    if isinstance(part, Mapping):
        return part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type')}]"
    return str(part)
