"""Qwen3-Coder tool calls: a function tag with a tag per parameter.

    <tool_call>
    <function=search>
    <parameter=query>
    gymnasium
    </parameter>
    </function>
    </tool_call>

Format: the chat template of Qwen3-Coder. Values are written without quotes; the tools' schemas give their types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_envs.messages import ParseFailure, ToolCall, ToolSpec
from agent_envs.parsers.json_calls import argument_types, no_calls, scan_calls, typed_argument, written_argument
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

__all__ = ["QwenCoderParser"]

_FUNCTION = re.compile(r"<function=([^>\n]{1,200})>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]{1,200})>\n?")
_CLOSE_FUNCTION, _CLOSE_PARAMETER = "</function>", "</parameter>"


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
            return no_calls(body, ("</tool_call>", _CLOSE_FUNCTION, "<parameter=", _CLOSE_PARAMETER), self.describe())
        rest = re.sub(r"</?tool_call>", "", outside)
        return ParsedAction(rest.strip(), tuple(calls))

    def _read_call(self, body: str, match: re.Match[str]) -> tuple[ToolCall | ParseFailure, int]:
        name, position = match[1].strip(), match.end()
        types = self._types.get(name, {})
        arguments = {}
        while (parameter := _PARAMETER.match(body, position)) is not None:
            end = body.find(_CLOSE_PARAMETER, parameter.end())
            if end < 0:
                problem = f"<parameter={parameter[1]}> is not closed: expected {_CLOSE_PARAMETER}"
                return ParseFailure(problem, body[match.start() :]), len(body)
            value = body[parameter.end() : end].removesuffix("\n")
            arguments[parameter[1].strip()] = typed_argument(value, types.get(parameter[1].strip()))
            position = end + len(_CLOSE_PARAMETER)
        end = body.find(_CLOSE_FUNCTION, position)
        if end < 0 or body[position:end].strip():
            problem = f"<function={name}> is not closed: expected {_CLOSE_FUNCTION} or another parameter"
            return ParseFailure(problem, body[match.start() :]), len(body) if end < 0 else end + len(_CLOSE_FUNCTION)
        end += len(_CLOSE_FUNCTION)
        return ToolCall(name, arguments, body[match.start() : end]), end

    def format(self, call: ToolCall) -> str:
        parameters = "".join(
            f"<parameter={key}>\n{written_argument(value)}\n{_CLOSE_PARAMETER}\n"
            for key, value in call.arguments.items()
        )
        return f"<tool_call>\n<function={call.name}>\n{parameters}{_CLOSE_FUNCTION}\n</tool_call>"

    def describe(self) -> str:
        return "<tool_call><function=NAME><parameter=ARGUMENT>value</parameter></function></tool_call>"
