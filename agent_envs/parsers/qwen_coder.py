"""Qwen3-Coder tool calls: a function tag with a tag per parameter.

    <tool_call>
    <function=search>
    <parameter=query>
    gymnasium
    </parameter>
    </function>
    </tool_call>

Format: the chat template of Qwen3-Coder. Strings are written without quotes, objects and arrays as JSON, the rest as
Python writes it (`True`, `None`); the tools' schemas give the types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.parsers.json_calls import ANY, argument_types, no_calls, scan_calls, typed_argument, written_argument
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_FUNCTION = re.compile(r"<function=([^>\n]{1,200})>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]{1,200})>\n?")
_CLOSE_FUNCTION, _CLOSE_PARAMETER = "</function>", "</parameter>"
_VALUE_END = re.compile(r"</parameter>|<parameter=|<function=")
_CALL_END = re.compile(r"</function>|<tool_call>|<function=")
_WORDS = {"True": True, "False": False, "None": None, "Null": None}


class QwenCoderParser(ReasoningParser):
    """Reads and writes Qwen3-Coder's tool calls.

    Args:
        tools: The tools, whose schemas say which values are strings; without them, valid JSON is parsed as JSON.

    >>> call = "<tool_call>\\n<function=add>\\n<parameter=a>\\n1\\n</parameter>\\n</function>\\n</tool_call>"
    >>> QwenCoderParser().parse(call).calls[0].arguments
    {'a': 1}
    """

    name = "qwen_coder"

    def __init__(self, tools: Sequence[ToolSpec] | None = None) -> None:
        self._types = argument_types(tools)

    def _read(self, body: str) -> ParsedAction:
        outside, calls = scan_calls(body, _FUNCTION, lambda match: self._read_call(body, match))
        if not calls:
            if "<tool_call>" in body:
                return ParsedAction("", (ParseFailure(f"expected {self.describe()}", body),))
            return no_calls(
                body, ("</tool_call>", "<function=", _CLOSE_FUNCTION, "<parameter=", _CLOSE_PARAMETER), self.describe()
            )
        rest = re.sub(r"</?tool_call>", "", outside)
        return ParsedAction(rest.strip(), tuple(calls))

    def _read_call(self, body: str, match: re.Match[str]) -> tuple[ToolCall | ParseFailure, int]:
        name, position = match[1].strip(), match.end()
        types = self._types.get(name, {})
        arguments = {}
        while (parameter := _PARAMETER.match(body, position)) is not None:
            close, key = _VALUE_END.search(body, parameter.end()), parameter[1].strip()
            if close is None or close[0] != _CLOSE_PARAMETER:
                return _failure(f"<parameter={key}> is not closed: expected {_CLOSE_PARAMETER}", body, match, position)
            value = body[parameter.end() : close.start()].removesuffix("\n")
            arguments[key] = typed_argument(value, types.get(key, ANY), _WORDS)
            position = close.end()
        close = _CALL_END.search(body, position)
        if close is None or close[0] != _CLOSE_FUNCTION or body[position : close.start()].strip():
            problem = f"<function={name}> is not closed: expected {_CLOSE_FUNCTION} or another parameter"
            return _failure(problem, body, match, position)
        return ToolCall(name, arguments, body[match.start() : close.end()]), close.end()

    def format(self, call: ToolCall) -> str:
        parameters = ""
        for key, value in call.arguments.items():
            written = str(value) if value is None or isinstance(value, bool) else written_argument(value)
            parameters += f"<parameter={key}>\n{written}\n{_CLOSE_PARAMETER}\n"
        return f"<tool_call>\n<function={call.name}>\n{parameters}{_CLOSE_FUNCTION}\n</tool_call>"

    def describe(self) -> str:
        return "<tool_call><function=NAME><parameter=ARGUMENT>value</parameter></function></tool_call>"


def _failure(problem: str, body: str, match: re.Match[str], position: int) -> tuple[ParseFailure, int]:
    """Return the failure of a call, and where its end or the next call is."""
    close = _CALL_END.search(body, position)
    end = len(body) if close is None else close.end() if close[0] == _CLOSE_FUNCTION else close.start()
    return ParseFailure(problem, body[match.start() : end]), end
