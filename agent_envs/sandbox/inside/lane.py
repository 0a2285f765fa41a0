"""A lane: it serves one connection of the host, and holds one child with its walls already up.

It is trusted: it never runs a program, and takes nothing from a child but bytes of output and a status byte.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Callable

from agent_envs.sandbox.inside import wire
from agent_envs.sandbox.inside.walls import die_with_parent

__all__ = ["Lane"]

_CHUNK = 1 << 16
_QUIET_SECONDS = 0.003  # how long output waits in its pipe: most programs end before, and wake the lane only once


class _Child:
    """A child as the lane sees it. In the child itself its process id is 0.

    Args:
        enter: What the child does first, given the descriptors that it keeps.
        piped: Whether the end of the child is seen by the end of a pipe: for children that cannot close descriptors.
    """

    def __init__(self, enter: Callable[[tuple[int, ...]], None], *, piped: bool) -> None:
        requests, self.requests = os.pipe()
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.status, status = os.pipe()
        null, null_end = os.pipe()
        os.close(null_end)
        kept = [null, out, err, requests, status]
        if piped:
            self.end, end = os.pipe()
            kept.append(end)
        lane = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            try:
                die_with_parent(lane)
                enter(tuple(kept))
            except BaseException:  # noqa: BLE001  the lane sees the end, and nothing may run on
                os._exit(86)
            return
        for descriptor in kept:
            os.close(descriptor)
        for descriptor in (self.requests, self.out, self.err, self.status):
            os.set_blocking(descriptor, False)
        if not piped:
            self.end = os.pidfd_open(self.pid)
        self.used = False

    def gone(self) -> bool:
        return bool(select.select([self.end], [], [], 0)[0])

    def kill(self) -> int:
        """Kill it and return its wait status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        for descriptor in (self.requests, self.out, self.err, self.status, self.end):
            os.close(descriptor)
        return status


class Lane:
    """Serves a connection until the host closes it or dies.

    Args:
        connection: A connected stream socket's descriptor.
        host: A descriptor that becomes readable when the host dies.
        enter: What a child does first, given the descriptors 0 to 4 that it is to have, and perhaps more to keep open.
        base: Bytes of address space that a child has from the start, which limits it to these and what a program is
            given; None for children that limit themselves and cannot close descriptors: WebAssembly's.
    """

    def __init__(self, connection: int, host: int, enter: Callable[[tuple[int, ...]], None], base: int | None) -> None:
        self._connection, self._host, self._enter, self._base = connection, host, enter, base
        self._child: _Child | None = None

    def serve(self) -> None:
        """Answer requests. It returns in every new child; the lane itself ends by EOFError or OSError."""
        waiting = select.poll()
        waiting.register(self._connection, select.POLLIN)
        waiting.register(self._host, select.POLLIN)
        while True:
            if self._child is None and self._fork():
                return
            if any(descriptor == self._host for descriptor, _ in waiting.poll()):
                raise EOFError
            head = wire.read_exactly(self._connection, wire.REQUEST.size)
            length, seconds, memory, output, flags = wire.REQUEST.unpack(head)
            program = wire.read_exactly(self._connection, length)
            assert self._child is not None
            if flags & wire.DISCARD:
                if self._child.used:
                    self._reap()
                continue
            if not self._child.used and self._child.gone():
                self._reap()
                if self._fork():
                    return
            self._answer(program, seconds, memory, output, bool(flags & wire.KEEP))

    def _fork(self) -> bool:
        """Make a child; return whether this is the child."""
        self._child = _Child(self._enter, piped=self._base is None)
        return not self._child.pid

    def _answer(self, program: bytes, seconds: float, memory: int, output: int, keep: bool) -> None:
        start = time.monotonic()
        run = _Run(self._started(memory), output, (self._connection, self._host))
        status = run.play(wire.PROGRAM.pack(len(program), memory) + program, start + seconds)
        took = time.monotonic() - start
        ended = run.exited or status in (wire.TIMEOUT, wire.OUTPUT)
        if ended:
            status = self._ended(status, run)
        out, err = bytes(run.out), bytes(run.err)
        answer = wire.ANSWER.pack(status, ended, len(out), len(err), took) + out + err
        while answer:
            answer = answer[os.write(self._connection, answer) :]
        if not keep and not ended:
            self._reap()

    def _started(self, memory: int) -> _Child:
        """Return the child with its memory limited to what it has and `memory` bytes more."""
        assert self._child is not None
        self._child.used = True
        if self._base is None:
            return self._child
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone, or a session's: limited already
            resource.prlimit(self._child.pid, resource.RLIMIT_AS, (self._base + memory, self._base + memory))
        return self._child

    def _ended(self, status: int, run: _Run) -> int:
        """Reap a child that exited, or that is over a limit, and return the status of its run."""
        code = os.waitstatus_to_exitcode(self._reap())
        if not run.exited or status in (wire.TIMEOUT, wire.OUTPUT):
            return status
        if code == 0:
            return wire.OK
        if code > 0:
            run.err += f"the program ended with exit code {code}\n".encode()
            return wire.ERROR
        if -code == signal.SIGKILL:  # nobody inside can send it
            return wire.FAULT
        run.err += f"the interpreter was ended by {signal.Signals(-code).name}\n".encode()
        return wire.REFUSED if -code == signal.SIGSYS else wire.ERROR

    def _reap(self) -> int:
        assert self._child is not None
        ended, self._child = self._child, None
        return ended.kill()


class _Run:
    """One program under way in a child: what is sent to it and what comes back."""

    def __init__(self, child_: _Child, output: int, watched: tuple[int, int]) -> None:
        self._child, self._output, self._watched = child_, output, watched
        self.out, self.err = bytearray(), bytearray()
        self.exited = False

    def play(self, request: bytes, deadline: float) -> int:
        """Send the program, collect its output, and return its status when it is done or the deadline passes."""
        child_, poll = self._child, select.poll()
        for descriptor in (child_.status, child_.end, *self._watched):
            poll.register(descriptor, select.POLLIN)
        unsent = self._send(memoryview(request))
        if unsent:
            poll.register(child_.requests, select.POLLOUT)
        quiet = _QUIET_SECONDS
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                self._drain()
                return wire.TIMEOUT
            ready = poll.poll(min(quiet or left, left) * 1000 + 1)
            if quiet and not ready:
                quiet = 0.0
                for descriptor in (child_.out, child_.err):
                    poll.register(descriptor, select.POLLIN)
            for descriptor, _ in ready:
                if descriptor in self._watched:
                    raise EOFError  # nobody waits for the answer
                if descriptor == child_.requests:
                    unsent = self._send(unsent)
                    if not unsent:
                        poll.unregister(descriptor)
                elif descriptor == child_.end:
                    self.exited = True
                    return wire.OUTPUT if self._drain() else wire.ERROR
                elif descriptor == child_.status:
                    said = os.read(descriptor, 1)
                    if not said:
                        poll.unregister(descriptor)  # it has closed its end, and will exit or time out
                    else:
                        over = self._drain()
                        known = said[0] in (wire.OK, wire.ERROR, wire.MEMORY, wire.REFUSED)
                        return wire.OUTPUT if over else said[0] if known else wire.ERROR
                elif not self._read(descriptor):
                    poll.unregister(descriptor)
                elif self._over():
                    return wire.OUTPUT

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(self._child.requests, unsent) :]
        except BlockingIOError:
            return unsent
        except BrokenPipeError:  # it has ended, or will read no program again
            return unsent[:0]

    def _read(self, descriptor: int) -> bool:
        """Read what is there; return False at the end of the stream."""
        try:
            part = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        taken = self.out if descriptor == self._child.out else self.err
        taken += part[: max(0, self._output + 1 - len(taken))]
        return bool(part)

    def _drain(self) -> bool:
        """Read all that has been written; return whether it is over the limit."""
        for descriptor in (self._child.out, self._child.err):
            while not self._over() and select.select([descriptor], [], [], 0)[0] and self._read(descriptor):
                pass
        return self._over()

    def _over(self) -> bool:
        return len(self.out) > self._output or len(self.err) > self._output
