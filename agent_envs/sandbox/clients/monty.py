"""MontySandbox: pydantic-monty, an interpreter of a part of Python that has no system calls; any operating system.

https://github.com/pydantic/monty. Its programs run in worker processes of its own, which no wall of the kernel
surrounds. It lacks much of Python and, rarely, answers otherwise without an error (docs/sandbox.md lists what).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from agent_envs.errors import BackendBusyError, BackendDownError, needs_extra
from agent_envs.per_process import PerProcess
from agent_envs.sandbox.sandbox import MAX_OUTPUT, Interpreter, Program, Result, Sandbox, Status, bounded_text

if TYPE_CHECKING:
    import pydantic_monty

_MOST_WORKERS = 256
_WAIT_SECONDS = 60.0  # for a free worker
_GRACE = 0.25  # seconds beyond a program's time after which its worker is killed
_READS = (
    "Path.exists", "Path.is_file", "Path.is_dir", "Path.is_symlink", "Path.read_text", "Path.read_bytes",
    "Path.iterdir", "Path.scan", "Path.stat", "Path.resolve", "Path.absolute", "open",
)  # fmt: skip
_SLEEPS = ("time.sleep", "asyncio.sleep")


class MontySandbox(Sandbox):
    """Runs programs in pydantic-monty: about three quarters of ordinary programs, each in less than a millisecond.

    Raises:
        MissingExtraError: pydantic-monty is not installed.
    """

    name = "monty"

    def __init__(self) -> None:
        with needs_extra("math", "pydantic-monty"):
            import pydantic_monty
        self._monty = pydantic_monty
        self._pools: PerProcess[pydantic_monty.Monty] = PerProcess()

    def open_interpreter(self) -> Interpreter:
        return _MontyInterpreter(self)

    def describe(self) -> dict[str, object]:
        """Return the version of the interpreter."""
        return {"name": self.name, "version": self._monty.__version__}

    def close(self) -> None:
        pool = self._pools.pop(None)
        if pool is not None:
            pool.__exit__(None, None, None)

    def pool(self) -> pydantic_monty.Monty:
        """Return this process's workers."""
        return self._pools.get(None, self._start)

    def _start(self) -> pydantic_monty.Monty:
        pool = self._monty.Monty(
            max_processes=_MOST_WORKERS, checkout_timeout=_WAIT_SECONDS, feed_duration_limit_grace=_GRACE
        )
        try:
            return pool.__enter__()
        except Exception as e:
            raise BackendDownError(f"monty's workers do not start: {e}") from e

    def __reduce__(self) -> tuple[object, ...]:
        return MontySandbox, ()


class _MontyInterpreter(Interpreter):
    """A session in a worker, which is taken when the first program comes."""

    def __init__(self, sandbox: MontySandbox, dump: bytes | None = None, files: dict[str, bytes] | None = None) -> None:
        self._sandbox = sandbox
        self._session: pydantic_monty.MontySession | None = None
        self._dump = dump  # where another session was, to go on from there
        self._files = dict(files or {})
        self._disk: Any = None  # which holds them
        self._deadline = self._seconds = 0.0

    def execute(self, program: Program) -> Result:
        monty = self._sandbox._monty
        if program.files or self._disk is None:
            self._files.update(program.contents)
            files = [monty.MemoryFile(f"/{path}", _text_or_bytes(content)) for path, content in self._files.items()]
            self._disk = monty.OSAccess(files)
        session = self._session or self._open(program)
        # Its own bytes for every piece of output count too, so the limit that is told is larger than the one in force.
        told = 2 * MAX_OUTPUT + 4096
        streams = monty.CollectStreams(max_bytes=told)
        lines = iter(program.stdin.splitlines())
        ended, value, error = False, "", ""
        status: Status = "ok"
        # The interpreter's own limit is that of its first program; one that is given less is ended from here.
        late = threading.Timer(program.timeout + _GRACE, _kill, (session.worker_pid,))
        start = time.monotonic()
        self._deadline = start + program.timeout
        if program.timeout < self._seconds:
            late.start()
        try:
            shown = session.feed_run(
                program.code if program.echo else f"{program.code}\nNone",
                print_callback=streams,
                external_lookup={"input": lambda *prompt: _line(lines)},
                os=self._answer,
            )
            if program.echo and shown is not None:
                value = f"{shown!r}\n"
        except monty.MontyCrashedError as e:  # which a program can bring about: it is no failure of the sandbox
            over = e.timed_out or time.monotonic() > self._deadline
            ended, status, error = True, *(("timeout", "") if over else ("memory", "the interpreter died\n"))
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as e:
            status, ended = _status_of(e.exception(), told)
            error = f"{e.display()}\n"
        except (ValueError, RecursionError) as e:  # of the last value, which cannot be handed over
            status, error = "error", f"{type(e).__name__}: {e}\n"
        except monty.MontyError as e:  # its worker and this process cannot go on together
            ended, status, error = True, "error", f"{type(e).__name__}: {e}\n"
        finally:
            late.cancel()
        took = time.monotonic() - start
        said = {"stdout": "", "stderr": ""}
        for stream, text in streams.output:
            said[stream] += text
        out, err = (said[stream].encode("utf-8", "replace") for stream in ("stdout", "stderr"))
        if status != "timeout" and max(len(out), len(err)) > MAX_OUTPUT:
            status, ended = "output-limit", True
        if ended:
            self.close()
        out, err = out + value.encode("utf-8", "replace"), err + error.encode("utf-8", "replace")
        return Result(status, bounded_text(out), bounded_text(err), took, ended)

    def copy(self) -> Interpreter:
        dump = self._dump if self._session is None else self._session.dump()
        copy = _MontyInterpreter(self._sandbox, dump, self._files)
        copy._seconds = self._seconds
        return copy

    def close(self) -> None:
        session, self._session = self._session, None
        self._files, self._disk, self._dump = {}, None, None
        if session is not None:
            session.__exit__(None, None, None)

    def _open(self, program: Program) -> pydantic_monty.MontySession:
        if self._dump is None:
            self._seconds = program.timeout
        limits: Any = {"max_feed_duration_secs": program.timeout, "max_memory": program.memory}
        policy: Any = {"sleep": "call_host"}
        if program.seed is not None:
            policy["random_start"] = {"seed": program.seed}
        session = self._sandbox.pool().checkout(
            script_name="<program>", limits=limits, os_policy=policy, assert_message_annotations=False
        )
        try:
            session.__enter__()
            if self._dump is not None:
                session.load_session(self._dump)
        except TimeoutError as e:
            raise BackendBusyError(f"none of monty's {_MOST_WORKERS} workers is free") from e
        except self._sandbox._monty.MontyError as e:
            raise BackendDownError(f"monty's worker does not start: {e}") from e
        self._session = session
        return session

    def _answer(self, *, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], **_: Any) -> Any:
        """Sleep for a program, or read one of the files that it was given: there are no others."""
        left = self._deadline - time.monotonic()
        if name in _SLEEPS and args[0] <= left:
            return time.sleep(args[0])
        if name in _SLEEPS:
            time.sleep(max(0.0, left))
            left = 0.0
        if left <= 0:  # the interpreter's own clock stands still meanwhile
            raise _TimeOver("time limit exceeded")
        if name not in _READS:
            raise PermissionError(f"Operation not permitted: {name}")
        if name == "open" and set((list(args[1:2]) or [kwargs.get("mode", "r")])[0]) - set("rbt"):
            raise PermissionError("files can only be read here")
        try:
            return self._disk(name=name, args=args, kwargs=kwargs, is_async=False)
        except FileNotFoundError as e:
            raise PermissionError(f"Operation not permitted: {e.filename or name}") from e


def _kill(worker: int | None) -> None:
    if worker is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


class _TimeOver(BaseException):
    """The time of a program is over, which it must not catch as an Exception."""


def _line(lines: Any) -> str:
    line = next(lines, None)
    if line is None:
        raise EOFError("EOF when reading a line")
    return line


def _text_or_bytes(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _status_of(error: BaseException, told: int) -> tuple[Status, bool]:
    """Return the status of a program that raised, and whether its interpreter must not go on."""
    said = str(error)
    if "time limit exceeded" in said and (isinstance(error, TimeoutError) or type(error) is BaseException):
        return "timeout", True
    if isinstance(error, MemoryError):
        return ("output-limit", True) if said.endswith(f"> {told} bytes") else ("memory", False)
    return ("refused", False) if isinstance(error, PermissionError) else ("error", False)
