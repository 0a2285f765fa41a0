"""The host's hold on one child of a zygote: running programs in it within their limits, copying and ending it.

It takes nothing from a child but bytes of output, a status byte, and what only the kernel and the zygote can say.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import select
import signal
import socket
import struct
import threading
import time

from agent_envs.errors import BackendDownError, BackendSlowError, ConfigError
from agent_envs.sandbox.forked.zygote_process import ZygoteProcess, process_id
from agent_envs.sandbox.inside import wire
from agent_envs.sandbox.sandbox import MAX_OUTPUT, Program, Result, Status, bounded_text

_START_SECONDS = 60.0
_COPY_SECONDS = 10.0
_END_SECONDS = 1.0  # its children's channels close before a zygote has ended
_CHUNK = 1 << 16
_SAID: dict[int, Status] = {wire.OK: "ok", wire.MEMORY: "memory", wire.REFUSED: "refused"}
# linux/seccomp.h: struct seccomp_notif begins with a number and the process; SECCOMP_USER_NOTIF_FLAG_CONTINUE is 1.
_NOTIFICATION, _RECEIVE, _SEND = 80, 0xC0502100, 0xC0182101


class _Family:
    """A child and the copies of it and of its copies: one process group, and one descriptor that asks for copies."""

    def __init__(self, listener: int, leader: int) -> None:
        self.listener, self.leader = listener, leader
        self.members = {leader}
        self.lock = threading.Lock()

    def copied(self, parent: int) -> int | None:
        """Let a member copy itself once and return the copy's process; None if it does not in time."""
        import fcntl  # Windows has none

        waiting, deadline, cloned = select.poll(), time.monotonic() + _COPY_SECONDS, False
        waiting.register(self.listener, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0 and (ready := waiting.poll(left * 1000)):
            if ready[0][1] & select.POLLHUP:
                return None
            asked = bytearray(_NOTIFICATION)
            try:
                fcntl.ioctl(self.listener, _RECEIVE, asked)
                number, caller = struct.unpack_from("<QI", asked)
                copy = os.pidfd_open(caller) if caller not in self.members else None
                passes = caller == parent and not cloned
                answer = struct.pack("<QqiI", number, 0, 0 if passes else -errno.EPERM, passes)
                fcntl.ioctl(self.listener, _SEND, answer)
            except OSError:  # who asked has ended
                continue
            cloned |= passes
            if copy is not None:
                self.members.add(caller)
                return copy
        return None

    def end(self) -> None:
        """End all members, those too that nobody knows: until the last hangs up, no other has the leader's number."""
        waiting = select.poll()
        waiting.register(self.listener, 0)
        if not waiting.poll(0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.leader, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self.listener)


class Child:
    """A child of a zygote: the host's end of the channel to it, its pidfd, and the family through which it is copied.

    The family is None where the kernel cannot copy.
    """

    def __init__(self, zygote: ZygoteProcess, channel: socket.socket, process: int, family: _Family | None) -> None:
        channel.setblocking(False)
        self._zygote, self._channel, self._process, self._family = zygote, channel, process, family
        self._pid = process_id(process)

    @classmethod
    def forked(cls, zygote: ZygoteProcess, memory: int) -> Child:
        """Return a new child of a zygote, with its walls up; a BackendError if there is none."""
        ours, theirs = socket.socketpair()
        with theirs:
            zygote.ask(memory, theirs.fileno())
        ours.settimeout(_START_SECONDS)
        try:
            _, held, _, _ = socket.recv_fds(ours, 1, 2)
        except TimeoutError as e:
            ours.close()
            raise BackendSlowError(f"the sandbox's zygote forked nothing within {_START_SECONDS:g} s") from e
        except OSError:
            held = []
        if not held:
            ours.close()
            raise BackendDownError("the sandbox's zygote cannot fork: it has ended, or the machine has no room")
        process, *listener = held
        return cls(zygote, ours, process, _Family(listener[0], process_id(process)) if listener else None)

    def run(self, program: Program, keep: bool) -> Result:
        """Run a program. With `keep` another may follow; the child is stopped until then.

        Raises BackendDownError if the zygote has ended, and the child with it.
        """
        fields = (program.code, program.stdin.encode(), program.contents, program.echo, keep, program.seed)
        request = marshal.dumps(fields)
        output, errors = os.pipe(), os.pipe()
        for reading in (output[0], errors[0]):
            os.set_blocking(reading, False)
        start = time.monotonic()
        run = _Run(self._channel, output[0], errors[0])
        try:
            run.forget()
            self._signal(signal.SIGCONT)
            said = run.play(wire.PROGRAM.pack(len(request)) + request, (output[1], errors[1]), start + program.timeout)
            run.drain()
        finally:
            for descriptor in (*output, *errors):
                os.close(descriptor)
        ended = run.end is not None or said in ("timeout", "output-limit")
        status: Status = "output-limit" if run.over() and said != "timeout" else said
        if run.end is not None:
            status, words = self._ending(run.end, status)
            run.taken[errors[0]] += words.encode()
        elif keep and not ended:
            self._signal(signal.SIGSTOP)
        took = time.monotonic() - start
        out, err = (bounded_text(bytes(text)) for text in run.taken.values())
        return Result(status, out, err, took, ended)

    def copy(self) -> Child | None:
        """Return a copy of it, stopped; None if its programs have made that impossible: then all copies of it end too.

        Raises ConfigError if the system cannot copy children.
        """
        if self._family is None:
            raise ConfigError("this system's kernel cannot copy a session in which programs ran (it needs Linux 5.9)")
        ours, theirs = socket.socketpair()
        with theirs, self._family.lock:
            self._signal(signal.SIGCONT)
            try:
                socket.send_fds(self._channel, [wire.PROGRAM.pack(0)], [theirs.fileno()])
                process = self._family.copied(self._pid)
            except OSError:  # it has ended, or has filled the channel
                process = None
            if process is None:
                self._family.end()
                ours.close()
                return None
            self._zygote.ask(0, theirs.fileno(), process)
        copy = Child(self._zygote, ours, process, self._family)
        for each in (self, copy):
            each._signal(signal.SIGSTOP)
        return copy

    def close(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)
        self.abandon()

    def abandon(self) -> None:
        """Forget it without ending it: in a fork of the host it belongs to the parent."""
        if self._family is not None:
            self._family.members.discard(self._pid)
        self._channel.close()
        os.close(self._process)
        self._family = None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)

    def _ending(self, code: int, status: Status) -> tuple[Status, str]:
        """Return the status of a program in which the child ended, and what is said of it."""
        if code == _Run.UNKNOWN and not self._zygote.alive(_END_SECONDS):
            raise BackendDownError("the sandbox's zygote has ended")
        if status == "output-limit" or code == 0:
            return status, ""
        if code == _Run.UNKNOWN:
            return "error", "the interpreter ended\n"
        if code > 0:
            return "error", f"the program ended with exit code {code}\n"
        if code == -signal.SIGKILL:  # nobody inside can send it: the kernel did, for want of memory
            return "memory", "the interpreter was killed\n"
        words = f"the interpreter was ended by {signal.Signals(-code).name}\n"
        return ("refused" if code == -signal.SIGSYS else "error"), words


class _Run:
    """One program under way in a child: what is sent to it and what comes back."""

    UNKNOWN = 1 << 16  # the end of a child of which nobody says how

    def __init__(self, channel: socket.socket, output: int, errors: int) -> None:
        self._channel = channel
        self.taken = {output: bytearray(), errors: bytearray()}
        self.end: int | None = None
        """The code of the child's end, if it ended."""

    def forget(self) -> None:
        """Drop what earlier programs said too much. The child is stopped, so that it cannot go on saying more."""
        while self.end is None and self._heard() is not None:
            pass

    def play(self, request: bytes, descriptors: tuple[int, int], deadline: float) -> Status:
        """Send the program, collect its output, and return its status when it is done or the deadline passes."""
        if self.end is not None:
            return "ok"
        poll, channel = select.poll(), self._channel.fileno()
        unsent = memoryview(request)
        poll.register(channel, select.POLLIN | select.POLLOUT)
        for reading in self.taken:
            poll.register(reading, select.POLLIN)
        while (left := deadline - time.monotonic()) > 0:
            for ready, event in poll.poll(left * 1000 + 1):
                if ready != channel:
                    self._read(ready)
                    if self.over():
                        return "output-limit"
                elif event & ~select.POLLOUT and (said := self._heard()) is not None:
                    return said
                elif event & select.POLLOUT:
                    with contextlib.suppress(OSError):  # it is full, or the child has ended, which is heard next
                        first = len(unsent) == len(request)
                        sent = socket.send_fds(self._channel, [unsent[: 1 << 20]], descriptors if first else ())
                        unsent = unsent[sent:]
                    if not unsent:
                        poll.modify(channel, select.POLLIN)
        return "timeout"

    def _heard(self) -> Status | None:
        """Return the status that is on the channel, if there is one; at the child's end note how it ended."""
        try:
            said, held, _, _ = socket.recv_fds(self._channel, 1, 1)
            if said and not held:
                return _SAID.get(said[0], "error")
            said += self._channel.recv(1) if held else b""
        except BlockingIOError:
            return None
        except OSError:  # its end of the channel was closed with bytes unread
            said, held = b"", []
        for descriptor in held:
            os.close(descriptor)
        self.end = wire.END.unpack(said)[0] if held else self.UNKNOWN
        return "ok"

    def drain(self) -> None:
        """Read all that has been written, up to the limit."""
        for reading in self.taken:
            while not self.over() and self._read(reading):
                pass

    def _read(self, reading: int) -> int:
        try:
            part = os.read(reading, _CHUNK)
        except BlockingIOError:
            return 0
        taken = self.taken[reading]
        taken += part[: max(0, MAX_OUTPUT + 1 - len(taken))]
        return len(part)

    def over(self) -> bool:
        """Return whether it has written too much."""
        return any(len(text) > MAX_OUTPUT for text in self.taken.values())
