"""GLM-4.5 tool calls: the tool's name, then a pair of tags per argument.

    <tool_call>search
    <arg_key>query</arg_key>
    <arg_value>gymnasium</arg_value>
    </tool_call>

Format: the chat template of GLM-4.5 (zai-org). Strings are written without quotes, everything else as JSON; the tools'
schemas tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.parsers.json_calls import ANY, argument_types, no_calls, scan_calls, typed_argument, written_argument
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_OPENING = re.compile(_OPEN)
_KEY = re.compile(r"\s*<arg_key>([^<]{1,200})</arg_key>\s*<arg_value>")
_END_VALUE = "</arg_value>"
_VALUE_END = re.compile(r"</arg_value>|<arg_key>|<arg_value>|<tool_call>")
_CALL_END = re.compile(r"</tool_call>|<tool_call>")


class GlmParser(ReasoningParser):
    """Reads and writes GLM-4.5's tool calls.

    Args:
        tools: The tools, whose schemas say which values are strings; without them, valid JSON is parsed as JSON.

    >>> GlmParser().parse("<tool_call>add\\n<arg_key>a</arg_key>\\n<arg_value>1</arg_value>\\n</tool_call>").calls[0]
    ToolCall(name='add', arguments={'a': 1}, raw='add\\n<arg_key>a</arg_key>\\n<arg_value>1</arg_value>\\n')
    """

    name = "glm"

    def __init__(self, tools: Sequence[ToolSpec] | None = None) -> None:
        self._types = argument_types(tools)

    def _read(self, body: str) -> ParsedAction:
        rest, calls = scan_calls(body, _OPENING, lambda match: self._read_call(body, match.end()))
        if not calls:
            return no_calls(body, (_CLOSE, "<arg_key>", "<arg_value>", _END_VALUE), self.describe())
        return ParsedAction(rest.strip(), tuple(calls))

    def _read_call(self, body: str, begin: int) -> tuple[ToolCall | ParseFailure, int]:
        key = re.compile(r"<arg_key>|</tool_call>|<tool_call>").search(body, begin)
        if key is None or key[0] == _OPEN:
            end = len(body) if key is None else key.start()
            return ParseFailure(f"{_OPEN} is not closed: expected {_CLOSE}", body[begin:end]), end
        name = body[begin : key.start()].strip()
        types = self._types.get(name, {})
        arguments, position = {}, key.start()
        while (pair := _KEY.match(body, position)) is not None:
            close, argument = _VALUE_END.search(body, pair.end()), pair[1].strip()
            if close is None or close[0] != _END_VALUE:
                return _failure(f"<arg_value> is not closed: expected {_END_VALUE}", body, begin, position)
            arguments[argument] = typed_argument(body[pair.end() : close.start()], types.get(argument, ANY))
            position = close.end()
        close = _CALL_END.search(body, position)
        if close is None or close[0] != _CLOSE or body[position : close.start()].strip():
            return _failure(f"expected {_CLOSE} or another <arg_key> after the arguments", body, begin, position)
        if not name:
            return _failure(f"the tool call has no name: expected {self.describe()}", body, begin, position)
        return ToolCall(name, arguments, body[begin : close.start()]), close.end()

    def format(self, call: ToolCall) -> str:
        pairs = "".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{written_argument(value)}{_END_VALUE}\n"
            for key, value in call.arguments.items()
        )
        return f"{_OPEN}{call.name}\n{pairs}{_CLOSE}"

    def describe(self) -> str:
        return f"{_OPEN}NAME<arg_key>argument</arg_key><arg_value>value{_END_VALUE}{_CLOSE}"


def _failure(problem: str, body: str, begin: int, position: int) -> tuple[ParseFailure, int]:
    """Return the failure of a call, and where its end or the next call is."""
    close = _CALL_END.search(body, position)
    end = len(body) if close is None else close.end() if close[0] == _CLOSE else close.start()
    return ParseFailure(problem, body[begin:end]), end
