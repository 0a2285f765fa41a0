"""Search-R1 actions: a query or the final answer between tags.

    <think>I need the director first.</think> <search>director of The Big Sleep</search>
    <answer>Howard Hawks</answer>

Format: https://github.com/PeterGriffinJin/Search-R1 (search_r1/llm_agent/generation.py): the first complete pair of
tags counts. A query in which another tag opens is a failure here and a query there.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.parser import ParsedAction, only_argument
from agent_envs.parsers.reasoning import ReasoningParser

_OPENING = re.compile(r"<(search|answer)>")
_EXPECTED = (
    "expected <search>query</search> to search, or <answer>answer</answer> to give the final answer; "
    "found neither complete"
)


class SearchR1Parser(ReasoningParser):
    """Reads and writes Search-R1 actions.

    >>> SearchR1Parser().parse("<think>hm</think><search> High Plains </search>").calls[0].arguments
    {'query': 'High Plains'}
    >>> SearchR1Parser().parse("<answer>yes</answer>").text
    'yes'
    """

    name = "search_r1"
    in_calls = False

    def _read(self, body: str) -> ParsedAction:
        if not body.strip():
            return ParsedAction("")
        last_close = {tag: body.rfind(f"</{tag}>") for tag in ("search", "answer")}
        for match in _OPENING.finditer(body):
            if last_close[match[1]] < match.end():
                continue
            end = body.find(f"</{match[1]}>", match.end())
            content = body[match.end() : end].strip()
            reasoning = body[: match.start()]
            if match[1] == "search" and (inner := _OPENING.search(content)):
                problem = f"<search> is not closed: expected </search> before the next <{inner[1]}>"
                return ParsedAction("", (ParseFailure(problem, body[match.start() : end]),), reasoning)
            if match[1] == "answer":
                return ParsedAction(content, (), reasoning)
            return ParsedAction("", (ToolCall("search", {"query": content}, body[match.start() : end]),), reasoning)
        return ParsedAction("", (ParseFailure(_EXPECTED, body),))

    def format(self, call: ToolCall) -> str:
        return f"<search>{only_argument(call, 'query')}</search>"

    def describe(self) -> str:
        return "<search>query</search> or <answer>answer</answer>"
