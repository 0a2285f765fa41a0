"""What every rung of the ladder offers: programs that run once, and sessions that keep their variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from agent_envs.checks import integer, number, shown
from agent_envs.errors import BackendReplyError, ConfigError
from agent_envs.sandbox.result import Result
from agent_envs.text import clean_text

__all__ = ["MEMORY", "TIMEOUT", "Interpreter", "Program", "ProgramArguments", "Sandbox", "Session", "checked_files"]

TIMEOUT = 10.0
"""Seconds that a program may run, if nothing else is said."""
MEMORY = 512 << 20
"""Bytes that a program may use beside the interpreter itself, if nothing else is said."""
_MOST_CODE = 1 << 22
_MOST_FILES = 1 << 28


@dataclass(frozen=True, slots=True)
class Program:
    """A program and what it is given."""

    code: str
    """Python."""
    stdin: str = ""
    """What `input()` reads."""
    files: tuple[tuple[str, bytes], ...] = ()
    """The files that `open` reads: names and contents."""
    timeout: float = TIMEOUT
    """Seconds it may run."""
    memory: int = MEMORY
    """Bytes of memory it may use beside the interpreter itself."""
    echo: bool = False
    """Whether the value of its last expression is printed, as a notebook does."""
    seed: int | None = None
    """What `random` and `numpy.random` are seeded with before a session's first program; None for something else."""

    @classmethod
    def checked(
        cls,
        code: str,
        *,
        stdin: str = "",
        files: Mapping[str, str | bytes] | None = None,
        timeout: float = TIMEOUT,
        memory: int = MEMORY,
        echo: bool = False,
        seed: int | None = None,
    ) -> Program:
        """Return a program, its arguments checked; ConfigError says which of them is wrong."""
        if not isinstance(code, str) or not isinstance(stdin, str):
            raise ConfigError(f"code and stdin must be strings, got {shown(code)} and {shown(stdin)}")
        if len(code) > _MOST_CODE:
            raise ConfigError(f"a program has {len(code)} characters; at most {_MOST_CODE} are run")
        return cls(
            clean_text(code),
            clean_text(stdin),
            checked_files(files or {}),
            number("timeout", timeout, above=0),
            integer("memory", memory, minimum=1 << 20),
            bool(echo),
            None if seed is None else integer("seed", seed, minimum=0),
        )


def checked_files(files: Mapping[str, str | bytes]) -> tuple[tuple[str, bytes], ...]:
    """Return files by name as bytes; ConfigError if a name is no relative path, or they are too large."""
    contents = []
    for name, content in files.items():
        if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
            raise ConfigError(f"a file's name must be a relative path such as 'table.csv', got {shown(name)}")
        if not isinstance(content, (str, bytes)):
            raise ConfigError(f"the file {name!r} must have text or bytes as its content, got {shown(content)}")
        contents.append((name, clean_text(content).encode() if isinstance(content, str) else content))
    total = sum(len(content) for _, content in contents)
    if total > _MOST_FILES:
        raise ConfigError(f"the files have {total} bytes; at most {_MOST_FILES} reach a program")
    return tuple(contents)


class ProgramArguments(TypedDict, total=False):
    """What `run` takes besides the program: the fields of `Program`, the files by name."""

    stdin: str
    files: Mapping[str, str | bytes] | None
    timeout: float
    memory: int
    echo: bool
    seed: int | None


class Interpreter:
    """A live interpreter. A program that is stopped (time, output) ends it; the next one starts without variables."""

    def execute(self, program: Program) -> Result:
        """Run a program after the ones before; BackendError if the interpreter failed."""
        raise NotImplementedError

    def close(self) -> None:
        """End it."""


class _Runs:
    """`run`, in words of its own arguments, on top of `execute`."""

    def execute(self, program: Program) -> Result:
        """Run a program.

        Raises:
            BackendError: The sandbox failed, not the program.
        """
        raise NotImplementedError

    def run(self, code: str, **given: Unpack[ProgramArguments]) -> Result:
        """Run Python; what it is given are the fields of `Program`, the files by name.

        Raises:
            BackendError: The sandbox failed, not the program.
            ConfigError: An argument is wrong.
        """
        return self.execute(Program.checked(code, **given))


class Session(_Runs):
    """Programs that share their variables. Use it in a ``with``, or close it.

    A program that is stopped (time, output) ends the interpreter: `Result.ended` is true, and the next program starts
    without variables. Files stay until they are replaced or the interpreter ends.

    A copy (`copy.deepcopy`, a pickle, a fork of the process) has the programs that were run and no interpreter; when it
    is used they run again, and if one of them prints something else than before, BackendReplyError says so.
    """

    def __init__(
        self, sandbox: Sandbox, files: Mapping[str, str | bytes] | None = None, seed: int | None = None
    ) -> None:
        self._sandbox = sandbox
        self._files = checked_files(files or {})
        self._seed = seed
        self._size = 0
        self._live: Interpreter | None = None
        self._process = os.getpid()
        self.history: tuple[tuple[Program, Result], ...] = ()
        """The programs that made the variables, and their results."""

    def execute(self, program: Program) -> Result:
        if not self.history:
            seed = self._seed if program.seed is None else program.seed
            program = replace(program, files=(*self._files, *program.files), seed=seed)
        size = self._sandbox.size_needed(program.code, self._size)
        if self._process != os.getpid():  # a fork: the interpreter is the parent's
            self._live, self._process = None, os.getpid()
        if self._live is None or size != self._size:
            self._open(size)
        return self._executed(program)

    def _open(self, size: int) -> None:
        """Start an interpreter and bring it to where this session is."""
        self._release()
        self._size = size
        self._live = self._sandbox.open_interpreter(size)
        history, self.history = self.history, ()
        for program, before in history:
            now = self._executed(program)
            if (now.status, now.stdout) != (before.status, before.stdout):
                raise BackendReplyError(
                    "the session cannot be continued exactly: one of its programs printed something else when run again"
                )

    def _executed(self, program: Program) -> Result:
        assert self._live is not None
        try:
            result = self._live.execute(program)
        except BaseException:
            self._release()
            self.history = ()
            raise
        self.history = () if result.ended else (*self.history, (program, result))
        return result

    def _release(self) -> None:
        if self._live is not None and self._process == os.getpid():
            self._live.close()
        self._live = None

    def close(self) -> None:
        """End the interpreter; the next program starts without variables."""
        self._release()
        self.history, self._size = (), 0

    def __getstate__(self) -> dict[str, object]:
        kept = ("_sandbox", "_files", "_seed", "_size", "history")
        return {name: vars(self)[name] for name in kept}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _live=None, _process=os.getpid())

    def __eq__(self, other: object) -> bool:
        """Two sessions are equal if their programs were the same and did the same."""
        return isinstance(other, Session) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def _content(self) -> tuple[object, ...]:
        played = [(program, result.status, result.stdout) for program, result in self.history]
        return self._sandbox.name, self._files, self._seed, played

    def __del__(self) -> None:
        self._release()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Sandbox(_Runs):
    """Runs programs that are not trusted. Any number of threads may use it at once."""

    name: str
    """The rung's name, as `open_sandbox` takes it."""

    def size_needed(self, code: str, at_least: int = 0) -> int:
        """Return the size of the interpreter that a program needs, on a scale of the rung's own."""
        return at_least

    def execute(self, program: Program) -> Result:
        interpreter = self.open_interpreter()
        try:
            return interpreter.execute(program)
        finally:
            interpreter.close()

    def open_interpreter(self, size: int = 0) -> Interpreter:
        """Return a new interpreter, which keeps the variables of the programs it runs.

        Raises:
            BackendError: The sandbox failed.
        """
        raise NotImplementedError

    def session(self, *, files: Mapping[str, str | bytes] | None = None, seed: int | None = None) -> Session:
        """Return a new session.

        Args:
            files: Files that its programs can open, whenever its interpreter starts.
            seed: What `random` and `numpy.random` are seeded with then; None for something else every time.

        Raises:
            ConfigError: A file's name or content is wrong.
        """
        return Session(self, files, seed)

    def describe(self) -> dict[str, object]:
        """Return what is known of the walls, for people: names and values."""
        return {"name": self.name}

    def close(self) -> None:
        """Free what the sandbox holds; it starts anew when used again."""

    def __deepcopy__(self, memo: object) -> Sandbox:
        return self  # copies of an environment share it
