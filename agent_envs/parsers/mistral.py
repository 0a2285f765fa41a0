"""Mistral tool calls: ``[TOOL_CALLS]`` and a JSON array, or, since Mistral Small 3.2, a name and its arguments.

    [TOOL_CALLS][{"name": "search", "arguments": {"query": "gymnasium"}}]
    [TOOL_CALLS]search[ARGS]{"query": "gymnasium"}

Format: https://github.com/mistralai/mistral-common (tokenizers v3 and v11 up).
The newest ones leave ``[ARGS]`` out.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, no_calls, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_TAG = "[TOOL_CALLS]"
_MORE = re.compile(r'\[ARGS\]|\{\s*"(?:name|arguments)"\s*:')
_NAMED = re.compile(r"\s*([\w./-]{1,200})(?:\[CALL_ID\]\w{1,64})?(?:\[ARGS\]|(?=\s*\{))")


class MistralParser(ReasoningParser):
    """Reads both forms of Mistral's tool calls and writes the array.

    >>> parsed = MistralParser().parse('Wait.[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]</s>')
    >>> parsed.text, parsed.calls[0].arguments
    ('Wait.', {'a': 1})
    >>> MistralParser().parse('[TOOL_CALLS]add[ARGS]{"a": 1}').calls[0].name
    'add'
    """

    name = "mistral"
    tags = (("[THINK]", "[/THINK]"), ("<think>", "</think>"))

    def _read(self, body: str) -> ParsedAction:
        before, *parts = body.removesuffix("</s>").split(_TAG, MAX_CALLS + 1)
        if not parts:
            return no_calls(body, ("[ARGS]",), self.describe())
        outside = [before]
        calls: list[ToolCall | ParseFailure] = []
        for part in parts:
            read, after = _read_calls(part)
            calls += read
            outside.append(after)
        if len(calls) > MAX_CALLS:
            calls = [*calls[:MAX_CALLS], too_many()]
        return ParsedAction("".join(outside).strip(), tuple(calls))

    def format(self, call: ToolCall) -> str:
        body = written_json([{"name": call.name, "arguments": call.arguments}])
        return _TAG + body.replace(_TAG, "\\u005b" + _TAG[1:]).replace("[/THINK]", "\\u005b/THINK]")

    def describe(self) -> str:
        return f'{_TAG}[{{"name": <tool>, "arguments": {{...}}}}]'


def _read_calls(part: str) -> tuple[list[ToolCall | ParseFailure], str]:
    """Return the calls that a part begins with, and the text after them."""
    named = _NAMED.match(part)
    try:
        empty = named is not None and not part[named.end() :].strip()
        value, end = ({}, len(part)) if empty else read_json(part, named.end() if named else 0)
    except ValueError as e:
        return [ParseFailure(f"the tool call is not valid JSON: {e}", part)], ""
    if named:
        value = {"name": named[1], "arguments": value}
    entries = value if isinstance(value, list) else [value]
    calls = [check_call(entry, part[:end]) for entry in entries[: MAX_CALLS + 1]]
    if not calls:
        calls.append(ParseFailure("the array of tool calls is empty", part))
    if _MORE.search(part, end) or _NAMED.match(part, end):
        calls.append(ParseFailure(f"something follows the tool calls: expected {_TAG} and another one", part[end:]))
        return calls, ""
    return calls, part[end:]
