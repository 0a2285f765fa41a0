"""Cloud interpreters with an API like E2B's code interpreter, through one small interface."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from agent_envs.errors import BackendDownError, BackendError, BackendSlowError
from agent_envs.sandbox.clients.one_shot import outcome
from agent_envs.sandbox.result import Result
from agent_envs.sandbox.sandbox import Interpreter, Program, Sandbox
from agent_envs.threads import run_in_thread

__all__ = ["CloudExecution", "CloudInterpreter", "CloudSandbox"]

_GRACE = 10.0


class CloudExecution(Protocol):
    """What a cloud interpreter says of a program."""

    @property
    def stdout(self) -> Sequence[str]:
        """What it printed."""

    @property
    def stderr(self) -> Sequence[str]:
        """What it wrote to the standard error."""

    @property
    def error(self) -> str | None:
        """The traceback if it raised."""

    @property
    def value(self) -> str | None:
        """The text of the last expression's value."""


class CloudInterpreter(Protocol):
    """A running cloud interpreter. It keeps variables between programs."""

    def write_file(self, name: str, content: bytes) -> None:
        """Put a file into its working folder."""

    def run_code(self, code: str, timeout: float) -> CloudExecution:
        """Run a program; TimeoutError if it takes longer."""

    def kill(self) -> None:
        """End it."""


class CloudSandbox(Sandbox):
    """Runs programs in cloud interpreters: a new one for every run, one for a session.

    Args:
        create: Returns a new interpreter. What it raises, and what the interpreter raises but TimeoutError, is a
            BackendError: a program's own failure is in `CloudExecution.error`.
        name: What the sandbox calls itself.
    """

    def __init__(self, create: Callable[[], CloudInterpreter], name: str = "cloud") -> None:
        self._create = create
        self.name = name

    def open_interpreter(self, size: int = 0) -> Interpreter:
        return _CloudSession(self._create)


class _CloudSession(Interpreter):
    def __init__(self, create: Callable[[], CloudInterpreter]) -> None:
        self._create = create
        self._live: CloudInterpreter | None = None

    def execute(self, program: Program) -> Result:
        start = time.monotonic()
        future = run_in_thread(self._run, program)
        try:
            execution = future.result(timeout=program.timeout + _GRACE)
        except concurrent.futures.TimeoutError as e:
            self.close()
            if future.done():  # the interpreter's own time-out
                return Result("timeout", "", "", time.monotonic() - start, ended=True)
            raise BackendSlowError(f"the interpreter did not answer {_GRACE:g} s after the program's time") from e
        except BackendError:
            raise
        except Exception as e:
            self.close()
            raise BackendDownError(f"the interpreter failed: {type(e).__name__}: {e}") from e
        shown = "".join(execution.stdout)
        if program.echo and execution.value is not None:
            shown += execution.value + "\n"
        err = "".join(execution.stderr) + (execution.error or "")
        return outcome("ok" if execution.error is None else "error", shown, err, time.monotonic() - start)

    def _run(self, program: Program) -> CloudExecution:
        if self._live is None:
            self._live = self._create()
        for name, content in program.files:
            self._live.write_file(name, content)
        seeded = "" if program.seed is None else f"import random; random.seed({program.seed})\n"
        return self._live.run_code(seeded + program.code, program.timeout)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            run_in_thread(live.kill)
