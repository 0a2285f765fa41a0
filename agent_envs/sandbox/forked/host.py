"""ForkedSandbox: lanes shared by any number of threads, and sessions that hold one."""

from __future__ import annotations

import contextlib
import marshal
import os
import queue
import select
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence

from agent_envs.checks import choice, integer
from agent_envs.errors import BackendDownError, BackendReplyError, BackendSlowError, ConfigError
from agent_envs.sandbox.forked.interpreters import INTERPRETERS, needed
from agent_envs.sandbox.forked.zygote_process import WALLS, ZygoteProcess
from agent_envs.sandbox.inside import wire
from agent_envs.sandbox.result import STATUSES, Result, bounded_text
from agent_envs.sandbox.sandbox import Interpreter, Program, Sandbox

__all__ = ["ForkedSandbox"]

_GRACE = 30.0  # seconds beyond a program's time after which a lane that says nothing is given up
_STATUS_OF = dict(
    zip((wire.OK, wire.ERROR, wire.TIMEOUT, wire.MEMORY, wire.OUTPUT, wire.REFUSED), STATUSES, strict=True)
)
_open_sandboxes: weakref.WeakSet[ForkedSandbox] = weakref.WeakSet()


class _Lane:
    """A connection to a lane."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(True)

    def alive(self) -> bool:
        """Return whether it is there: an idle lane says nothing, so what can be read is its end."""
        return not select.select([self._connection], [], [], 0)[0]

    def ask(self, program: Program, output: int, keep: bool) -> Result:
        payload = marshal.dumps(
            (program.code, program.stdin.encode(), dict(program.files), program.echo, keep, program.seed)
        )
        flags = wire.KEEP if keep else 0
        head = wire.REQUEST.pack(len(payload), program.timeout, program.memory, output, flags)
        try:
            self._connection.settimeout(program.timeout * 1.5 + _GRACE)
            self._connection.sendall(head + payload)
            answer = wire.ANSWER.unpack(self._read(wire.ANSWER.size))
            status, ended, out_length, err_length, seconds = answer
            out, err = self._read(out_length), self._read(err_length)
        except TimeoutError as e:
            raise BackendSlowError(f"the sandbox did not answer {_GRACE:g} s after the program's time was over") from e
        except (OSError, EOFError) as e:
            raise BackendDownError("the process that ran the program is gone") from e
        if status == wire.FAULT:
            raise BackendDownError("the program's process was killed from outside, perhaps for lack of memory")
        if status not in _STATUS_OF:
            raise BackendReplyError(f"the sandbox answered with the unknown status {status}")
        return Result(
            _STATUS_OF[status],
            bounded_text(out, output),
            bounded_text(err, output),
            seconds,
            bool(ended),
        )

    def discard(self) -> None:
        """Have the lane throw away the interpreter that it kept."""
        with contextlib.suppress(OSError):  # a dead lane keeps none
            self._connection.sendall(wire.REQUEST.pack(0, 0.0, 0, 0, wire.DISCARD))

    def close(self) -> None:
        self._connection.close()

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._connection.recv(min(length, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


class _Pool:
    """A zygote and its lanes, those that nobody uses now and the others."""

    def __init__(self, zygote: ZygoteProcess, ready: int) -> None:
        self.zygote = zygote
        self.closed = False
        self.idle: queue.SimpleQueue[_Lane] = queue.SimpleQueue()  # the longest unused first: its next child is ready
        # Held here too: if a lane were only a session's, a garbage collector that finds both could close its connection
        # before the session gives the lane back.
        self._used: set[_Lane] = set()
        for _ in range(ready):
            self.idle.put(_Lane(zygote.lane()))

    def take(self) -> _Lane:
        with contextlib.suppress(queue.Empty):
            while True:
                lane = self.idle.get_nowait()
                if lane.alive():
                    self._used.add(lane)
                    return lane
                lane.close()
        lane = _Lane(self.zygote.lane())
        self._used.add(lane)
        return lane

    def give_back(self, lane: _Lane) -> None:
        self._used.discard(lane)
        self.idle.put(lane)
        if self.closed:
            self.close()

    def give_up(self, lane: _Lane) -> None:
        """Close a lane: what it would still say is nobody's."""
        self._used.discard(lane)
        lane.close()

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self.idle.get_nowait().close()

    def abandon(self) -> None:
        """Forget it in a fork of this process."""
        self.close()
        for lane in self._used:
            lane.close()
        self.zygote.abandon()


class ForkedSandbox(Sandbox):
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
        for wall in (*require, *use):
            choice("a wall", wall, WALLS)
        if "seccomp" not in use or set(require) - set(use):
            raise ConfigError(f"seccomp must be in use, and every required wall: use={use}, require={require}")
        self._require, self._use = tuple(require), tuple(use)
        self.max_output = integer("max_output", max_output, minimum=1, maximum=1 << 28)
        processors = len(os.sched_getaffinity(0))
        self._ready = processors + 1
        self._most = 4 * processors if max_running is None else integer("max_running", max_running, minimum=1)
        self._start_anew()
        _open_sandboxes.add(self)

    def _start_anew(self) -> None:
        self._locks = [threading.Lock() for _ in INTERPRETERS]
        self._pools: list[_Pool | None] = [None] * len(INTERPRETERS)
        self.running = threading.BoundedSemaphore(self._most)

    def execute(self, program: Program) -> Result:
        with self._lane(needed(program.code)) as lane, self.running:
            return lane.ask(program, self.max_output, keep=False)

    def size_needed(self, code: str, at_least: int = 0) -> int:
        return needed(code, at_least)

    def open_interpreter(self, size: int = 0) -> Interpreter:
        return _KeptInterpreter(self, *self._take(size))

    def describe(self) -> dict[str, object]:
        """Return which walls hold here, as the self-check of the plain interpreter found."""
        zygote = self._pool(0).zygote
        return {"name": self.name, **zygote.walls, "landlock_abi": zygote.report["landlock"]}

    def zygote_pid(self) -> int:
        """Return the process id of the plain interpreter, for measurements."""
        return self._pool(0).zygote.pid

    def modules(self, interpreter: str = "plain") -> list[str]:
        """Return the names of the top modules that programs can import in "plain", "math", "data" or "all"."""
        names = [one.name for one in INTERPRETERS]
        return list(self._pool(names.index(choice("interpreter", interpreter, names))).zygote.report["modules"])

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._require, self._use, self.max_output, self._most)

    def close(self) -> None:
        for number, lock in enumerate(self._locks):
            with lock:
                pool, self._pools[number] = self._pools[number], None
            if pool is not None:
                pool.close()
                pool.zygote.close()

    def _pool(self, number: int) -> _Pool:
        pool = self._pools[number]
        if pool is not None and pool.zygote.alive():
            return pool
        with self._locks[number]:
            pool = self._pools[number]
            if pool is None or not pool.zygote.alive():
                if pool is not None:
                    pool.close()
                    pool.zygote.close()
                pool = _Pool(ZygoteProcess(INTERPRETERS[number], require=self._require, use=self._use), self._ready)
                self._pools[number] = pool
            return pool

    def _take(self, number: int) -> tuple[_Pool, _Lane]:
        """Return a lane of an interpreter for the caller alone, and the pool it belongs to."""
        pool = self._pool(number)
        try:
            return pool, pool.take()
        except BackendDownError:  # the zygote has died since
            pool.zygote.close()
            pool = self._pool(number)
            return pool, pool.take()

    @contextlib.contextmanager
    def _lane(self, number: int) -> Iterator[_Lane]:
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


class _KeptInterpreter(Interpreter):
    """A lane that keeps its child."""

    def __init__(self, sandbox: ForkedSandbox, pool: _Pool, lane: _Lane) -> None:
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


def _reopened(require: tuple[str, ...], use: tuple[str, ...], max_output: int, max_running: int) -> ForkedSandbox:
    """Return the sandbox of a pickle: the process's own if that has these arguments."""
    for sandbox in list(_open_sandboxes):
        if sandbox.__reduce__()[1] == (require, use, max_output, max_running):
            return sandbox
    return ForkedSandbox(require=require, use=use, max_output=max_output, max_running=max_running)


def _abandon_all() -> None:
    for sandbox in list(_open_sandboxes):
        sandbox.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
