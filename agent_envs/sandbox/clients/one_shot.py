"""Sandboxes that run whole programs and keep nothing: a session runs its earlier programs again before each new one."""

from __future__ import annotations

import json

from agent_envs.errors import BackendReplyError
from agent_envs.sandbox.result import Result, bounded_text
from agent_envs.sandbox.sandbox import Interpreter, Program, Sandbox

__all__ = ["MAX_OUTPUT", "OneShotSandbox", "outcome", "script"]

MAX_OUTPUT = 65536
"""Bytes of stdout and of stderr that are kept of a program."""

# The earlier programs run without output; the last expression of the new one is shown if asked for.
_SCRIPT = """
import ast, contextlib, io, random, sys
_cells, _echo, _seed = {cells}, {echo}, {seed}
random.seed(_seed)
_namespace = {{"__name__": "__main__"}}
for _code in _cells[:-1]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try: exec(compile(_code, "<program>", "exec"), _namespace)
        except BaseException: pass
_tree = ast.parse(_cells[-1], "<program>")
_last = _tree.body[-1] if _echo and _tree.body else None
if isinstance(_last, ast.Expr): _tree.body.pop()
exec(compile(_tree, "<program>", "exec"), _namespace)
if isinstance(_last, ast.Expr):
    _value = eval(compile(ast.Expression(_last.value), "<program>", "eval"), _namespace)
    if _value is not None: print(repr(_value))
"""


class OneShotSandbox(Sandbox):
    """Base of such sandboxes: a subclass runs a script."""

    def run_script(self, code: str, program: Program) -> Result:
        """Run a complete program with the input, files and limits of another.

        Raises:
            BackendError: The sandbox failed.
        """
        raise NotImplementedError

    def execute(self, program: Program) -> Result:
        plain = not program.echo and program.seed is None
        return self.run_script(program.code if plain else script([program], program), program)

    def open_interpreter(self, size: int = 0) -> Interpreter:
        return _ReplayedInterpreter(self)


class _ReplayedInterpreter(Interpreter):
    def __init__(self, sandbox: OneShotSandbox) -> None:
        self._sandbox = sandbox
        self._programs: list[Program] = []

    def execute(self, program: Program) -> Result:
        programs = [*self._programs, program]
        files = dict(file for one in programs for file in one.files)
        given = Program(program.code, program.stdin, tuple(files.items()), program.timeout, program.memory)
        result = self._sandbox.run_script(script(programs, program), given)
        ended = result.status in ("timeout", "output-limit", "memory")
        self._programs = [] if ended else programs
        return Result(result.status, result.stdout, result.stderr, result.seconds, ended)

    def close(self) -> None:
        self._programs = []


def script(programs: list[Program], last: Program) -> str:
    """Return one program that runs several in one namespace and shows the output of the last."""
    cells = [program.code for program in programs]
    return _SCRIPT.format(cells=json.dumps(cells), echo=last.echo, seed=programs[0].seed)


def outcome(status: str, out: object, err: object, seconds: object, limit: int = MAX_OUTPUT) -> Result:
    """Return a result from what a service says; BackendReplyError if that has the wrong types."""
    if not isinstance(out, str) or not isinstance(err, str) or not isinstance(seconds, (int, float)):
        raise BackendReplyError(f"the sandbox answered with {out!r:.80}, {err!r:.80} and {seconds!r:.80}")
    shown = [bounded_text(text.encode("utf-8", "replace"), limit) for text in (out, err)]
    if status == "error" and any(line.startswith("MemoryError") for line in err.splitlines()[-1:]):
        status = "memory"
    if status == "error" and any(line.startswith("PermissionError") for line in err.splitlines()[-1:]):
        status = "refused"
    return Result(status, shown[0], shown[1], float(seconds))  # type: ignore[arg-type]
