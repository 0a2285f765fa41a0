"""One event loop per process, in a thread, for coroutines that synchronous code has to wait for.

Unlike ``asyncio.run`` it works where a loop is already running in the calling thread (Jupyter, Ray's async actors), and
it costs microseconds instead of a new loop per call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["answers", "background_loop", "run_in_thread"]

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loop_pid: int | None = None

_Jobs = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
_idle: list[_Jobs] = []  # one entry per waiting worker; append, pop and remove are atomic
_IDLE_SECONDS = 10.0


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
    global _lock, _loop, _loop_pid, _idle
    _lock, _loop, _loop_pid, _idle = threading.Lock(), None, None, []


os.register_at_fork(after_in_child=_reset_after_fork)
