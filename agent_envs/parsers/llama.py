"""Llama 3.1 tool calls: a JSON object with name and parameters.

    {"name": "search", "parameters": {"query": "gymnasium"}}

Format: Meta's prompt format of Llama 3.1 (custom tools); several calls are separated by semicolons (line breaks
work too), and ``<|python_tag|>`` may come first. The rest is text.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

__all__ = ["LlamaParser"]

_TAG = "<|python_tag|>"
_CALL = re.compile(r'\{\s*"name"\s*:\s*"[^"]{1,200}"\s*,\s*"(?:parameters|arguments)"\s*:')
_NEXT = re.compile(rf"<\|python_tag\|>|{_CALL.pattern}")
_BETWEEN = re.compile(r";?\s*")
_ENDS = ("<|eom_id|>", "<|eot_id|>")


class LlamaParser(ReasoningParser):
    """Reads and writes Llama 3.1 tool calls.

    >>> LlamaParser().parse('<|python_tag|>{"name": "add", "parameters": {"a": 1}}<|eom_id|>').calls[0].arguments
    {'a': 1}
    >>> LlamaParser().parse("The answer is 4.").text
    'The answer is 4.'
    """

    name = "llama"

    def _read(self, body: str) -> ParsedAction:
        for token in _ENDS:
            body = body.removesuffix(token)
        first = _NEXT.search(body)
        tagged = first is not None and first[0] == _TAG
        before = "" if first is None else body[: first.start()]
        rest = body[len(before) + len(_TAG) * tagged :]
        if not rest.lstrip().startswith("{"):
            if tagged:
                return ParsedAction(before.strip(), (ParseFailure(f"expected {self.describe()}", rest),))
            return ParsedAction(body)
        outside = [before]
        calls: list[ToolCall | ParseFailure] = []
        position = 0
        while position < len(rest):
            if len(calls) == MAX_CALLS:
                calls.append(too_many())
                break
            try:
                value, end = read_json(rest, position)
            except ValueError as e:
                calls.append(ParseFailure(f"the tool call is not valid JSON: {e}", rest[position:]))
                break
            calls.append(check_call(value, rest[position:end], "parameters"))
            position = _BETWEEN.match(rest, end).end()  # type: ignore[union-attr]
            if not rest.startswith("{", position):
                following = _NEXT.search(rest, position)
                if following is None:
                    outside.append(rest[position:])
                    break
                outside.append(rest[position : following.start()])
                position = following.end() if following[0] == _TAG else following.start()
        return ParsedAction("".join(outside).strip(), tuple(calls))

    def format(self, call: ToolCall) -> str:
        return written_json({"name": call.name, "parameters": call.arguments})

    def describe(self) -> str:
        return '{"name": <tool>, "parameters": {...}} and nothing else'
