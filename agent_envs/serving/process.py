"""The server's end of a worker: starts its process, passes frames on, and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_envs.errors import BackendError, ConfigError
from agent_envs.serving.protocol import FAILED, Frame, decode, error_from, split_frames
from agent_envs.serving.worker import Setup, Worker

_END_SECONDS = 5.0  # that a worker may take to close what it has open
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class WorkerProcess(asyncio.Protocol):
    """A worker, in a process of its own or, with `inside`, in a thread of this one, where it cannot be ended.

    `on_frame` is called with it and each frame of a session, `on_lost` with it when it has ended.
    """

    def __init__(
        self, on_frame: Callable[[WorkerProcess, Frame], None], on_lost: Callable[[WorkerProcess], None]
    ) -> None:
        self._on_frame, self._on_lost = on_frame, on_lost
        self.process: subprocess.Popen[bytes] | None = None
        self.begun = False
        """Whether it has made its environments."""
        self.ready = False
        """Whether it takes sessions."""
        self.asked: float | None = None
        """When it was asked whether it is there, if it has not answered yet."""
        self.overdue = False
        """Whether a call of it should have ended, at the last look."""
        self.sessions: dict[int, Any] = {}
        """Its sessions, by number."""
        self.reason = "it ended by itself"
        """Why it ended."""
        self._buffer, self._out = bytearray(), list[bytes]()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()

    async def start(self, setup: Setup, *, inside: bool) -> None:
        """Start it, and wait until it has made its environments; raises what they raise."""
        data = b""
        if not inside:
            try:
                data = pickle.dumps(setup)
            except Exception as e:
                why = f"the environments' arguments cannot be sent to worker processes: {e}"
                raise ConfigError(f"{why}; use plain values, or workers=0") from e
        ours, theirs = socket.socketpair()
        with theirs:
            if inside:
                run = Worker(theirs.dup(), setup).run
                threading.Thread(target=run, name="agent_envs-worker", daemon=True).start()
            else:
                code = (
                    f"import sys; sys.path[:] = {sys.path!r}; from agent_envs.serving.worker import run_worker; "
                    f"run_worker({theirs.fileno()}, {os.getpid()})"
                )
                self.process = subprocess.Popen(
                    [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                    process_group=0,
                )  # fmt: skip
        ours.setblocking(False)
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=ours)
        self._transport.write(data)
        await self._started

    def send(self, frame: Frame) -> None:
        """Send a frame, together with others of this moment."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame.packed())

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            frames = split_frames(self._buffer)
        except ValueError:
            self.kill("it sent what is no answer")
            return
        for frame in frames:
            if frame.session:
                self._on_frame(self, frame)
            elif self._started.done():
                self.asked = None
            elif frame.flags & FAILED:
                self._started.set_exception(error_from(decode(frame.text), "a worker"))
            else:
                self.begun = self.ready = True
                self._started.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ready, self._transport = False, None
        if self.process is not None:
            self.process.kill()  # it may hang, or run on without its socket
        if not self._started.done():
            self._started.set_exception(BackendError("a worker process ended before it was ready"))
            self._started.exception()
        self._on_lost(self)

    def kill(self, reason: str) -> None:
        """End it at once, whatever it is doing."""
        self.reason, self.ready = reason, False
        if self.process is not None:
            self.process.kill()
        elif self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """End it when it has closed what it has open, or at once after some seconds."""
        self.ready = False
        if self._transport is not None:
            self._transport.close()
        elif self.process is not None:
            self.process.kill()
        end = self._loop.time() + _END_SECONDS
        while self._transport is not None or (self.process is not None and self.process.poll() is None):
            if self._loop.time() > end:
                self.kill(self.reason)
            await asyncio.sleep(0.01)

    def memory(self) -> int:
        """Return the bytes of memory of its own that the process has, as far as the system tells."""
        if self.process is not None:
            with contextlib.suppress(OSError, ValueError):
                _, resident, shared, *_ = Path(f"/proc/{self.process.pid}/statm").read_text().split()
                return (int(resident) - int(shared)) * _PAGE
        return 0
