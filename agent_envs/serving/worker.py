"""A worker: plays the sessions that the server hands it, in a process of its own (`run_worker`) or a thread."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.files import allow_open_files
from agent_envs.per_process import PerProcess
from agent_envs.serving.protocol import (
    END,
    FAILED,
    LAST,
    OPEN,
    Frame,
    decode,
    encode,
    error_data,
    split_frames,
    traceback_text,
)
from agent_envs.serving.served_env import ServedEnv, describe
from agent_envs.serving.session import Session
from agent_envs.threads import run_in_thread

_log = logging.getLogger(__name__)
_PATIENCE = 0.004  # seconds a call may take before the others stop waiting behind it
_TOGETHER = 8  # answers that are sent at once
_PIECE = 1 << 18
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Setup:
    """What a worker is told when it starts."""

    envs: Sequence[ServedEnv]
    """The environments."""
    max_message: int
    """Bytes of the longest message."""
    secret: bytes
    """Signs snapshots; the same for all workers of a server."""


class Worker:
    """Answers the frames that come over a socket, until it is closed.

    One thread reads and makes the calls one after the other, which is fastest for short ones. If a call takes longer
    than 4 ms, another thread takes over; a session whose last call was slow gets a thread at once. The number of
    threads is not limited: every session has one call at a time, and the server limits sessions.
    """

    def __init__(self, link: socket.socket, setup: Setup) -> None:
        self._link, self._setup = link, setup
        self._envs = {served_env.name: served_env for served_env in setup.envs}
        self._descriptions: PerProcess[dict[str, Any]] = PerProcess(keep=256)
        self._sessions: dict[int, Session] = {}
        self._buffer, self._frames, self._answers = bytearray(), deque[Frame](), deque[bytes]()
        self._sending, self._lock = threading.Lock(), threading.Lock()
        self._turn = 0  # which thread reads; a thread leaves when another's turn has begun
        self._calling, self._calls = False, 0
        self._active, self._over = threading.Event(), False

    def run(self) -> None:
        """Make each environment once, then answer until the socket is closed."""
        try:
            for served_env in self._envs.values():
                self._describe(served_env, {})
            first = Frame(0)
        except BaseException as e:  # noqa: BLE001  an environment may raise or exit as it likes: the server says so
            first = Frame(0, FAILED, encode(error_data(e)).encode())
        self._answers.append(first.packed())
        self._flush()
        with self._lock:
            self._next_reader()
        self._watch()
        for session in self._sessions.values():
            session.close()
        self._link.close()

    def _describe(self, served_env: ServedEnv, client_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        def make() -> dict[str, Any]:
            return {**describe(served_env, client_kwargs), "max_message": self._setup.max_message}

        return self._descriptions.get(encode([served_env.name, sorted(client_kwargs.items())]), make)

    def _watch(self) -> None:
        """Have another thread read whenever a call takes long, until the end."""
        while not self._over:
            self._active.wait()
            calls = self._calls
            time.sleep(_PATIENCE)
            with self._lock:
                if calls == self._calls and not self._over:
                    if self._calling:
                        self._next_reader()
                    else:
                        self._active.clear()

    def _next_reader(self) -> None:
        """Have another thread read from now on. Called with the lock held."""
        self._turn += 1
        self._calling = False
        run_in_thread(self._read, self._turn)

    def _read(self, turn: int) -> None:
        self._flush()
        while True:
            if not self._frames:
                self._flush()
                data = b""
                with contextlib.suppress(OSError):
                    data = self._link.recv(_PIECE)
                if not data:
                    self._over = True
                    self._active.set()
                    return
                self._buffer += data
                self._frames.extend(split_frames(self._buffer))
                continue
            frame = self._frames.popleft()
            session = self._sessions.get(frame.session)
            if session is not None and session.slow and not frame.flags & END:
                run_in_thread(self._call, frame, session, flush=True)
                continue
            with self._lock:
                self._calling = not frame.flags & OPEN  # which nobody may overtake with the session's first message
                self._calls += 1
                self._active.set()
            try:
                self._take(frame, session)
            except Exception:  # noqa: BLE001  the other sessions go on
                _log.error(traceback_text("a session"))
            with self._lock:
                over = self._turn != turn
                if not over:
                    self._calling = False
            if over or len(self._answers) >= _TOGETHER:
                self._flush()
            if over:
                return

    def _take(self, frame: Frame, session: Session | None) -> None:
        if frame.session == 0:
            self._answers.append(frame.packed())
        elif frame.flags & OPEN:
            name, kwargs = decode(frame.text)
            closed = functools.partial(self._closed, frame.session)
            self._sessions[frame.session] = Session(
                self._envs[name], kwargs, self._setup.secret, self._describe, closed
            )
        elif session is not None and frame.flags & END:
            del self._sessions[frame.session]
            session.close()
        elif session is not None:
            self._call(frame, session)

    def _closed(self, session: int) -> None:
        self._answers.append(Frame(session, END).packed())
        self._flush()

    def _call(self, frame: Frame, session: Session, *, flush: bool = False) -> None:
        begin = time.perf_counter()
        text, flags = session.handle(frame.text, last=bool(frame.flags & LAST))
        seconds = time.perf_counter() - begin
        session.slow = seconds > _PATIENCE
        self._answers.append(Frame(frame.session, flags, text.encode(), seconds).packed())
        if flush:
            self._flush()

    def _flush(self) -> None:
        """Send the answers that are ready."""
        if self._answers:
            with self._sending, contextlib.suppress(OSError):  # the server is gone, as reading will show
                self._link.sendall(b"".join([self._answers.popleft() for _ in range(len(self._answers))]))


def run_worker(descriptor: int, parent: int) -> None:
    """Be a worker process, over an inherited socket; `parent` is the server's process."""
    if sys.platform == "linux":  # a step that holds the interpreter would keep the process from noticing its end
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    for number in (signal.SIGINT, signal.SIGTERM):  # the server decides when its workers end
        signal.signal(number, lambda *_: None)
    allow_open_files()
    link = socket.socket(fileno=descriptor)
    with link.makefile("rb") as pipe:  # nothing else comes before the first answer
        setup = pickle.load(pipe)
    Worker(link, setup).run()
