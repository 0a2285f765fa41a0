"""One event loop per process, in a thread, for coroutines that synchronous code has to wait for.

Unlike ``asyncio.run`` it works where a loop is already running in the calling thread (Jupyter, Ray's async actors), and
it costs microseconds instead of a new loop per call.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

__all__ = ["answers", "background_loop", "run_in_thread", "run_side_by_side"]

K = TypeVar("K")
T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loop_pid: int | None = None

_Jobs = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
_idle: list[_Jobs] = []  # one entry per waiting worker; append, pop and remove are atomic
_IDLE_SECONDS = 10.0
_PATIENCE = 0.0005  # seconds between looks; who is there at two of them has kept others waiting for long enough
_LONGEST_PAUSE = 0.005
_IDLE_LOOKS = 50


def background_loop(*, replace: asyncio.AbstractEventLoop | None = None) -> asyncio.AbstractEventLoop:
    """The process's background loop, started when it is first asked for (again in a forked child).

    Args:
        replace: A loop that no longer answers, because a coroutine blocks it; if it is the current one, a new loop
            takes its place.
    """
    global _loop, _loop_pid
    with _lock:
        if _loop is None or _loop_pid != os.getpid() or _loop is replace:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="agent_envs-loop", daemon=True).start()
            _loop, _loop_pid = loop, os.getpid()
        return _loop


def answers(loop: asyncio.AbstractEventLoop, seconds: float = 0.2) -> bool:
    """Whether a loop still turns: one that a coroutine blocks has to be left behind. Waits ``seconds`` at most."""
    ping = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
    return bool(wait([ping], timeout=seconds).done)


def run_in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Start ``function`` in a daemon thread, which unlike an executor's does not hold up the interpreter's exit.

    A thread that is done waits a while for more work: starting one costs three times as much as handing work over.
    There is no limit on their number, so that a function which never returns keeps nobody else waiting.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="agent_envs-worker", daemon=True).start()
    jobs.put((future, function, args, kwargs))
    return future


def run_side_by_side(calls: Mapping[K, Callable[[], T]]) -> dict[K, T]:
    """The results of some calls, in their order, as soon as the slowest is done.

    They are made one after the other in this thread, which is the fastest way for short ones. Once they have taken a
    millisecond (ten at most, after many short ones), all that wait get a thread each.

    Raises:
        BaseException: What a call raised (of several the first that did), once all are done. After an interrupt of this
            thread, calls that were not begun are not made.
    """
    batch = _Batch(calls)
    if len(calls) < 2:
        return batch.finish()
    _watch(batch)
    try:
        return batch.finish()
    finally:
        _watched.discard(batch)


class _Batch:
    """Calls that this thread and others take from one queue."""

    def __init__(self, calls: Mapping[K, Callable[[], T]]) -> None:
        self._order = list(calls)
        self._waiting = deque(calls.items())
        self._results: dict[Any, Any] = {}
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._left = len(calls)
        self._done = threading.Event()
        if not calls:
            self._done.set()

    def finish(self) -> dict[Any, Any]:
        try:
            while self._take_one():
                pass
            self._done.wait()
        finally:
            self._waiting.clear()
        if self._errors:
            raise self._errors[0]
        return {key: self._results[key] for key in self._order}

    def spread(self) -> None:
        for _ in range(len(self._waiting)):
            run_in_thread(self._take_one)

    def _take_one(self) -> bool:
        try:
            key, call = self._waiting.popleft()
        except IndexError:
            return False
        try:
            self._results[key] = call()
        except BaseException as e:
            self._errors.append(e)
            if isinstance(e, KeyboardInterrupt):
                raise
        finally:
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._done.set()
        return True


_watched: set[_Batch] = set()
_watching = False


def _watch(batch: _Batch) -> None:
    """Have a batch spread if it is not done soon.

    One thread looks at all batches, again and again while there are any: waking one for each batch would take as long
    as the calls that batches are made for.
    """
    global _watching
    with _lock:
        _watched.add(batch)
        begin, _watching = not _watching, True
    if begin:
        run_in_thread(_watch_all)


def _watch_all() -> None:
    """Look, less and less often while batches are done between two looks, until there have been none for a while."""
    global _watching
    seen: set[_Batch] = set()
    pause, idle = _PATIENCE, 0
    while idle < _IDLE_LOOKS:
        time.sleep(pause)
        with _lock:
            there = set(_watched)
            idle = 0 if there else idle + 1
            if idle == _IDLE_LOOKS:
                _watching = False
        late = there & seen
        for batch in late:
            batch.spread()
        pause = _PATIENCE if late else min(_LONGEST_PAUSE, 1.1 * pause)
        seen = there


def _serve(jobs: _Jobs) -> None:
    """The life of a worker thread: one job after the other, until none has come for a while."""
    while True:
        try:
            future, function, args, kwargs = jobs.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _idle.remove(jobs)
            except ValueError:  # somebody has just taken this worker: its job is on the way
                continue
            return
        try:
            result, error = function(*args, **kwargs), None
        except BaseException as e:  # noqa: BLE001  the future carries it to whoever waits
            result, error = None, e
        _idle.append(jobs)  # first, so that whoever waits for the result finds this worker free
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        del future, function, args, kwargs, result, error  # an idle worker keeps nothing alive


def _reset_after_fork() -> None:
    global _lock, _loop, _loop_pid, _idle, _watched, _watching
    _watched, _watching = set(), False
    _lock, _loop, _loop_pid, _idle = threading.Lock(), None, None, []


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_reset_after_fork)
