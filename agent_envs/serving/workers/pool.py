"""The sessions of a server's clients: each is played by one of several workers, within limits that can be enforced."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from agent_envs.errors import (
    AgentEnvsError,
    BackendDownError,
    BackendError,
    BackendSlowError,
    ConfigError,
)
from agent_envs.serving.protocol import BEGAN, CLOSE, FAILED, HOLDS, LAST, PLAYING, Frame, Kind, encode
from agent_envs.serving.served_env import ServedEnv
from agent_envs.serving.workers.client_session import Answered, ClientSession, Limits
from agent_envs.serving.workers.counts import Counts
from agent_envs.serving.workers.process import WorkerProcess
from agent_envs.serving.workers.worker import Setup

__all__ = ["Pool"]

_log = logging.getLogger(__name__)
_TICK = 0.25  # seconds between checks of the limits, which are this coarse
_RESPONSIVE = 1.0  # seconds without a sign of life after which new sessions go elsewhere
_PAUSE = 1.0  # seconds between two attempts to replace workers
_CLOSE_SECONDS = 5.0


class Pool:
    """The sessions and workers of a server. Methods are called on its event loop."""

    def __init__(self, envs: dict[str, ServedEnv], limits: Limits) -> None:
        self.envs, self.limits = envs, limits
        self.descriptions: dict[str, dict[str, Any]] = {}
        """What workers say of the environments without a client's arguments."""
        self.open: set[ClientSession] = set()
        self.episodes = 0
        """Environments at the moment."""
        self.waiting = 0
        """Messages without an answer."""
        self.draining = self.stopping = False
        self.workers: list[WorkerProcess] = []
        self.counts = Counts(envs)
        self._setup = Setup(tuple(envs.values()), limits.max_episodes, limits.max_message, secrets.token_bytes(32))
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._last = 0  # session's number
        self._starting = 0
        self._next_start = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the pool as a whole -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers, on the running loop; raises what goes wrong with the environments."""
        self._loop = asyncio.get_running_loop()
        self.draining = self.stopping = False
        try:  # all of them end before an error is raised, so that none is left behind
            starts = (self._add_worker() for _ in range(max(1, self.limits.workers)))
            results = await asyncio.gather(*starts, return_exceptions=True)
        except BaseException:
            await self.close()
            raise
        errors = [result for result in results if result is not None]
        if errors:
            await self.close()
            raise self._explained(errors[0])
        self._watch_later()

    async def drain(self, seconds: float) -> None:
        """Begin no further episodes, and wait up to ``seconds`` for those that are being played."""
        self.draining, end = True, self._loop.time() + seconds
        for session in list(self.open):
            self._end_if_drained(session)
        while self.open and self._loop.time() < end:
            await asyncio.sleep(_TICK / 5)

    def _end_if_drained(self, session: ClientSession) -> None:
        if self.draining and not (session.running or session.playing):
            self._end(session, BackendDownError("the server is about to stop"), "STOPPING")

    async def finish(self, grace: float) -> None:
        """Wait up to ``grace`` seconds for running calls, then end all sessions."""
        end = self._loop.time() + grace
        if any(session.running for session in self.open):
            while self._loop.time() < end and any(session.running for session in self.open):
                await asyncio.sleep(_TICK / 5)
            await asyncio.sleep(_TICK)  # for the answers to leave
        for session in list(self.open):
            self._end(session, BackendDownError("the server is shutting down"), "STOPPING")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    async def close(self) -> None:
        """Close the environments and end the workers."""
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for session in list(self.open):
            self.leave(session)
        end = self._loop.time() + _CLOSE_SECONDS
        while any(worker.ready and worker.sessions for worker in self.workers) and self._loop.time() < end:
            await asyncio.sleep(0.01)
        for worker in self.workers:
            if worker.sessions:
                worker.kill("it could not close its episodes")
        await asyncio.gather(*(worker.close() for worker in self.workers))
        self.workers.clear()
        if self._tasks:  # workers that were being started or replaced
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    def keep(self, task: asyncio.Task[None]) -> None:
        """Hold on to a task until it is done."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def healthy(self) -> bool:
        """Whether episodes can be played."""
        return not self.stopping and any(worker.ready for worker in self.workers)

    @property
    def refusal(self) -> str:
        """Why further clients are refused, with or without an episode: a code, or "" if they are not."""
        if self.stopping or self.draining:
            return "STOPPING"
        full = not self.healthy or len(self.open) >= self.limits.max_clients
        return "CAPACITY_REACHED" if full else ""

    # -- sessions ------------------------------------------------------------------------------------------------

    def enter(
        self,
        name: str,
        client_kwargs: dict[str, Any],
        on_end: Callable[[AgentEnvsError, str], None],
        idle_timeout: float = math.inf,
    ) -> ClientSession:
        """Open a session (see `ClientSession`) of an environment, "" for the first; the idle time can only be shorter.

        The pool must have no `refusal`.
        """
        name = name or next(iter(self.envs))
        try:
            text = encode([name, client_kwargs]).encode()
        except RecursionError as e:
            raise ConfigError("the environment's arguments are nested too deeply") from e
        worker = self._best_worker()
        self._last += 1
        idle_timeout = min(idle_timeout, self.limits.idle_timeout)
        session = ClientSession(name, self._last, worker, on_end, idle_timeout, self._loop.time())
        worker.sessions[session.number] = session
        worker.send(Frame(session.number, Kind.OPEN, 0, text))
        self.open.add(session)
        return session

    def leave(self, session: ClientSession) -> None:
        """Close a session; its place is free when the worker has closed its environment."""
        if session in self.open:
            self.open.discard(session)
            session.answered = None
            session.worker.send(Frame(session.number, Kind.END))

    def _end(self, session: ClientSession, error: AgentEnvsError, code: str) -> None:
        self.leave(session)
        self.counts.ended[code] += 1
        session.on_end(error, code)

    def ask(self, session: ClientSession, raw: str | bytes, answered: Answered, limit: float | None = None) -> None:
        """Have a message answered: `answered` is called once, unless the session ends before.

        The session must not be running. `limit` (seconds) counts if it is less than the server's.
        """
        text = raw.encode() if isinstance(raw, str) else raw
        session.bytes += len(text)
        if session.bytes > self.limits.episode_bytes:
            error = f"the messages of this episode have more than {self.limits.episode_bytes:g} bytes"
            self._end(session, BackendError(error), "OVER_BUDGET")
            return
        if not session.holds and self.episodes < self.limits.max_episodes:
            session.holds = True
            self.episodes += 1
        session.answered, session.running, session.since = answered, True, self._loop.time()
        session.limit = min(self.limits.step_timeout, limit or math.inf)
        self.waiting += 1
        session.worker.send(Frame(session.number, Kind.MESSAGE, HOLDS * session.holds | LAST * self.draining, text))

    def _take(self, worker: WorkerProcess, frame: Frame) -> None:
        """Take a frame from a worker."""
        session = worker.sessions.get(frame.session)
        if session is None:
            return
        if frame.kind == Kind.ENDED:
            self._forget(session)
            return
        if session.running:
            now = self._loop.time()
            self.counts.answered(session.env, now - session.since, frame)
            session.running, session.since = False, now
            self.waiting -= 1
        if session.holds and not frame.flags & HOLDS:
            session.holds = False
            self.episodes -= 1
        session.bytes = len(frame.text) + (0 if frame.flags & BEGAN else session.bytes)
        answered, session.answered = session.answered, None
        if answered is not None:
            answered(frame.text.decode(errors="replace"), frame.flags & (FAILED | CLOSE))
        session.playing = bool(frame.flags & PLAYING)
        if session in self.open:
            self._end_if_drained(session)

    def _forget(self, session: ClientSession) -> None:
        session.worker.sessions.pop(session.number, None)
        if session.running:
            session.running = False
            self.waiting -= 1
        if session.holds:
            session.holds = False
            self.episodes -= 1

    # -- workers -------------------------------------------------------------------------------------------------

    async def _add_worker(self) -> None:
        worker = WorkerProcess(self._take, self._lose)
        self.workers.append(worker)
        try:
            await worker.start(self._setup, inside=not self.limits.workers)
        except BaseException:
            if worker in self.workers:
                self.workers.remove(worker)
            worker.kill("it could not be started")
            await worker.close()
            raise
        self.descriptions = worker.descriptions

    async def _replace(self) -> None:
        if self.stopping:
            return
        self._starting += 1
        try:
            await self._add_worker()
        except Exception as e:  # noqa: BLE001  the next attempt comes soon
            _log.error("a worker process cannot be started: %s", e)
        finally:
            self._starting -= 1

    def _lose(self, worker: WorkerProcess) -> None:
        """End the sessions of a worker that has ended."""
        if worker not in self.workers or not worker.descriptions or self.stopping:
            return
        self.workers.remove(worker)
        self.keep(asyncio.create_task(worker.close()))
        sessions = list(worker.sessions.values())
        self.counts.replaced += 1
        _log.error("a worker process with %d sessions was replaced: %s", len(sessions), worker.reason)
        for session in sessions:
            self._forget(session)
            if session in self.open:
                why = f"the process of this episode is gone: {worker.reason}"
                self._end(session, BackendDownError(why), "WORKER_LOST")

    def _best_worker(self) -> WorkerProcess:
        return min(
            (worker for worker in self.workers if worker.ready),
            key=lambda worker: (not self._responds(worker), len(worker.sessions)),
        )

    def _responds(self, worker: WorkerProcess) -> bool:
        """Whether a worker is there and has no call that should have ended."""
        silent = worker.asked is not None and self._loop.time() - worker.asked > _RESPONSIVE
        return worker.ready and not silent and not worker.overdue

    def _watch(self) -> None:
        """Enforce the limits, now and from now on."""
        now, limits = self._loop.time(), self.limits
        late = now - self._due  # signs of life may have come meanwhile, which nobody has read yet
        for session in list(self.open):
            waited = now - session.since
            if session.running and waited > session.limit:
                error = f"no answer from the environment in {session.limit:g} seconds; the episode is lost"
                self._end(session, BackendSlowError(error), "STEP_TIMEOUT")
            elif not session.running and waited > session.idle_timeout:
                error = f"no message in {session.idle_timeout:g} seconds; the episode is closed"
                self._end(session, BackendSlowError(error), "IDLE_TIMEOUT")
        for worker in [worker for worker in self.workers if worker.ready]:
            running = [session for session in worker.sessions.values() if session.running]
            longest = now - min((session.since for session in running), default=now)
            worker.overdue = longest > limits.step_timeout
            if worker.process is None:
                continue
            if worker.asked is not None:
                worker.asked += late
            if longest > 2 * limits.step_timeout:
                worker.kill(f"a step did not end in {2 * limits.step_timeout:g} seconds")
            elif worker.asked is not None and now - worker.asked > limits.stall_timeout:
                worker.kill(f"a step held its interpreter for {limits.stall_timeout:g} seconds")
            elif worker.memory() > limits.worker_memory:
                worker.kill(f"it took more than {limits.worker_memory / (1 << 20):.0f} MB of memory")
            elif worker.asked is None and running:
                worker.asked = now
                worker.send(Frame(0, Kind.PING))
        if limits.workers:
            self._balance(now)
        self._watch_later()

    def _watch_later(self) -> None:
        self._due = self._loop.time() + _TICK
        self._timer = self._loop.call_later(_TICK, self._watch)

    def _balance(self, now: float) -> None:
        """Start workers for those that are gone or do not respond; end one that is too many and has no session."""
        responding = [worker for worker in self.workers if self._responds(worker)]
        missing = self.limits.workers - len(responding) - self._starting
        if missing > 0 and len(self.workers) < 2 * self.limits.workers and now >= self._next_start:
            self._next_start = now + _PAUSE
            self.keep(asyncio.create_task(self._replace()))
        elif missing < 0:
            idle = next((worker for worker in responding if not worker.sessions), None)
            if idle is not None:
                self.workers.remove(idle)
                self.keep(asyncio.create_task(idle.close()))

    def _explained(self, error: BaseException) -> BaseException:
        """Return what went wrong in the workers, with a hint if they lack what this process has."""
        local = [env.env_id for env in self.envs.values() if env.env_id in gym.registry]
        if isinstance(error, ConfigError) and "unknown environment" in str(error) and local:
            return ConfigError(
                f"{error} Worker processes know what their modules register: write module:{local[0]}, or workers=0 to "
                "play the environments in this process"
            )
        return error
