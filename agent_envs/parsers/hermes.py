"""Hermes and Qwen tool calls: a JSON object between ``<tool_call>`` tags.

    <tool_call>
    {"name": "search", "arguments": {"query": "gymnasium"}}
    </tool_call>

Format: https://github.com/NousResearch/Hermes-Function-Calling; Qwen2.5 and Qwen3 chat templates.
"""

from __future__ import annotations

import json

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.base import ParsedAction

__all__ = ["HermesParser"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class HermesParser:
    """Reads and writes Hermes tool calls.

    >>> parsed = HermesParser().parse('Let me see.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
    >>> parsed.text, parsed.calls[0].name, parsed.calls[0].arguments
    ('Let me see.', 'add', {'a': 1})
    >>> HermesParser().parse("<tool_call>{oops").calls[0].error
    '<tool_call> is not closed: expected </tool_call>'
    """

    name = "hermes"

    def parse(self, text: str) -> ParsedAction:
        """Take a policy's text apart. Tool calls within the reasoning (before ``</think>``) are not calls."""
        reasoning = ""
        if "</think>" in text:
            reasoning, _, text = text.rpartition("</think>")
        start = text.find(_OPEN)
        if start < 0:
            if _CLOSE in text:
                return ParsedAction("", (ParseFailure(f"{_CLOSE} without {_OPEN} before it", text),), reasoning)
            return ParsedAction(text, (), reasoning)
        outside: list[str] = []
        calls: list[ToolCall | ParseFailure] = []
        position = 0
        while start >= 0:
            outside.append(text[position:start])
            body_start = start + len(_OPEN)
            end = text.find(_CLOSE, body_start)
            following = text.find(_OPEN, body_start)
            if end < 0 or 0 <= following < end:
                end = position = following if following >= 0 else len(text)
                calls.append(ParseFailure(f"{_OPEN} is not closed: expected {_CLOSE}", text[start:end]))
            else:
                calls.append(_read_call(text[body_start:end]))
                position = end + len(_CLOSE)
            start = following if following >= 0 else -1
            if 0 <= start < position:
                start = text.find(_OPEN, position)
        outside.append(text[position:])
        return ParsedAction("".join(outside).strip(), tuple(calls), reasoning)

    def format(self, call: ToolCall) -> str:
        """Write a call so that ``parse`` reads it."""
        body = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        # A closing tag within a string would end the call: JSON's own escape keeps it whole.
        return f"{_OPEN}\n{body.replace('<', chr(92) + 'u003c')}\n{_CLOSE}"

    def describe(self) -> str:
        """The format in words."""
        return f'{_OPEN}{{"name": <tool>, "arguments": {{...}}}}{_CLOSE}'


def _read_call(body: str) -> ToolCall | ParseFailure:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as e:
        reason = "nested too deeply" if isinstance(e, RecursionError) else str(e)
        return ParseFailure(f"the tool call is not valid JSON: {reason}", body)
    if not isinstance(value, dict):
        return ParseFailure(f"a tool call is a JSON object with name and arguments, got {_kind(value)}", body)
    name = value.get("name")
    if not isinstance(name, str) or not name:
        return ParseFailure('the tool call has no name: expected {"name": ..., "arguments": {...}}', body)
    arguments = value.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ParseFailure("the arguments are a string that is not valid JSON: expected an object", body)
    if not isinstance(arguments, dict):
        return ParseFailure(f"the arguments must be a JSON object, got {_kind(arguments)}", body)
    return ToolCall(name, arguments, body)


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
