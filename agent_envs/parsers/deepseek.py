"""DeepSeek tool calls between DeepSeek's own control tokens, in the form of V3.1 and the older one of V3 and R1.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

on one line. Format: the chat templates of DeepSeek-V3.1 and DeepSeek-V3-0324. The older form writes ``function`` before
the separator, then the name, and the arguments in a fenced block.
"""

from __future__ import annotations

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, no_calls, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

__all__ = ["DeepSeekParser"]

_BEGIN_ALL, _END_ALL = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _SEPARATOR, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCE = "```json"


class DeepSeekParser(ReasoningParser):
    """Reads both forms of DeepSeek's tool calls and writes that of V3.1.

    >>> parser = DeepSeekParser()
    >>> parser.parse(parser.format(ToolCall("add", {"a": 1}))).calls[0].arguments
    {'a': 1}
    """

    name = "deepseek"

    def _read(self, body: str) -> ParsedAction:
        outside, *parts = body.split(_BEGIN, MAX_CALLS + 1)
        text, begun, _ = outside.partition(_BEGIN_ALL)
        calls: list[ToolCall | ParseFailure] = []
        for part in parts:
            calls.append(too_many() if len(calls) == MAX_CALLS else _read_call(part))
        if begun and not calls:
            calls.append(ParseFailure(f"expected {self.describe()}", body))
        if not calls:
            return no_calls(body, (_SEPARATOR, _END, _END_ALL), self.describe())
        return ParsedAction(text.strip(), tuple(calls))

    def format(self, call: ToolCall) -> str:
        return f"{_BEGIN_ALL}{_BEGIN}{call.name}{_SEPARATOR}{written_json(call.arguments)}{_END}{_END_ALL}"

    def describe(self) -> str:
        return f"{_BEGIN_ALL}{_BEGIN}NAME{_SEPARATOR}{{...}}{_END}{_END_ALL}"


def _read_call(part: str) -> ToolCall | ParseFailure:
    body, closed, _ = part.rpartition(_END)
    body = body if closed else part
    name, separated, arguments = body.partition(_SEPARATOR)
    if not separated:
        return ParseFailure(f"expected the tool's name, {_SEPARATOR} and its arguments", part)
    if name.strip() == "function" and _FENCE in arguments:
        name, _, arguments = arguments.partition(_FENCE)
        arguments = arguments.strip().removesuffix("```")
    try:
        value, end = read_json(arguments, 0)
    except ValueError as e:
        return ParseFailure(f"the arguments are not valid JSON: {e}", part)
    if end < len(arguments):
        return ParseFailure("something follows the arguments", part)
    if not closed:
        return ParseFailure(f"the tool call is not closed: expected {_END}", part)
    return check_call({"name": name.strip(), "arguments": value}, body)
