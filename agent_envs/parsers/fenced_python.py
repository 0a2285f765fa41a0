"""A fenced block of Python as a call of the tool python.

    ```python
    print(6 * 7)
    ```

Format: ToRA (arXiv 2309.17452) and its followers, which answer with an ``output`` block.
"""

from __future__ import annotations

import re

from agent_envs.messages import ParseFailure, ToolCall
from agent_envs.parsers.parser import ParsedAction, only_argument
from agent_envs.parsers.reasoning import ReasoningParser

_OPEN = re.compile(r"^(`{3,})(?:python|py)[ \t]*\n", re.MULTILINE)


class FencedPythonParser(ReasoningParser):
    """Reads and writes fenced Python; the first block is the call, and the text after it is ignored.

    >>> FencedPythonParser().parse("I compute.\\n```python\\nprint(1)\\n```").calls[0].arguments
    {'code': 'print(1)\\n'}
    """

    name = "fenced_python"

    def _read(self, body: str) -> ParsedAction:
        start = _OPEN.search(body)
        if start is None:
            return ParsedAction(body)
        end = re.compile(rf"^{start[1]}(python|py)?[ \t]*$", re.MULTILINE).search(body, start.end())
        if end is None or end[1]:
            problem = f"the code block is not closed: expected {start[1]} on a line of its own"
            return ParsedAction(body[: start.start()].strip(), (ParseFailure(problem, body[start.start() :]),))
        call = ToolCall("python", {"code": body[start.end() : end.start()]}, body[start.start() : end.end()])
        return ParsedAction(body[: start.start()].strip(), (call,))

    def format(self, call: ToolCall) -> str:
        code = only_argument(call, "code")
        longest = max((len(run) for run in re.findall(r"^`{3,}", code, re.MULTILINE)), default=2)
        fence = "`" * (longest + 1)
        return f"{fence}python\n{code if code.endswith(chr(10)) else code + chr(10)}{fence}"

    def describe(self) -> str:
        return "```python\n...\n```"
