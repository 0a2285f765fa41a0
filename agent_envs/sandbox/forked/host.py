"""ForkedSandbox: lanes shared by any number of threads, and sessions that hold one."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence

from agent_envs.checks import choice, integer
from agent_envs.errors import BackendDownError, ConfigError
from agent_envs.sandbox.forked.interpreters import INTERPRETERS, needed
from agent_envs.sandbox.forked.lanes import Lane, Pool, Turns
from agent_envs.sandbox.forked.zygote_process import WALLS, Prepared, ZygoteProcess
from agent_envs.sandbox.result import Result
from agent_envs.sandbox.sandbox import Interpreter, Program, Sandbox

__all__ = ["ForkedSandbox", "LaneSandbox", "reopened"]

_open_sandboxes: weakref.WeakSet[LaneSandbox] = weakref.WeakSet()


class LaneSandbox(Sandbox):
    """Programs in forks of prepared interpreters, which start when first needed and end with this process.

    A subclass says which interpreters there are, and which of them a program needs.

    Args:
        interpreters: What is prepared.
        require: Walls without which nothing runs.
        use: Walls to put up where the system has them.
        max_output: Bytes of stdout and of stderr that a program may write.
        max_running: Programs that run at once, others wait; by default four for each processor.
    """

    def __init__(
        self,
        interpreters: Sequence[Prepared],
        *,
        require: Sequence[str],
        use: Sequence[str],
        max_output: int,
        max_running: int | None,
    ) -> None:
        for wall in (*require, *use):
            choice("a wall", wall, WALLS)
        if set(require) - set(use):
            raise ConfigError(f"every required wall must be in use: use={use}, require={require}")
        self._interpreters = tuple(interpreters)
        self._require, self._use = tuple(require), tuple(use)
        self.max_output = integer("max_output", max_output, minimum=1, maximum=1 << 28)
        processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        self._ready = processors + 1
        self._most = 4 * processors if max_running is None else integer("max_running", max_running, minimum=1)
        self._start_anew()
        _open_sandboxes.add(self)

    def _start_anew(self) -> None:
        self._locks = [threading.Lock() for _ in self._interpreters]
        self._pools: list[Pool | None] = [None] * len(self._interpreters)
        self.running = Turns(self._most)

    def execute(self, program: Program) -> Result:
        with self.running, self._lane(self.size_needed(program.code)) as lane:
            return lane.ask(program, self.max_output, keep=False)

    def open_interpreter(self, size: int = 0) -> Interpreter:
        return _KeptInterpreter(self, *self._take(size))

    def describe(self) -> dict[str, object]:
        """Return which walls hold here, as the self-check of the plain interpreter found."""
        zygote = self._pool(0).zygote
        return {"name": self.name, **zygote.walls, "landlock_abi": zygote.report["landlock"]}

    def zygote_pid(self, size: int = 0) -> int:
        """Return the process id of the interpreter of a size, for measurements."""
        return self._pool(size).zygote.pid

    def close(self) -> None:
        for number, lock in enumerate(self._locks):
            with lock:
                pool, self._pools[number] = self._pools[number], None
            if pool is not None:
                pool.close()
                pool.zygote.close()

    def _pool(self, number: int) -> Pool:
        pool = self._pools[number]
        if pool is not None and pool.zygote.alive():
            return pool
        with self._locks[number]:
            pool = self._pools[number]
            if pool is None or not pool.zygote.alive():
                if pool is not None:
                    pool.close()
                    pool.zygote.close()
                pool = self._pools[number] = self._started(number)
            return pool

    def _started(self, number: int) -> Pool:
        """Start an interpreter."""
        return Pool(ZygoteProcess(self._interpreters[number], require=self._require, use=self._use), self._ready)

    def _take(self, number: int) -> tuple[Pool, Lane]:
        """Return a lane of an interpreter for the caller alone, and the pool it belongs to."""
        pool = self._pool(number)
        try:
            return pool, pool.take()
        except BackendDownError:  # the zygote has died since
            pool.zygote.close()
            pool = self._pool(number)
            return pool, pool.take()

    @contextlib.contextmanager
    def _lane(self, number: int) -> Iterator[Lane]:
        pool, lane = self._take(number)
        try:
            yield lane
        except BaseException:
            pool.give_up(lane)
            raise
        pool.give_back(lane)

    def abandon(self) -> None:
        """Forget the parent's processes in a fork of this process."""
        for pool in self._pools:
            if pool is not None:
                pool.abandon()
        self._start_anew()


class ForkedSandbox(LaneSandbox):
    """Complete CPython in forks of prepared interpreters, behind kernel walls; Linux on x86-64 and ARM.

    Interpreters start when first needed and end with this process, however it ends.

    >>> sandbox = ForkedSandbox()
    >>> sandbox.run("print(6 * 7)").stdout
    '42\\n'
    >>> sandbox.run("open('/etc/passwd')").status
    'refused'
    >>> sandbox.close()

    Args:
        require: Walls without which nothing runs; any of "seccomp", "landlock", "namespaces", "user".
        use: Walls to put up where the system has them.
        max_output: Bytes of stdout and of stderr that a program may write.
        max_running: Programs that run at once, others wait; by default four for each processor.
    """

    name = "forked"

    def __init__(
        self,
        *,
        require: Sequence[str] = ("seccomp",),
        use: Sequence[str] = WALLS,
        max_output: int = 65536,
        max_running: int | None = None,
    ) -> None:
        if "seccomp" not in use:
            raise ConfigError(f"seccomp must be in use, got use={use}")
        super().__init__(INTERPRETERS, require=require, use=use, max_output=max_output, max_running=max_running)

    def size_needed(self, code: str, at_least: int = 0) -> int:
        return needed(code, at_least)

    def modules(self, interpreter: str = "plain") -> list[str]:
        """Return the names of the top modules that programs can import in "plain", "math", "data" or "all"."""
        names = [one.name for one in INTERPRETERS]
        return list(self._pool(names.index(choice("interpreter", interpreter, names))).zygote.report["modules"])

    def __reduce__(self) -> tuple[object, ...]:
        return reopened, (ForkedSandbox, self._require, self._use, self.max_output, self._most)


class _KeptInterpreter(Interpreter):
    """A lane that keeps its child."""

    def __init__(self, sandbox: LaneSandbox, pool: Pool, lane: Lane) -> None:
        self._sandbox, self._pool, self._lane = sandbox, pool, lane
        self._usable = True

    def execute(self, program: Program) -> Result:
        try:
            with self._sandbox.running:
                return self._lane.ask(program, self._sandbox.max_output, keep=True)
        except BaseException:
            self._usable = False
            self._pool.give_up(self._lane)
            raise

    def close(self) -> None:
        if self._usable:
            self._usable = False
            self._lane.discard()
            self._pool.give_back(self._lane)


def reopened(kind: Callable[..., LaneSandbox], *arguments: object) -> LaneSandbox:
    """Return the sandbox of a pickle: the process's own if that has these arguments."""
    for sandbox in list(_open_sandboxes):
        if sandbox.__reduce__()[1] == (kind, *arguments):
            return sandbox
    require, use, max_output, max_running, *others = arguments
    return kind(*others, require=require, use=use, max_output=max_output, max_running=max_running)


def _abandon_all() -> None:
    for sandbox in list(_open_sandboxes):
        sandbox.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
