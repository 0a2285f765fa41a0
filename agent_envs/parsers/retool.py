"""ReTool actions: a program or the final answer between tags.

    I multiply first. <code>
    print(6 * 7)
    </code>

Format: ReTool (arXiv 2504.11536), whose model stops at ``</code>`` and is answered between ``<interpreter>`` tags. The
program may be fenced. The first complete pair of tags counts.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.parser import ParsedAction, only_argument
from agent_envs.parsers.reasoning import ReasoningParser

_OPENING, _CLOSING = "<code>", "</code>"
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class ReToolParser(ReasoningParser):
    """Reads and writes ReTool's code blocks as calls of python.

    >>> ReToolParser().parse("So <code>\\nprint(1)\\n</code>").calls[0].arguments
    {'code': 'print(1)'}
    >>> ReToolParser().parse("<answer>\\\\boxed{4}</answer>").text
    '<answer>\\\\boxed{4}</answer>'
    """

    name = "retool"
    in_calls = False

    def _read(self, body: str) -> ParsedAction:
        start = body.find(_OPENING)
        if start < 0:
            return ParsedAction(body)
        end = body.find(_CLOSING, start)
        if end < 0:
            problem = f"{_OPENING} is not closed: expected {_CLOSING} after the program"
            return ParsedAction(body[:start].strip(), (ParseFailure(problem, body[start:]),))
        code = body[start + len(_OPENING) : end].strip("\n")
        fenced = _FENCE.fullmatch(code.strip())
        call = ToolCall("python", {"code": fenced[1] if fenced else code}, body[start : end + len(_CLOSING)])
        return ParsedAction(body[:start].strip(), (call,))

    def format(self, call: ToolCall) -> str:
        return f"{_OPENING}\n{only_argument(call, 'code')}\n{_CLOSING}"

    def describe(self) -> str:
        return "<code>\n...\n</code>"
