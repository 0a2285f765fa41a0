"""ReAct actions: thoughts, then one command with its argument in brackets.

    Thought: I need the elevation of the High Plains.
    Action: Search[High Plains]

Format: https://github.com/ysymyth/ReAct (hotpotqa): search[entity], lookup[keyword], finish[answer].
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.parser import ParsedAction, only_argument
from agent_envs.parsers.reasoning import ReasoningParser

_ARGUMENTS = {"search": "entity", "lookup": "keyword", "finish": "answer"}
_COMMAND = re.compile(r"(?<![A-Za-z])(search|lookup|finish)\[", re.IGNORECASE)
_EXPECTED = "expected one action: search[entity], lookup[keyword] or finish[answer]"


class ReActParser(ReasoningParser):
    """Reads and writes ReAct commands; the last line with a command counts, and `finish` is the final answer.

    >>> ReActParser().parse("Thought: hm.\\nAction: Search[High Plains]").calls[0].arguments
    {'entity': 'High Plains'}
    >>> ReActParser().parse("Action 3: finish[yes]").text
    'yes'
    >>> ReActParser().parse("I do not know.").calls[0].error
    'expected one action: search[entity], lookup[keyword] or finish[answer]'
    """

    name = "react"

    def _read(self, text: str) -> ParsedAction:
        if not text.strip():
            return ParsedAction("")
        command = _last_command(text)
        if command is None:
            return ParsedAction("", (ParseFailure(_EXPECTED, text),))
        start, end, name, argument = command
        reasoning = text[:start]
        if name == "finish":
            return ParsedAction(argument, (), reasoning)
        return ParsedAction("", (ToolCall(name, {_ARGUMENTS[name]: argument}, text[start:end]),), reasoning)

    def format(self, call: ToolCall) -> str:
        return f"{call.name}[{' '.join(only_argument(call, _ARGUMENTS.get(call.name)).split())}]"

    def describe(self) -> str:
        return "search[entity], lookup[keyword] or finish[answer]"


def _last_command(text: str) -> tuple[int, int, str, str] | None:
    """Return start, end, name and argument of the last command; the argument ends at the last bracket of its line."""
    line_end = len(text)
    while line_end >= 0:
        line_start = text.rfind("\n", 0, line_end) + 1
        limit = line_end
        for match in reversed(list(_COMMAND.finditer(text, line_start, line_end))):
            close = text.rfind("]", match.end(), limit)
            if close >= 0:
                return match.start(), close + 1, match[1].lower(), text[match.end() : close].strip()
            limit = match.start()
        line_end = line_start - 1
    return None
