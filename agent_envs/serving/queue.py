"""Runs environments' steps beside an event loop: quick ones share a thread, slow ones keep nobody waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agent_envs.threads import run_in_thread

__all__ = ["PATIENCE", "Job", "WorkQueue"]

PATIENCE = 0.004
"""Seconds a call may take before others stop waiting behind it."""


class Job:
    """One call, and who waits for its result."""

    __slots__ = ("arguments", "done", "function", "seconds")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], done: asyncio.Future[Any]) -> None:
        self.function = function
        self.arguments = arguments
        self.done = done
        """Gets the result, on the loop. A future that is done already (a time-out) is left as it is."""
        self.seconds = 0.0
        """How long the call took."""


class WorkQueue:
    """Calls functions in threads and gives their results to one event loop.

    Handing a call of 50 microseconds to a thread and its result back costs as much as the call. So calls queue up
    for one thread, which takes one after the other and wakes the loop once for all that has been done meanwhile.
    When a call takes longer than `PATIENCE`, another thread takes over the queue, and the first one retires with
    that call. There is no limit on threads: every caller has one call at a time, and callers are limited.

    Args:
        loop: The loop that `submit` is called on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._turn = 0  # which thread serves the queue; it leaves when another one's turn has begun
        self._served = False
        self._count = 0  # calls that the serving thread has begun
        self._seen = 0
        self._finished: deque[tuple[Job, Any, BaseException | None]] = deque()
        self._woken = False  # whether the loop is about to look at what has finished
        self._watch: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Calls that no thread has begun."""
        return len(self._waiting)

    def submit(self, function: Callable[..., Any], *arguments: Any, apart: bool = False) -> Job:
        """Call a function in a thread.

        Args:
            function: What to call.
            arguments: Its arguments.
            apart: Whether it is known to be slow: it gets a thread of its own at once.
        """
        job = Job(function, arguments, self._loop.create_future())
        if apart:
            run_in_thread(self._run, job)
            return job
        with self._lock:
            self._waiting.append(job)
            if not self._served:
                self._appoint()
        if self._watch is None:
            self._seen = self._count - 1
            self._watch = self._loop.call_later(PATIENCE, self._check)
        return job

    def _appoint(self) -> None:
        """A new thread serves the queue from now on. Called with the lock held."""
        self._turn += 1
        self._served = True
        run_in_thread(self._serve, self._turn)

    def _serve(self, turn: int) -> None:
        while True:
            with self._lock:
                if self._turn != turn:
                    return
                if not self._waiting:
                    self._served = False
                    return
                job = self._waiting.popleft()
                self._count += 1
            self._run(job)

    def _run(self, job: Job) -> None:
        begun = time.perf_counter()
        result = error = None
        try:
            result = job.function(*job.arguments)
        except Exception as e:  # noqa: BLE001  whoever waits for the result gets it
            error = e
        except BaseException as e:  # noqa: BLE001  likewise, but it must not end the loop
            error = RuntimeError(f"{type(e).__name__} in a thread: {e}")
        job.seconds = time.perf_counter() - begun
        self._finished.append((job, result, error))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._finished.clear()

    def _deliver(self) -> None:
        self._woken = False  # first: what is appended from now on is seen below, or wakes the loop again
        while self._finished:
            job, result, error = self._finished.popleft()
            if job.done.done():
                continue
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)

    def _check(self) -> None:
        """Whether the serving thread still begins calls; else another one takes its place."""
        self._watch = None
        with self._lock:
            if not self._served:
                return
            if self._count == self._seen:
                if not self._waiting:
                    self._turn += 1
                    self._served = False  # it ends with its call
                    return
                self._appoint()
            self._seen = self._count
        self._watch = self._loop.call_later(PATIENCE, self._check)
