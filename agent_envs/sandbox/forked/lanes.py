"""The host's side of lanes: connections that run programs, and the pool of them that threads share."""

from __future__ import annotations

import contextlib
import marshal
import queue
import select
import socket
import threading
from collections import deque

from agent_envs.errors import BackendDownError, BackendReplyError, BackendSlowError
from agent_envs.sandbox.forked.zygote_process import ZygoteProcess
from agent_envs.sandbox.inside import wire
from agent_envs.sandbox.result import STATUSES, Result, bounded_text
from agent_envs.sandbox.sandbox import Program

__all__ = ["Lane", "Pool", "Turns"]

_GRACE = 30.0  # seconds beyond a program's time after which a lane that says nothing is given up
_MARSHAL = 4  # a version that every Python reads
_STATUS_OF = dict(
    zip((wire.OK, wire.ERROR, wire.TIMEOUT, wire.MEMORY, wire.OUTPUT, wire.REFUSED), STATUSES, strict=True)
)


class Lane:
    """A connection to a lane."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.setblocking(True)

    def alive(self) -> bool:
        """Return whether it is there: an idle lane says nothing, so what can be read is its end."""
        return not select.select([self._connection], [], [], 0)[0]

    def ask(self, program: Program, output: int, keep: bool) -> Result:
        """Run a program there.

        Args:
            program: The program.
            output: Bytes of stdout and of stderr that it may write.
            keep: Whether its interpreter is kept for the next one.

        Raises:
            BackendError: The lane or its child failed.
        """
        payload = marshal.dumps(
            (program.code, program.stdin.encode(), dict(program.files), program.echo, keep, program.seed), _MARSHAL
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
        """Close the connection, which ends the lane."""
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


class Pool:
    """A zygote and its lanes, those that nobody uses now and the others."""

    def __init__(self, zygote: ZygoteProcess, ready: int) -> None:
        self.zygote = zygote
        self.closed = False
        self.idle: queue.SimpleQueue[Lane] = queue.SimpleQueue()  # the longest unused first: its next child is ready
        # Held here too: if a lane were only a session's, a garbage collector that finds both could close its connection
        # before the session gives the lane back.
        self._used: set[Lane] = set()
        for _ in range(ready):
            self.idle.put(Lane(zygote.lane()))

    def take(self) -> Lane:
        """Return a lane for the caller alone."""
        with contextlib.suppress(queue.Empty):
            while True:
                lane = self.idle.get_nowait()
                if lane.alive():
                    self._used.add(lane)
                    return lane
                lane.close()
        lane = Lane(self.zygote.lane())
        self._used.add(lane)
        return lane

    def give_back(self, lane: Lane) -> None:
        """Take back a lane that has answered."""
        self._used.discard(lane)
        self.idle.put(lane)
        if self.closed:
            self.close()

    def give_up(self, lane: Lane) -> None:
        """Close a lane: what it would still say is nobody's."""
        self._used.discard(lane)
        lane.close()

    def close(self) -> None:
        """Close the lanes that nobody uses; the others follow when they are given back."""
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


class Turns:
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
                given = turn not in self._waiting
                if not given:
                    self._waiting.remove(turn)
            if given:
                self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
