"""The sessions of a server's clients: each is played by one of several workers, within limits that can be enforced."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import gymnasium as gym

from agent_envs import errors
from agent_envs.errors import BackendBusyError, BackendDownError, BackendError, BackendSlowError, ConfigError
from agent_envs.serving.limits import Limits
from agent_envs.serving.metrics import Metrics
from agent_envs.serving.process import WorkerProcess
from agent_envs.serving.protocol import BEGAN, END, LAST, OPEN, PLAYING, Frame, SessionError, encode
from agent_envs.serving.served_env import ServedEnv
from agent_envs.serving.worker import Setup

_log = logging.getLogger(__name__)
_TICK = 0.25  # seconds between checks of the limits, which are this coarse
_RESPONSIVE = 1.0  # seconds without a sign of life after which new sessions go elsewhere
_PAUSE = 1.0  # seconds between two attempts to replace workers
_CLOSE_SECONDS = 5.0


@dataclass(eq=False)
class ClientSession:
    """One client's session."""

    env: str
    """The environment's name."""
    number: int
    """What the worker knows it by."""
    worker: WorkerProcess
    """Plays it."""
    on_end: Callable[[], object]
    """Called when the server ends the session."""
    since: float
    """When the running call began or the last one ended (seconds of the loop's clock)."""
    answer: asyncio.Future[bytes] | None = None
    """The answer to the running call; cancelled when the session ends."""
    running: bool = False
    """Whether the worker has not answered yet; it may go on after the session's end."""
    playing: bool = False
    """Whether its episode has begun and has not ended."""
    bytes: int = 0
    """Of its messages and answers since its episode began."""
    failure: SessionError | None = None
    """Why the server ended it."""


class Pool:
    """The sessions and workers of a server. Methods are called on its event loop."""

    def __init__(self, envs: dict[str, ServedEnv], limits: Limits) -> None:
        self.envs, self.limits = envs, limits
        self.open: set[ClientSession] = set()
        self.waiting = 0
        """Messages without an answer."""
        self.draining = self.stopping = False
        self.workers: list[WorkerProcess] = []
        self.metrics = Metrics(envs)
        self._setup = Setup(tuple(envs.values()), limits.max_message, secrets.token_bytes(32))
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._last = 0  # session's number
        self._next_start = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- the pool as a whole -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers, on the running loop; raises what goes wrong with the environments."""
        self._loop = asyncio.get_running_loop()
        self.draining = self.stopping = False
        try:  # all of them end before an error is raised, so that none is left behind
            starts = (self._add_worker() for _ in range(max(1, self.limits.workers)))
            for error in await asyncio.gather(*starts, return_exceptions=True):
                if error is not None:
                    raise self._explained(error)
        except BaseException:
            await self.close()
            raise
        self._watch_later()

    async def drain(self, seconds: float) -> None:
        """Begin no further episodes, and wait up to ``seconds`` for those that are being played."""
        self.draining = True
        for session in list(self.open):
            self._end_if_drained(session)
        await self._until(lambda: not self.open, seconds)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        end = self._loop.time() + seconds
        while not done() and self._loop.time() < end:
            await asyncio.sleep(0.01)

    def _end_if_drained(self, session: ClientSession) -> None:
        if self.draining and not (session.running or session.playing):
            self._end(session, "STOPPING", BackendDownError("the server is about to stop"))

    async def finish(self, grace: float) -> None:
        """Wait up to ``grace`` seconds for running calls, then end all sessions."""
        if any(session.running for session in self.open):
            await self._until(lambda: not any(session.running for session in self.open), grace)
            await asyncio.sleep(_TICK)  # for the answers to leave
        for session in list(self.open):
            self._end(session, "STOPPING", BackendDownError("the server is shutting down"))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)

    async def close(self) -> None:
        """Close the environments and end the workers."""
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for session in list(self.open):
            self.leave(session)
        await self._until(lambda: not any(each.ready and each.sessions for each in self.workers), _CLOSE_SECONDS)
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
    def episodes(self) -> int:
        """The places that are taken: those of open sessions, and of closed ones whose last step has not ended."""
        return sum(len(worker.sessions) for worker in self.workers)

    def gauges(self) -> dict[str, int]:
        """Return how busy the server is."""
        return {
            "ready": int(self.healthy and not self.draining),
            "workers": sum(worker.ready for worker in self.workers),
            "clients": len(self.open),
            "episodes": self.episodes,
            "episodes_limit": self.limits.max_episodes,
            "messages_waiting": self.waiting,
            "messages_waiting_limit": self.limits.max_waiting,
        }

    # -- sessions ------------------------------------------------------------------------------------------------

    def enter(self, name: str, client_kwargs: object, on_end: Callable[[], object]) -> ClientSession:
        """Open a session (see `ClientSession`) of an environment.

        Raises a SessionError if there is no room, and a ConfigError if the client's arguments are malformed.
        """
        if self.stopping or self.draining:
            raise self._refused("STOPPING", BackendDownError("the server is shutting down"))
        if not self.healthy or self.episodes >= self.limits.max_episodes:
            why = f"{self.episodes} of {self.limits.max_episodes} episodes" if self.healthy else "no worker is ready"
            raise self._refused("CAPACITY_REACHED", BackendBusyError(f"too many clients ({why}); try again later"))
        if not isinstance(client_kwargs, dict):
            raise ConfigError(f"the environment's arguments must be an object, got {type(client_kwargs).__name__}")
        try:
            text = encode([name, client_kwargs]).encode()
        except RecursionError as e:
            raise ConfigError("the environment's arguments are nested too deeply") from e
        ready = (worker for worker in self.workers if worker.ready)
        worker = min(ready, key=lambda worker: (not self._responds(worker), len(worker.sessions)))
        self._last += 1
        session = ClientSession(name, self._last, worker, on_end, self._loop.time())
        worker.sessions[session.number] = session
        worker.send(Frame(session.number, OPEN, text))
        self.open.add(session)
        return session

    def leave(self, session: ClientSession) -> None:
        """Close a session; its place is free when the worker has closed its environment."""
        if session in self.open:
            self.open.discard(session)
            if session.answer is not None:
                session.answer.cancel()
            session.worker.send(Frame(session.number, END))

    def _end(self, session: ClientSession, code: str, error: errors.AgentEnvsError) -> None:
        session.failure = SessionError(error, code)
        self.leave(session)
        self.metrics.ended[code] += 1
        session.on_end()

    def _refused(self, code: str, error: errors.AgentEnvsError) -> SessionError:
        self.metrics.refused[code] += 1
        return SessionError(error, code)

    async def ask(self, session: ClientSession, raw: str | bytes) -> bytes:
        """Return the answer to a message of a session that is not running.

        Raises a SessionError if too many messages are waiting or when the server ends the session, and is cancelled
        when the client leaves.
        """
        text = raw.encode() if isinstance(raw, str) else raw
        if self.waiting >= self.limits.max_waiting:
            raise self._refused("BUSY", BackendBusyError("too many messages are waiting; try again later"))
        session.bytes += len(text)
        session.answer = self._loop.create_future()
        if self.stopping:
            self._end(session, "STOPPING", BackendDownError("the server is shutting down"))
        elif session.bytes > self.limits.episode_bytes:
            error = f"the messages of this episode have more than {self.limits.episode_bytes:g} bytes"
            self._end(session, "OVER_BUDGET", BackendError(error))
        else:
            session.running, session.since = True, self._loop.time()
            self.waiting += 1
            session.worker.send(Frame(session.number, LAST if self.draining else 0, text))
        try:
            return await session.answer
        except asyncio.CancelledError:
            if session.failure is not None:
                raise session.failure from None
            raise

    def _take(self, worker: WorkerProcess, frame: Frame) -> None:
        """Take a frame from a worker."""
        session = worker.sessions.get(frame.session)
        if session is None:
            return
        if frame.flags & END:
            self._forget(session)
            return
        now = self._loop.time()
        if session.running:
            self.metrics.answered(session.env, now - session.since, frame)
            session.running, session.since = False, now
            self.waiting -= 1
        session.bytes = len(frame.text) + (0 if frame.flags & BEGAN else session.bytes)
        session.playing = bool(frame.flags & PLAYING)
        if session.answer is not None and not session.answer.done():
            session.answer.set_result(frame.text)
        if session in self.open:
            self._end_if_drained(session)

    def _forget(self, session: ClientSession) -> None:
        session.worker.sessions.pop(session.number, None)
        if session.running:
            session.running = False
            self.waiting -= 1

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

    async def _replace(self) -> None:
        if self.stopping:
            return
        try:
            await self._add_worker()
        except Exception as e:  # noqa: BLE001  the next attempt comes soon
            _log.error("a worker process cannot be started: %s", e)

    def _lose(self, worker: WorkerProcess) -> None:
        """End the sessions of a worker that has ended."""
        if worker not in self.workers or not worker.begun or self.stopping:
            return
        self.workers.remove(worker)
        self.keep(asyncio.create_task(worker.close()))
        sessions = list(worker.sessions.values())
        self.metrics.replaced += 1
        _log.error("a worker process with %d sessions was replaced: %s", len(sessions), worker.reason)
        for session in sessions:
            self._forget(session)
            if session in self.open:
                why = f"the process of this episode is gone: {worker.reason}"
                self._end(session, "WORKER_LOST", BackendDownError(why))

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
            if session.running and waited > limits.step_timeout:
                error = f"no answer from the environment in {limits.step_timeout:g} seconds; the episode is lost"
                self._end(session, "STEP_TIMEOUT", BackendSlowError(error))
            elif not session.running and waited > limits.idle_timeout:
                error = f"no message in {limits.idle_timeout:g} seconds; the episode is closed"
                self._end(session, "IDLE_TIMEOUT", BackendSlowError(error))
        for worker in [worker for worker in self.workers if worker.ready]:
            running = [session.since for session in worker.sessions.values() if session.running]
            longest = now - min(running, default=now)
            worker.overdue = longest > limits.step_timeout
            if worker.process is None:
                continue
            if worker.asked is not None:
                worker.asked += late
            if longest > 2 * limits.step_timeout:
                worker.kill(f"a step did not end in {2 * limits.step_timeout:g} seconds")
            elif worker.asked is not None and now - worker.asked > limits.stall_timeout:
                worker.kill(f"a step held its interpreter for {limits.stall_timeout:g} seconds")
            elif worker.memory() > limits.worker_memory * (1 << 20):
                worker.kill(f"it took more than {limits.worker_memory:.0f} MB of memory")
            elif worker.asked is None and running:
                worker.asked = now
                worker.send(Frame(0))
        if limits.workers:
            self._balance(now)
        self._watch_later()

    def _watch_later(self) -> None:
        self._due = self._loop.time() + _TICK
        self._timer = self._loop.call_later(_TICK, self._watch)

    def _balance(self, now: float) -> None:
        """Start workers for those that are gone or do not respond; end one that is too many and has no session."""
        responding = [worker for worker in self.workers if self._responds(worker)]
        starting = sum(not worker.begun for worker in self.workers)
        missing = self.limits.workers - len(responding) - starting
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
