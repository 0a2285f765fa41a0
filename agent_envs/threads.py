"""Everything that runs in a thread runs through one of these four.

- `background_loop`: one event loop for the whole process, for coroutines that synchronous code waits for. Unlike
  ``asyncio.run`` it works where a loop is already running in the calling thread (Jupyter, Ray's async actors), and it
  costs microseconds instead of a new loop per call.
- `LoopThread`: an event loop of its own, for a server that runs beside the caller.
- `run_in_thread`: a function that may block, or never return.
- `run_side_by_side`: several functions at once, the results in order.

A loop over data on a fixed number of threads takes the standard library's ``ThreadPoolExecutor`` in a ``with``. A
server's many short calls are made by the thread that reads them (`agent_envs.serving.worker`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, wait
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from agent_envs.per_process import PerProcess

K = TypeVar("K")
T = TypeVar("T")

_background: PerProcess[asyncio.AbstractEventLoop] = PerProcess()
_Calls = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
_idle: PerProcess[list[_Calls]] = PerProcess()  # one queue per waiting worker; append, pop and remove are atomic
_IDLE_SECONDS = 10.0
_PATIENCE = 0.001  # seconds
_Batch = tuple[Callable[[], None], deque[Any]]
_batches: PerProcess[SimpleQueue[_Batch]] = PerProcess()


class LoopThread:
    """An event loop that runs in a daemon thread until it is stopped.

    >>> thread = LoopThread("example")
    >>> thread.submit(asyncio.sleep(0, "slept")).result()
    'slept'
    >>> thread.stop()
    """

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, from any other thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self, *, wait: bool = True) -> None:
        """Cancel what still runs on the loop and end the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if wait:
            self._thread.join()

    def end(self, last: Coroutine[Any, Any, Any], seconds: float = 10.0) -> None:
        """Run a last coroutine, for which another thread waits so many seconds at most, and stop."""
        done = self.submit(last)
        if asyncio._get_running_loop() is not self.loop:
            wait([done], timeout=seconds)
        self.stop(wait=False)

    def _run(self) -> None:
        with self._runner:
            self.loop.run_forever()


def background_loop(*, replace: asyncio.AbstractEventLoop | None = None) -> asyncio.AbstractEventLoop:
    """Return the process's background loop; the first call starts it, in a forked child too.

    A new one takes its place if it is the one to `replace`, which a coroutine blocks.
    """
    return _background.get("", lambda: LoopThread("agent_envs-loop").loop, instead_of=replace)


def is_responsive(loop: asyncio.AbstractEventLoop, seconds: float = 0.2) -> bool:
    """Return whether a loop still runs callbacks; waits ``seconds`` at most. A blocked one has to be left behind."""
    ping = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
    return bool(wait([ping], timeout=seconds).done)


def run_in_thread(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Start ``function`` in a daemon thread, which unlike an executor's does not delay the interpreter's exit.

    The number of threads is not limited, so a function that never returns keeps no other waiting. Finished threads are
    reused for a while: starting one takes three times as long as handing work over.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    idle = _idle.get("", list)
    try:
        calls = idle.pop()
    except IndexError:
        calls = SimpleQueue()
        threading.Thread(target=_work, args=(calls, idle), name="agent_envs-worker", daemon=True).start()
    calls.put((future, function, args, kwargs))
    return future


def run_side_by_side(calls: Mapping[K, Callable[[], T]]) -> dict[K, T]:
    """Make several calls and return their results, in their order, when the slowest is done.

    The calls run one after the other in this thread, which is fastest for short ones
    (`python benchmarks/threads.py --together 8`). All that still wait after a millisecond get a thread each.

    Raises:
        BaseException: What a call raised (the first that did, if several), once all are done. If this thread is
            interrupted, calls that had not begun are not made.
    """
    if len(calls) < 2:
        return {key: call() for key, call in calls.items()}
    waiting = deque(calls.items())
    results: dict[K, T] = {}
    errors: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()

    def work() -> None:
        while waiting:
            try:
                key, call = waiting.popleft()
            except IndexError:  # another thread took it
                return
            try:
                results[key] = call()
            except BaseException as e:
                errors.append(e)
                if isinstance(e, KeyboardInterrupt):
                    raise
            finally:
                ended.put(None)

    _batches.get("", _watched).put((work, waiting))
    try:
        work()
        for _ in calls:
            ended.get()
    finally:
        waiting.clear()
    if errors:
        raise errors[0]
    return {key: results[key] for key in calls}


def _watched() -> SimpleQueue[_Batch]:
    """Return a queue of batches, which one thread looks after: waking one for each would take as long as the calls."""

    def watch() -> None:
        while True:
            work, waiting = batches.get()
            if waiting:
                time.sleep(_PATIENCE)
            for _ in range(len(waiting)):
                run_in_thread(work)

    batches: SimpleQueue[_Batch] = SimpleQueue()
    run_in_thread(watch)
    return batches


def _work(calls: _Calls, idle: list[_Calls]) -> None:
    """Make one call after the other, until none has come for a while."""
    while True:
        try:
            future, function, args, kwargs = calls.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                idle.remove(calls)
            except ValueError:  # another thread has just taken this worker: its call is on the way
                continue
            return
        try:
            result, error = function(*args, **kwargs), None
        except BaseException as e:  # noqa: BLE001  the future carries it to the caller
            result, error = None, e
        idle.append(calls)  # first, so that this worker is free when the caller gets the result
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        del future, function, args, kwargs, result, error  # an idle worker keeps nothing alive
