"""Hermes and Qwen tool calls: a JSON object between ``<tool_call>`` tags.

    <tool_call>
    {"name": "search", "arguments": {"query": "gymnasium"}}
    </tool_call>

Format: https://github.com/NousResearch/Hermes-Function-Calling; Qwen2.5 and Qwen3 chat templates.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, load_json, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_SPACE = re.compile(r"\s*")


class HermesParser(ReasoningParser):
    """Reads and writes Hermes tool calls.

    >>> parsed = HermesParser().parse('Let me see.<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>')
    >>> parsed.text, parsed.calls[0].name, parsed.calls[0].arguments
    ('Let me see.', 'add', {'a': 1})
    >>> HermesParser().parse("<tool_call>{oops").calls[0].error
    '<tool_call> is not closed: expected </tool_call>'
    """

    name = "hermes"

    def _read(self, text: str) -> ParsedAction:
        start = text.find(_OPEN)
        if start < 0:
            if _CLOSE in text:
                return ParsedAction("", (ParseFailure(f"{_CLOSE} without {_OPEN} before it", text),))
            return ParsedAction(text)
        outside, position = "", 0
        calls: list[ToolCall | ParseFailure] = []
        while start >= 0:
            if start > position:
                outside += text[position:start].replace(_CLOSE, "")
            if len(calls) == MAX_CALLS:
                calls.append(too_many())
                return ParsedAction(outside.strip(), tuple(calls))
            call, position = _read_call(text, start)
            calls.append(call)
            start = text.find(_OPEN, position)
        if position < len(text):
            outside += text[position:].replace(_CLOSE, "")
        return ParsedAction(outside.strip(), tuple(calls))

    def format(self, call: ToolCall) -> str:
        body = written_json({"name": call.name, "arguments": call.arguments})
        return f"{_OPEN}\n{body}\n{_CLOSE}"

    def describe(self) -> str:
        return f'{_OPEN}{{"name": <tool>, "arguments": {{...}}}}{_CLOSE}'


def _read_call(text: str, start: int) -> tuple[ToolCall | ParseFailure, int]:
    """Return the call whose tag is at ``start``, and the position after it."""
    begin = start + len(_OPEN)
    json_start = text.find("{", begin)
    if json_start < 0 or text[begin:json_start].strip():
        json_start = _SPACE.match(text, begin).end()  # type: ignore[union-attr]
    try:
        value, json_end = read_json(text, json_start)
    except ValueError:
        pass
    else:
        end = text.find(_CLOSE, json_end)
        if end >= 0 and not text[json_end:end].strip():
            return check_call(value, text[begin:end]), end + len(_CLOSE)
    end, following = text.find(_CLOSE, begin), text.find(_OPEN, begin)
    if end < 0 or 0 <= following < end:
        end = following if following >= 0 else len(text)
        return ParseFailure(f"{_OPEN} is not closed: expected {_CLOSE}", text[start:end]), end
    body = text[begin:end]
    try:
        load_json(body)
        reason = "something follows the object"
    except ValueError as e:
        reason = str(e)
    return ParseFailure(f"the tool call is not valid JSON: {reason}", body), end + len(_CLOSE)
