"""DeepSeek tool calls between DeepSeek's own control tokens, in the form of V3.1 and the older one of V3 and R1.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

on one line. Format: the chat templates of DeepSeek-V3.1 and DeepSeek-V3-0324. The older form writes ``function`` before
the separator, then the name, and the arguments in a fenced block.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.json_calls import MAX_CALLS, check_call, no_calls, read_json, too_many, written_json
from agent_envs.parsers.parser import ParsedAction
from agent_envs.parsers.reasoning import ReasoningParser

_BEGIN_ALL, _END_ALL = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _SEPARATOR, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_FENCE = "```json"
_OUTSIDE = re.compile("|".join((_BEGIN_ALL, _END_ALL, "<｜end▁of▁sentence｜>")))


class DeepSeekParser(ReasoningParser):
    """Reads both forms of DeepSeek's tool calls and writes that of V3.1.

    >>> parser = DeepSeekParser()
    >>> parser.parse(parser.format(ToolCall("add", {"a": 1}))).calls[0].arguments
    {'a': 1}
    """

    name = "deepseek"

    def _read(self, body: str) -> ParsedAction:
        before, *parts = body.split(_BEGIN, MAX_CALLS + 1)
        if not parts and _BEGIN_ALL in body:
            text = before.partition(_BEGIN_ALL)[0]
            return ParsedAction(text.strip(), (ParseFailure(f"expected {self.describe()}", body),))
        if not parts:
            return no_calls(body, (_SEPARATOR, _END, _END_ALL), self.describe())
        outside = [before]
        calls: list[ToolCall | ParseFailure] = []
        for part in parts[:MAX_CALLS]:
            call, after = _read_call(part)
            if _SEPARATOR in after:
                call, after = ParseFailure("something follows the arguments", part), ""
            calls.append(call)
            outside.append(after)
        if len(parts) > MAX_CALLS:
            calls.append(too_many())
        return ParsedAction(_OUTSIDE.sub("", "".join(outside)).strip(), tuple(calls))

    def format(self, call: ToolCall) -> str:
        return f"{_BEGIN_ALL}{_BEGIN}{call.name}{_SEPARATOR}{written_json(call.arguments)}{_END}{_END_ALL}"

    def describe(self) -> str:
        return f"{_BEGIN_ALL}{_BEGIN}NAME{_SEPARATOR}{{...}}{_END}{_END_ALL}"


def _read_call(part: str) -> tuple[ToolCall | ParseFailure, str]:
    """Return the call that a part begins with, and the text after it."""
    body, _, after = part.partition(_END)
    name, _, arguments = part.partition(_SEPARATOR)
    if _SEPARATOR not in body:
        return ParseFailure(f"expected the tool's name, {_SEPARATOR} and its arguments", part), after
    fenced = name.strip() == "function" and _FENCE in arguments
    if fenced:
        name, _, arguments = arguments.partition(_FENCE)
    empty = len(arguments) - len(arguments.lstrip()) if arguments.lstrip().startswith(_END) else None
    try:
        value, end = read_json(arguments, 0) if empty is None else ({}, empty)
    except ValueError as e:
        return ParseFailure(f"the arguments are not valid JSON: {e}", part), after
    rest = arguments[end:].removeprefix("```").lstrip() if fenced else arguments[end:]
    if not rest:
        return ParseFailure(f"the tool call is not closed: expected {_END}", part), ""
    if not rest.startswith(_END):
        return ParseFailure("something follows the arguments", part), after
    after = rest[len(_END) :]
    return check_call({"name": name.strip(), "arguments": value}, part[: len(part) - len(_END) - len(after)]), after
