"""Tool calls as plain JSON: an object with name and arguments, or an array of them, alone or in a fenced block.

{"name": "search", "arguments": {"query": "gymnasium"}}
"""

from __future__ import annotations

import re

from agent_envs.messages import ToolCall
from agent_envs.parsers.json_calls import scan_objects, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_FENCE = re.compile(r"```(?:json)?[ \t]*\n")
_START = re.compile(r'(?=(?:\[\s*)?\{\s*")')


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
        rest, calls = scan_objects(body, _START, self.describe())
        return ParsedAction(_FENCE.sub("", rest).replace("```", "").strip() if calls else body, tuple(calls))

    def format(self, call: ToolCall) -> str:
        return written_json({"name": call.name, "arguments": call.arguments})

    def describe(self) -> str:
        return '{"name": <tool>, "arguments": {...}}'
