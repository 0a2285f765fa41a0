"""One event loop per process, in a thread, for coroutines that synchronous code has to wait for.

Unlike ``asyncio.run`` it works where a loop is already running in the calling thread (Jupyter, Ray's async actors), and
it costs microseconds instead of a new loop per call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["background_loop", "run_in_thread"]

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loop_pid: int | None = None


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


def run_in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Start ``function`` in a daemon thread, which unlike an executor's does not hold up the interpreter's exit."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def target() -> None:
        try:
            result = function(*args, **kwargs)
        except BaseException as e:  # noqa: BLE001  the future carries it to whoever waits
            future.set_exception(e)
        else:
            future.set_result(result)

    threading.Thread(target=target, name=f"agent_envs-{function!r:.60}", daemon=True).start()
    return future


def _reset_after_fork() -> None:
    global _lock, _loop, _loop_pid
    _lock, _loop, _loop_pid = threading.Lock(), None, None


os.register_at_fork(after_in_child=_reset_after_fork)
