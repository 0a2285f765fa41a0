"""The python tool: it runs a policy's programs in a sandbox, and shows what they print as a notebook does."""

from __future__ import annotations

from collections.abc import Callable

from agent_envs.checks import integer, number
from agent_envs.errors import ToolError
from agent_envs.sandbox import Result, Sandbox, Session, open_sandbox
from agent_envs.sandbox.sandbox import LONGEST, MEMORY, TIMEOUT
from agent_envs.tools.base import Tool, string_parameter

MAX_CHARS = 8192
"""Characters of a program's output that a policy sees, if nothing else is said."""

_TRACEBACK_LINES = 8
_NOTHING = "(no output)"


class PythonTool(Tool):
    """Runs Python in a session: variables stay from call to call, and the last expression's value is shown.

    >>> tool = PythonTool()
    >>> tool.call(code="x = 6"), tool.call(code="x * 7")
    ('(no output)', '42')
    >>> tool.close()

    Args:
        session: A function that returns the session to use now, for an environment that keeps it in its state; None
            for a session of the tool's own.
        sandbox: The sandbox of its own session, as for `open_sandbox`.
        timeout: Seconds that a program may run.
        memory: Bytes of memory that a program may use.
        max_chars: Characters of output that are shown.
    """

    name = "python"
    description = "Run Python and see what it prints. Variables stay; the value of the last expression is shown."
    parameters = string_parameter("code", "The program.")

    def __init__(
        self,
        session: Callable[[], Session] | None = None,
        *,
        sandbox: str | Sandbox = "forked",
        timeout: float = TIMEOUT,
        memory: int = MEMORY,
        max_chars: int = MAX_CHARS,
    ) -> None:
        self._given = session
        self._own: Session | None = None
        self._sandbox = sandbox
        self.seconds = number("timeout", timeout, above=0, maximum=LONGEST)
        self.memory = integer("memory", memory, minimum=1 << 20)
        self.max_chars = integer("max_chars", max_chars, minimum=1)

    def call(self, *, code: str) -> str:  # type: ignore[override]
        result = self._session().run(code, timeout=self.seconds, memory=self.memory, echo=True)
        text = result_text(result, self.seconds, self.max_chars)
        if not result.ok:
            raise ToolError(text)
        return text

    def close(self) -> None:
        if self._own is not None:
            self._own.close()

    def _session(self) -> Session:
        if self._given is not None:
            return self._given()
        if self._own is None:
            self._own = open_sandbox(self._sandbox).session()
        return self._own


def result_text(result: Result, seconds: float, max_chars: int = MAX_CHARS) -> str:
    r"""Return what a policy sees of a result: what was printed and, if it failed, the end of the traceback.

    >>> result_text(Result("error", "5\n", "Traceback ...\nNameError: name 'y' is not defined\n", 0.1), 10)
    "5\nTraceback ...\nNameError: name 'y' is not defined"
    >>> result_text(Result("timeout", "", "", 10.0, ended=True), 10)
    'the program ran longer than 10 s and was stopped; the variables are gone'
    """
    lost = "; the variables are gone" if result.ended else ""
    problem = {
        "ok": "",
        "timeout": f"the program ran longer than {seconds:g} s and was stopped{lost}",
        "output-limit": f"the program wrote too much and was stopped{lost}",
    }.get(result.status)
    if problem is None:
        lines = result.stderr.rstrip().splitlines()
        problem = "\n".join(lines[-_TRACEBACK_LINES:]) + (f"\nthe interpreter ended{lost}" if lost else "")
    shown = _cut(result.stdout.rstrip("\n"), max_chars)
    return "\n".join(filter(None, [shown, _cut(problem, max_chars)])) or _NOTHING


def _cut(text: str, limit: int) -> str:
    """Return the beginning and the end of a text that is too long, with a note between."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[cut: {len(text) - 2 * half} characters]\n{text[len(text) - half :]}"
