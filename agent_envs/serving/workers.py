"""Answers the messages of sessions in threads beside the server's event loop, and ends sessions that take too long."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_envs.errors import BackendDownError, BackendSlowError
from agent_envs.serving.served_env import ServedEnv
from agent_envs.serving.session import Session
from agent_envs.serving.state import ServerState
from agent_envs.threads import run_in_thread

__all__ = ["CallQueue", "QueuedCall", "Sessions"]

_PATIENCE = 0.004  # seconds a call may take before the others stop waiting behind it
_TICK = 0.25  # seconds between checks of the time limits, which are this coarse


@dataclass(slots=True, eq=False)
class QueuedCall:
    """A function to call in a thread, and the future that gets its result."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    done: asyncio.Future[Any]
    """Gets the result, on the loop. If it is done already (a time-out), the result is dropped."""
    seconds: float = 0.0
    """How long the call took."""


class CallQueue:
    """Calls functions in threads and gives their results to one event loop.

    A second way beside `run_in_thread`, because handing a short call to a thread and its result back costs more than
    the call: with 64 clients, a call of 20 microseconds takes 38 in all through this queue and 86 with a thread each
    (`python benchmarks/threads.py`). Calls queue up for one thread, which makes one after the other and wakes the loop
    once for all results that have come meanwhile. If a call takes longer than 4 ms, another thread takes over the
    queue. The number of threads is not limited: every client has one call at a time, and clients are limited.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[QueuedCall] = deque()
        self._turn = 0  # which thread serves the queue; a thread leaves when another's turn has begun
        self._served = False
        self._count = 0  # calls that the serving thread has begun
        self._seen = 0
        self._finished: deque[tuple[QueuedCall, Any, BaseException | None]] = deque()
        self._woken = False  # whether the loop is about to look at what has finished
        self._watch: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of calls that no thread has begun."""
        return len(self._waiting)

    def submit(self, function: Callable[..., Any], *arguments: Any, own_thread: bool = False) -> QueuedCall:
        """Call a function in a thread: in one of its own at once if it is known to be slow. Called on the loop."""
        call = QueuedCall(function, arguments, self._loop.create_future())
        if own_thread:
            run_in_thread(self._run, call)
            return call
        with self._lock:
            self._waiting.append(call)
            if not self._served:
                self._next_thread()
        if self._watch is None:
            self._seen = self._count - 1
            self._watch = self._loop.call_later(_PATIENCE, self._check)
        return call

    def _next_thread(self) -> None:
        """Have another thread serve the queue from now on. Called with the lock held."""
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
                call = self._waiting.popleft()
                self._count += 1
            self._run(call)

    def _run(self, call: QueuedCall) -> None:
        begin = time.perf_counter()
        result = error = None
        try:
            result = call.function(*call.arguments)
        except Exception as e:  # noqa: BLE001  the caller gets it
            error = e
        except BaseException as e:  # noqa: BLE001  likewise, but it must not end the loop
            error = RuntimeError(f"{type(e).__name__} in a thread: {e}")
        call.seconds = time.perf_counter() - begin
        self._finished.append((call, result, error))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._finished.clear()

    def _deliver(self) -> None:
        self._woken = False  # first: what is appended from now on is seen below, or wakes the loop again
        while self._finished:
            call, result, error = self._finished.popleft()
            if call.done.done():
                continue
            if error is None:
                call.done.set_result(result)
            else:
                call.done.set_exception(error)

    def _check(self) -> None:
        """Replace the serving thread if it has not begun another call since the last check."""
        self._watch = None
        with self._lock:
            if not self._served:
                return
            if self._count == self._seen:
                if not self._waiting:
                    self._turn += 1
                    self._served = False  # the thread ends with its call
                    return
                self._next_thread()
            self._seen = self._count
        self._watch = self._loop.call_later(_PATIENCE, self._check)


class Sessions:
    """The open sessions of a server, with settings as in `EnvServer`. Methods are called on its event loop."""

    def __init__(
        self,
        envs: dict[str, ServedEnv],
        state: ServerState,
        *,
        max_waiting: int,
        step_timeout: float,
        idle_timeout: float,
    ) -> None:
        self.envs, self.state, self.max_waiting = envs, state, max_waiting
        self.open: set[Session] = set()
        self.stopping = False
        self.queue: CallQueue
        self._step_timeout, self._idle_timeout = step_timeout, idle_timeout
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Future[Any]] = set()
        self._farewells: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin, on the running loop; makes one environment of each kind, so that a ConfigError comes here."""
        self._loop = asyncio.get_running_loop()
        self.stopping = False
        self.queue = CallQueue(self._loop)
        for served_env in self.envs.values():
            await self.queue.submit(self.state.describe, served_env, {}, own_thread=True).done

    def watch(self) -> None:
        """Check the time limits now and from now on."""
        now = self._loop.time()
        for session in list(self.open):
            waited = now - session.since
            if session.running is not None:
                limit = min(self._step_timeout, session.limit or self._step_timeout)
                if waited > limit and not session.running.done():
                    error = f"no answer from the environment in {limit:g} seconds; the episode is lost"
                    session.running.set_exception(BackendSlowError(error))
            elif waited > session.idle_timeout:
                session.since = now
                error = f"no message in {session.idle_timeout:g} seconds; the episode is closed"
                session.on_end(BackendSlowError(error), "IDLE_TIMEOUT")
        self._timer = self._loop.call_later(_TICK, self.watch)

    async def finish(self, grace: float) -> None:
        """Wait up to ``grace`` seconds for running calls, then end all sessions."""
        running = [session.running for session in self.open if session.running is not None]
        if running:
            await asyncio.wait(running, timeout=grace)
            await asyncio.sleep(_TICK)  # for the answers to leave
        if self._timer is not None:
            self._timer.cancel()
        for session in list(self.open):
            session.on_end(BackendDownError("the server is shutting down"), "STOPPING")
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=5.0)

    async def close(self) -> None:
        """Close the environments."""
        for session in list(self.open):
            self.leave(session)
        if self._closing:
            await asyncio.wait(self._closing, timeout=5.0)

    @property
    def full(self) -> bool:
        """Whether further clients are refused, with or without an episode."""
        return self.stopping or len(self.open) >= 2 * self.state.max_episodes + 64

    def env(self, name: str) -> ServedEnv:
        """Return the environment of a name, "" for the first."""
        return self.envs[name] if name else next(iter(self.envs.values()))

    def enter(
        self,
        name: str,
        client_kwargs: dict[str, Any],
        on_end: Callable[[BaseException, str], None],
        idle_timeout: float = math.inf,
    ) -> Session:
        """Open a session (see `Session`) of an environment, "" for the first; `idle_timeout` can only be shorter."""
        session = Session(self.env(name), client_kwargs, self.state, on_end, min(idle_timeout, self._idle_timeout))
        session.since = self._loop.time()
        self.open.add(session)
        return session

    def leave(self, session: Session) -> None:
        """Close a session; its environment is closed in a thread."""
        if session in self.open:
            self.open.discard(session)
            closing = self.queue.submit(session.close, own_thread=session.slow).done
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold on to a task that tells a client of the end, until it is done."""
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)

    def answer(self, session: Session, raw: str | bytes, limit: float | None = None) -> asyncio.Future[Any]:
        """Begin to answer a message; the future gets the `Answer`, or the exception of a time-out.

        The session must not be answering another. `limit` (seconds) counts if it is less than the server's.
        """
        call = self.queue.submit(session.handle, raw, own_thread=session.slow)
        session.running, session.since, session.limit = call.done, self._loop.time(), limit
        call.done.add_done_callback(lambda _: self._answered(session, call.seconds))
        return call.done

    def _answered(self, session: Session, seconds: float) -> None:
        session.running, session.since = None, self._loop.time()
        session.slow = seconds > _PATIENCE
