"""ForkedSandbox: every program or session in a child of its own of one prepared interpreter."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence

from agent_envs.checks import choice
from agent_envs.errors import BackendDownError, BackendError, ConfigError
from agent_envs.sandbox.forked.child import Child
from agent_envs.sandbox.forked.modules import MODULES
from agent_envs.sandbox.forked.zygote_process import WALLS, ZygoteProcess
from agent_envs.sandbox.sandbox import Interpreter, Program, Result, Sandbox

_RUNNING = 4  # programs that run at once for each processor; others wait

_sandboxes: weakref.WeakSet[ForkedSandbox] = weakref.WeakSet()


class ForkedSandbox(Sandbox):
    """Complete CPython in forks of a prepared interpreter, behind kernel walls; Linux on x86-64 and ARM.

    The interpreter starts when first needed and ends with this process, however it ends.

    >>> sandbox = ForkedSandbox()
    >>> sandbox.run("print(6 * 7)").stdout
    '42\\n'
    >>> sandbox.run("open('/etc/passwd')").status
    'refused'
    >>> sandbox.close()

    Args:
        require: Walls without which nothing runs; any of "seccomp", "landlock", "namespaces", "user".
        use: Walls to put up where the system has them.
        modules: What programs can import, where it is installed; sub-modules too where a name ends in ".*".
        warm_up: Programs that the prepared interpreter runs once, for what they leave in its caches.

    Raises:
        BackendError: This is not Linux.
    """

    name = "forked"

    def __init__(
        self,
        *,
        require: Sequence[str] = ("seccomp",),
        use: Sequence[str] = WALLS,
        modules: Sequence[str] = MODULES,
        warm_up: Sequence[str] = (),
    ) -> None:
        if sys.platform != "linux":
            raise BackendError(
                "the sandbox 'forked' needs Linux; others are 'monty', 'docker:IMAGE', 'http://HOST:PORT'"
            )
        for wall in (*require, *use):
            choice("a wall", wall, WALLS)
        if "seccomp" not in use or set(require) - set(use):
            raise ConfigError(f"seccomp and every required wall must be in use: use={use}, require={require}")
        arguments = {"require": require, "use": use, "modules": modules, "warm_up": warm_up}
        self._arguments = {name: tuple(value) for name, value in arguments.items()}
        self._start_anew()
        _sandboxes.add(self)

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        self._zygote: ZygoteProcess | None = None
        # Held here too: if a child were only a session's, a garbage collector that finds both could close its channel
        # before the session ends it.
        self.children: set[Child] = set()
        self.running = _Turns(_RUNNING * len(os.sched_getaffinity(0)))

    def execute(self, program: Program) -> Result:
        with self.running:
            child = self.fork(program.memory)
            try:
                return child.run(program, keep=False)
            finally:
                self.end(child)

    def open_interpreter(self) -> Interpreter:
        return _ForkedInterpreter(self)

    def describe(self) -> dict[str, object]:
        """Return which walls hold here, as the self-check found."""
        zygote = self._running_zygote()
        return {"name": self.name, **zygote.walls, "landlock_abi": zygote.report["landlock"]}

    def modules(self) -> list[str]:
        """Return the names of the top modules that programs can import."""
        return list(self._running_zygote().report["modules"])

    def zygote_pid(self) -> int:
        """Return the process id of the prepared interpreter, for measurements."""
        return self._running_zygote().pid

    def close(self) -> None:
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

    def fork(self, memory: int) -> Child:
        """Return a new child; a BackendError if there is none."""
        zygote = self._running_zygote()
        try:
            child = Child.forked(zygote, memory)
        except BackendDownError:
            if zygote.alive():
                raise
            child = Child.forked(self._running_zygote(), memory)
        self.children.add(child)
        return child

    def end(self, child: Child) -> None:
        """End a child."""
        if child in self.children:
            self.children.discard(child)
            child.close()

    def _running_zygote(self) -> ZygoteProcess:
        with self._lock:
            if self._zygote is None or not self._zygote.alive():
                if self._zygote is not None:
                    self._zygote.close()
                self._zygote = ZygoteProcess(**self._arguments)
            return self._zygote

    def abandon(self) -> None:
        """Forget the parent's processes in a fork of this process."""
        for child in self.children:
            child.abandon()
        if self._zygote is not None:
            self._zygote.abandon()
        self._start_anew()

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._arguments,)


class _ForkedInterpreter(Interpreter):
    """A child, which is forked when the first program comes: that one's memory is the limit of all."""

    def __init__(self, sandbox: ForkedSandbox, child: Child | None = None) -> None:
        self._sandbox, self._child = sandbox, child

    def execute(self, program: Program) -> Result:
        with self._sandbox.running:
            if self._child is None:
                self._child = self._sandbox.fork(program.memory)
            return self._child.run(program, keep=True)

    def copy(self) -> Interpreter | None:
        copy = None if self._child is None else self._child.copy()
        if copy is None:
            return None
        self._sandbox.children.add(copy)
        return _ForkedInterpreter(self._sandbox, copy)

    def close(self) -> None:
        if self._child is not None:
            self._sandbox.end(self._child)


class _Turns:
    """So many threads at once, in the order in which they come: a semaphore lets others pass one that waits."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._free = most
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()
        except BaseException:  # an interrupt: it waits no longer, or passes on the turn that it was given
            with self._lock:
                has_turn = turn not in self._waiting
                if not has_turn:
                    self._waiting.remove(turn)
            if has_turn:
                self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


def _reopened(arguments: dict[str, tuple[str, ...]]) -> ForkedSandbox:
    """Return the sandbox of a pickle: the process's own if that has these arguments."""
    own = (sandbox for sandbox in list(_sandboxes) if sandbox._arguments == arguments)
    return next(own, None) or ForkedSandbox(**arguments)


@atexit.register
def _close_all() -> None:
    for sandbox in list(_sandboxes):
        sandbox.close()
        sandbox.abandon()  # sessions that are left have nothing to end when modules are gone


def _abandon_all() -> None:
    for sandbox in list(_sandboxes):
        sandbox.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
