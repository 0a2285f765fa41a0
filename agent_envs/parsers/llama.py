"""Llama 3.1 tool calls: a JSON object with name and parameters.

    {"name": "search", "parameters": {"query": "gymnasium"}}

Format: Meta's prompt format of Llama 3.1 (custom tools); several calls are separated by semicolons (line breaks
work too), and ``<|python_tag|>`` may come first. The rest is text.
"""

from __future__ import annotations

import re

from agent_envs.messages import ToolCall
from agent_envs.parsers.json_calls import scan_objects, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_OPENING = re.compile(r'<\|python_tag\|>\s*|(?=(?:\[\s*)?\{\s*")')
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
        rest, calls = scan_objects(body, _OPENING, self.describe(), "parameters", _BETWEEN)
        return ParsedAction(rest.strip() if calls else body, tuple(calls))

    def format(self, call: ToolCall) -> str:
        return written_json({"name": call.name, "parameters": call.arguments})

    def describe(self) -> str:
        return '{"name": <tool>, "parameters": {...}} and nothing else'
