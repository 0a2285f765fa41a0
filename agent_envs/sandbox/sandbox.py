"""What every sandbox offers: programs that run once, and sessions that keep their variables."""

from __future__ import annotations

import copy
import hashlib
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from agent_envs.checks import integer, number, shown
from agent_envs.errors import ConfigError
from agent_envs.per_process import PerProcess
from agent_envs.text import clean_text

TIMEOUT = 10.0
"""Seconds that a program may run, if nothing else is said."""
LONGEST = 86400.0
"""Seconds that a program may run at most, whatever is said."""
MEMORY = 512 << 20
"""Bytes that a program may use beside the interpreter itself, if nothing else is said."""
MAX_OUTPUT = 65536
"""Bytes of stdout and of stderr that a program may write."""
_MOST_CODE = 1 << 22
_MOST_FILES = 1 << 28
_MOST_PICKLED = 64

Status = Literal["ok", "error", "timeout", "memory", "output-limit", "refused"]

STATUSES: tuple[Status, ...] = ("ok", "error", "timeout", "memory", "output-limit", "refused")
"""How a program can end: it finished; it raised or exited with a code; it ran too long, needed too much memory, wrote
too much, or tried something forbidden and did not catch the refusal."""

_pickled: PerProcess[Session] = PerProcess(keep=_MOST_PICKLED)  # what the last pickles of this process are copies of


@dataclass(frozen=True, slots=True)
class Result:
    """What a program did. A sandbox that fails raises BackendError instead, so that training can mask the episode."""

    status: Status
    """One of `STATUSES`."""
    stdout: str
    """What it printed, with a note at the end if it was cut."""
    stderr: str
    """What it wrote to the standard error: its traceback, if it raised."""
    seconds: float
    """How long it ran."""
    ended: bool = False
    """Whether a session's interpreter ended with this program, and its variables with it."""

    @property
    def ok(self) -> bool:
        """Whether the program finished."""
        return self.status == "ok"


def bounded_text(output: bytes) -> str:
    r"""Return output as text, with a note where it is cut.

    >>> bounded_text(b"\xff\n"), bounded_text(b"a" * (MAX_OUTPUT + 1))[-32:]
    ('\ufffd\n', 'aa\n[cut: more than 65536 bytes]\n')
    """
    text = output[:MAX_OUTPUT].decode("utf-8", "replace")
    return f"{text}\n[cut: more than {MAX_OUTPUT} bytes]\n" if len(output) > MAX_OUTPUT else text


@dataclass(frozen=True, slots=True)
class Program:
    """A program and what it is given, checked: ConfigError says which argument is wrong."""

    code: str
    """Python."""
    stdin: str = ""
    """What `input()` reads."""
    files: Mapping[str, str | bytes] | None = None
    """The files that `open` reads: names and contents."""
    timeout: float = TIMEOUT
    """Seconds it may run."""
    memory: int = MEMORY
    """Bytes of memory it may use beside the interpreter itself; in a session those of its first program hold."""
    echo: bool = False
    """Whether the value of its last expression is printed, as a notebook does."""
    seed: int | None = None
    """What `random` and `numpy.random` are seeded with before a session's first program; None for something else."""

    def __post_init__(self) -> None:
        if not isinstance(self.code, str) or not isinstance(self.stdin, str):
            raise ConfigError(f"code and stdin must be strings, got {shown(self.code)} and {shown(self.stdin)}")
        if len(self.code) > _MOST_CODE:
            raise ConfigError(f"a program has {len(self.code)} characters; at most {_MOST_CODE} are run")
        checked = {
            "code": clean_text(self.code),
            "stdin": clean_text(self.stdin),
            "files": _checked_files(self.files or {}),
            "timeout": number("timeout", self.timeout, above=0, maximum=LONGEST),
            "memory": integer("memory", self.memory, minimum=1 << 20),
            "seed": None if self.seed is None else integer("seed", self.seed, minimum=0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def contents(self) -> dict[str, bytes]:
        """The files as bytes."""
        return dict(self.files or {})  # type: ignore[arg-type]  # since they were checked


def _checked_files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """Return files by name as bytes; ConfigError if a name is no relative path, or they are too large."""
    contents = {}
    for name, content in files.items():
        if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name.split("/") or "\0" in name:
            raise ConfigError(f"a file's name must be a relative path such as 'table.csv', got {shown(name)}")
        if not isinstance(content, (str, bytes)):
            raise ConfigError(f"the file {name!r} must have text or bytes as its content, got {shown(content)}")
        contents[name] = clean_text(content).encode() if isinstance(content, str) else content
    total = sum(map(len, contents.values()))
    if total > _MOST_FILES:
        raise ConfigError(f"the files have {total} bytes; at most {_MOST_FILES} reach a program")
    return contents


class _Runs:
    """`run`, in words of its own arguments, on top of `execute`."""

    def execute(self, program: Program) -> Result:
        """Run a program.

        Raises:
            BackendError: The sandbox failed, not the program.
        """
        raise NotImplementedError

    def run(self, code: str, **given: Any) -> Result:
        """Run Python; what it is given are the fields of `Program`, the files by name.

        Raises:
            BackendError: The sandbox failed, not the program.
            ConfigError: An argument is wrong.
        """
        return self.execute(Program(code, **given))


class Interpreter(_Runs):
    """A live interpreter, in which each program runs after the ones before. One that is stopped (time, output) ends it.

    Subclasses have `execute`.
    """

    def copy(self) -> Interpreter | None:
        """Return another that goes on from here by itself; None if this one's programs have made that impossible.

        Raises:
            ConfigError: Interpreters of this kind cannot be copied.
        """
        raise ConfigError(
            "a session of this sandbox cannot be copied once a program ran in it: snapshots and branches of an episode "
            "need sandbox='forked' or 'monty'"
        )

    def close(self) -> None:
        """End it."""


class Session(_Runs):
    """Programs that share their variables. Use it in a ``with``, or close it.

    A program that is stopped (time, output) ends the interpreter: `Result.ended` is true, and the next program starts
    without variables. Files stay until they are replaced or the interpreter ends.

    A copy (`copy.deepcopy`, a snapshot of an environment) goes on by itself from where the session is; nothing is run
    again. A pickle does so in this process alone, while it is one of the last 64; loading it elsewhere is a
    ConfigError, unless no program has run yet.
    """

    def __init__(
        self, sandbox: Sandbox, files: Mapping[str, str | bytes] | None = None, seed: int | None = None
    ) -> None:
        self._sandbox = sandbox
        self._files = _checked_files(files or {})
        self._seed = seed
        self._live: Interpreter | None = None
        self._process = os.getpid()
        self._said = ""  # a digest of the programs that made the variables, and of their results

    def execute(self, program: Program) -> Result:
        live = self._own()
        if live is None:
            seed = self._seed if program.seed is None else program.seed
            program = replace(program, files={**self._files, **program.contents}, seed=seed)
            live = self._live = self._sandbox.open_interpreter()
        try:
            result = live.execute(program)
        except BaseException:
            self.close()
            raise
        if result.ended:
            self.close()
        else:
            said = f"{self._said}{program.code}\0{result.status}{result.stdout}"
            self._said = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
        return result

    def close(self) -> None:
        """End the interpreter; the next program starts without variables."""
        live, self._live, self._said = self._live, None, ""
        if live is not None and self._process == os.getpid():
            live.close()

    def _own(self) -> Interpreter | None:
        if self._live is not None and self._process != os.getpid():
            raise ConfigError(
                f"a session goes on in the process in which it began ({self._process}), not in a fork of it"
            )
        return self._live

    def __deepcopy__(self, memo: object) -> Session:
        live = self._own()
        copied = None if live is None else live.copy()
        copy = Session.__new__(Session)
        vars(copy).update(vars(self), _live=copied, _process=os.getpid(), _said=self._said if copied else "")
        return copy

    def __getstate__(self) -> dict[str, object]:
        copy = self.__deepcopy__({})
        state = {**vars(self), "_live": None}
        if copy._live is not None:
            state["token"] = uuid.uuid4().hex
            _pickled.get(state["token"], lambda: copy)
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        token = state.pop("token", None)
        vars(self).update(state, _process=os.getpid())

        def gone() -> NoReturn:
            raise ConfigError(
                "the pickle of a session in which programs ran goes on in its own process alone "
                f"({state['_process']}), while it is one of the last {_MOST_PICKLED}: its variables are nowhere else"
            )

        if token is not None:
            own = copy.deepcopy(_pickled.get(token, gone))
            self._live, own._live = own._live, None

    def __eq__(self, other: object) -> bool:
        """Two sessions are equal if their programs were the same and did the same."""
        return isinstance(other, Session) and self._content() == other._content()

    __hash__ = None  # type: ignore[assignment]

    def _content(self) -> tuple[object, ...]:
        return self._sandbox.name, self._files, self._seed, self._said

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Sandbox(_Runs):
    """Runs programs that are not trusted. Any number of threads may use it at once."""

    name: str
    """Its name, as `open_sandbox` takes it."""

    def execute(self, program: Program) -> Result:
        interpreter = self.open_interpreter()
        try:
            return interpreter.execute(program)
        finally:
            interpreter.close()

    def open_interpreter(self) -> Interpreter:
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
        """Free what the sandbox holds; it starts again when used again."""

    def __deepcopy__(self, memo: object) -> Sandbox:
        return self  # copies of an environment share it
