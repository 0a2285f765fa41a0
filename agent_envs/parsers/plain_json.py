"""Tool calls as plain JSON: an object with name and arguments, or an array of them, alone or in a fenced block.

{"name": "search", "arguments": {"query": "gymnasium"}}
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

__all__ = ["PlainJsonParser"]

_FENCE = re.compile(r"```(?:json)?[ \t]*\n")
_START = re.compile(r'(?:\[\s*)?\{\s*"(?:name|arguments|parameters)"')


class PlainJsonParser(ReasoningParser):
    """Reads and writes calls as plain JSON; words around them are kept as text.

    >>> parsed = PlainJsonParser().parse('I add.\\n```json\\n{"name": "add", "arguments": {"a": 1}}\\n```')
    >>> parsed.text, parsed.calls[0].arguments
    ('I add.', {'a': 1})
    >>> PlainJsonParser().parse('{"answer": 4}').text
    '{"answer": 4}'
    """

    name = "json"

    def _read(self, body: str) -> ParsedAction:
        outside: list[str] = []
        calls: list[ToolCall | ParseFailure] = []
        position = 0
        while (start := _START.search(body, position)) is not None:
            outside.append(body[position : start.start()])
            if len(calls) >= MAX_CALLS:
                calls.append(too_many())
                position = len(body)
                break
            try:
                value, end = read_json(body, start.start())
            except ValueError as e:
                calls.append(ParseFailure(f"the tool call is not valid JSON: {e}", body[start.start() :]))
                position = len(body)
                break
            raw, position = body[start.start() : end], end
            if isinstance(value, dict) and not {"arguments", "parameters"} & value.keys():
                outside.append(raw)
                continue
            entries = value if isinstance(value, list) else [value]
            calls += [check_call(entry, raw) for entry in entries[: MAX_CALLS + 1]]
        outside.append(body[position:])
        if not calls:
            return ParsedAction(body)
        if len(calls) > MAX_CALLS:
            calls = [*calls[:MAX_CALLS], too_many()]
        rest = _FENCE.sub("", "".join(outside)).replace("```", "")
        return ParsedAction(rest.strip(), tuple(calls))

    def format(self, call: ToolCall) -> str:
        return written_json({"name": call.name, "arguments": call.arguments})

    def describe(self) -> str:
        return '{"name": <tool>, "arguments": {...}}'
