"""Keeps an audit from an environment that never returns, or that ends the process it runs in."""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import FrameType
from typing import Any

from agent_envs.errors import ConfigError

_LOOKS = 0.25  # seconds between two looks at the clock
_LONGEST_MARK = 2000  # bytes

_marks: mmap.mmap | None = None  # shared with the process that waits for this one


class Stuck(BaseException):
    """A call of the environment has not returned in time. Not an Exception, which the environment might catch."""

    played: Any = None
    """The episode that ended so; None if the call came after its end."""


class Guard:
    """Interrupts a reset or a step that takes too long, in the main thread of a POSIX system; elsewhere nothing."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.task = 0
        self._since: float | None = None
        self._over = threading.Event()
        self._former: Any = None

    def __enter__(self) -> Guard:
        main = threading.main_thread()
        if hasattr(signal, "pthread_kill") and threading.current_thread() is main:
            self._former = signal.signal(signal.SIGALRM, self._ring)
            threading.Thread(target=self._watch, args=(main.ident, os.getppid()), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._since = None
        self._over.set()
        if self._former is not None:
            signal.signal(signal.SIGALRM, self._former)

    @contextlib.contextmanager
    def call(self, action: str | None) -> Iterator[None]:
        """Watch a call of the environment: with an action, or None for a reset."""
        self._since = time.monotonic()
        if _marks is not None:
            said = "its reset" if action is None else f"the action {action[:200]!r}"
            noted = f"task {self.task}, at {said}".encode("utf-8", "backslashreplace")[:_LONGEST_MARK] + b"\0"
            _marks[: len(noted)] = noted
        try:
            yield
        finally:
            self._since = None

    def _late(self) -> bool:
        since = self._since
        return since is not None and time.monotonic() - since > self.seconds

    def _watch(self, thread: int, parent: int) -> None:
        while not self._over.wait(_LOOKS):
            if _marks is not None and os.getppid() != parent:
                os._exit(1)  # nobody waits for the result
            if self._late():
                signal.pthread_kill(thread, signal.SIGALRM)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._late():
            self._since = None
            raise Stuck
        if callable(self._former):
            self._former(number, frame)


def run_apart(action: Callable[[], tuple[str, int]]) -> tuple[str, int]:
    """Run an action in a child process, which an environment may end or kill, and return what it returns.

    The action can be pickled, as `functools.partial` of a module's function can. What it prints on standard output is
    dropped. Where the system has no fork, or other threads run that one would cut off, the action runs here.

    Raises:
        ConfigError: The child ended without a result; the message says in which task.
        Exception: As the action.
    """
    global _marks
    if not hasattr(os, "fork") or threading.active_count() > 1:
        return action()
    _marks = marks = mmap.mmap(-1, _LONGEST_MARK + 1)
    child = ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _drop_output)
    try:
        return child.submit(action).result()
    except (BrokenProcessPool, SystemExit) as e:
        where = marks[:].partition(b"\0")[0].decode("utf-8", "replace")
        raise ConfigError(f"the environment ended the process it ran in: {where or 'when it was made'}") from e
    finally:
        _marks = None
        for each in multiprocessing.active_children():  # what the environment still runs there is not awaited
            each.kill()
        child.shutdown()


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for as long as the process lives
