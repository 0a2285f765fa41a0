"""The server: OpenEnv's HTTP and WebSocket protocol in front of any number of episodes, in one process."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent_envs.errors import BackendDownError, BackendSlowError, ConfigError, check_release
from agent_envs.serving.access import check_binding
from agent_envs.serving.protocol import MAX_ADDRESS, MAX_MESSAGE
from agent_envs.serving.queue import PATIENCE, WorkQueue
from agent_envs.serving.served_env import ServedEnv
from agent_envs.serving.server_state import House
from agent_envs.serving.session import Session

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["EnvServer", "Seat"]

_TICK = 0.25  # seconds between looks at what takes too long; time-outs are this coarse


class Seat:
    """A session as the event loop sees it: what it runs, since when, and how to end it."""

    def __init__(
        self, session: Session, end: Callable[[BaseException, str], None], now: float, idle_timeout: float
    ) -> None:
        self.session = session
        self.idle_timeout = idle_timeout
        self.end = end
        """Ends the session, with the reason and its code: a time-out, or the server's end."""
        self.running: asyncio.Future[Any] | None = None
        self.since = now
        """When the running call began, or the last one ended; seconds of the loop's clock."""
        self.limit: float | None = None
        """Seconds the running call may take, where the client asked for fewer than the server allows."""
        self.slow = False
        """Whether the last call took so long that the next one gets a thread of its own."""


class EnvServer:
    """Serves environments to many clients at once, each with an episode of its own.

    Args:
        envs: What is served; the first one at the root, each at /NAME too.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which `url` then tells.
        token: What clients have to send. Needed where other machines reach `host`.
        max_episodes: Environments at once; a further one is refused.
        max_waiting: Messages that may wait for a thread, over all clients; a further one is refused.
        step_timeout: Seconds a step may take; then the client gets an error and its episode ends.
        idle_timeout: Seconds without a message after which an episode ends.
        ping: Seconds between pings; a client that answers none for half as long is gone.
        max_message: Bytes of the longest message.

    Raises:
        ConfigError: The arguments do not fit, an environment cannot be made, or the address cannot be used.
        MissingExtraError: aiohttp is not installed.

    >>> from agent_envs.serving import RemoteEnv
    >>> with EnvServer([ServedEnv("AgentR1/GSM8KTool-v0")], port=0) as server:
    ...     env = RemoteEnv(server.url)
    ...     question, info = env.reset(seed=0)
    ...     result = env.step(env.format_call("calculator", {"expression": "2*3"}))
    ...     env.close()
    >>> result[0]
    '6'
    """

    def __init__(
        self,
        envs: Sequence[ServedEnv],
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        token: str | None = None,
        max_episodes: int = 256,
        max_waiting: int = 1024,
        step_timeout: float = 120.0,
        idle_timeout: float = 1800.0,
        ping: float = 20.0,
        max_message: int = MAX_MESSAGE,
    ) -> None:
        if not envs:
            raise ConfigError("there is nothing to serve: name at least one environment")
        numbers = {"max_episodes": max_episodes, "max_waiting": max_waiting, "max_message": max_message}
        for name, number in numbers.items():
            if type(number) is not int or number < 1:
                raise ConfigError(f"{name} must be an integer of at least 1, got {number!r}")
        for name, seconds in {"step_timeout": step_timeout, "idle_timeout": idle_timeout, "ping": ping}.items():
            if not seconds > 0:
                raise ConfigError(f"{name} must be above 0 seconds, got {seconds!r}")
        if len({served.name for served in envs}) < len(envs):
            raise ConfigError("each environment can be served once; start another server for other arguments")
        check_binding(host, token)
        self.envs = {served.name: served for served in envs}
        self.host, self.port, self.token = host, port, token
        self.max_waiting, self.max_message = max_waiting, max_message
        self.step_timeout, self.idle_timeout, self.ping = step_timeout, idle_timeout, ping
        self.house = House(max_episodes, max_message)
        self.stopping = False
        self.seats: set[Seat] = set()
        self.work: WorkQueue
        self._loop: asyncio.AbstractEventLoop
        self._runner: web.AppRunner
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Future[Any]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped: asyncio.Event
        self._grace = 30.0
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    # -- life ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to listen, on the running loop.

        Raises:
            ConfigError: An environment cannot be made, or the address cannot be used.
        """
        check_release("aiohttp", "3.11", "4", "serve")
        from aiohttp import web

        from agent_envs.serving.routes import application

        self._loop = asyncio.get_running_loop()
        self.stopping = False
        self.work = WorkQueue(self._loop)
        for served in self.envs.values():  # one of each is made now: bad arguments and missing data are an error here
            await self.work.submit(self.house.describe, served, {}, apart=True).done
        self._runner = web.AppRunner(
            application(self), access_log=None, handle_signals=False, shutdown_timeout=2.0, keepalive_timeout=75.0,
            max_line_size=MAX_ADDRESS,
        )  # fmt: skip
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port, backlog=1024).start()
        except (OSError, OverflowError) as e:
            await self._runner.cleanup()
            raise ConfigError(f"cannot listen on {self.host}:{self.port}: {e}") from e
        self.port = self._runner.addresses[0][1]
        self._sweep = self._loop.call_later(_TICK, self._look_around)

    async def stop(self, grace: float = 30.0) -> None:
        """Stop: no new connections and messages, running steps finish, episodes are closed.

        Args:
            grace: Seconds that running steps may take.
        """
        self.stopping = True
        for site in list(self._runner.sites):
            await site.stop()
        running = [seat.running for seat in self.seats if seat.running is not None]
        if running:
            await asyncio.wait(running, timeout=grace)
            await asyncio.sleep(_TICK)  # their answers leave
        if self._sweep is not None:
            self._sweep.cancel()
        gone = BackendDownError("the server stops")
        for seat in list(self.seats):
            seat.end(gone, "STOPPING")
        if self._ending:
            await asyncio.wait(self._ending, timeout=5.0)
        await self._runner.cleanup()
        for seat in list(self.seats):
            self.leave(seat)
        if self._closing:
            await asyncio.wait(self._closing, timeout=5.0)

    def start(self) -> None:
        """Serve in a thread of its own, until `close`.

        Raises:
            ConfigError: It does so already; or as `open`.
        """
        if self._thread is not None:
            raise ConfigError(f"the server runs already, at {self.url}")
        ready = threading.Event()
        failure: list[BaseException] = []

        async def serve() -> None:
            self._stopped = asyncio.Event()
            try:
                await self.open()
            except BaseException as e:  # noqa: BLE001  raised again where start() was called
                failure.append(e)
                return
            finally:
                ready.set()
            await self._stopped.wait()
            await self.stop(self._grace)

        self._thread = threading.Thread(target=asyncio.run, args=(serve(),), name="agent_envs-server", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            self._thread.join()
            self._thread = None
            raise failure[0]

    def close(self, grace: float = 30.0) -> None:
        """Stop the thread that `start` began.

        Args:
            grace: Seconds that running steps may take.
        """
        if self._thread is None:
            return
        self._grace = grace
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> EnvServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def full(self) -> bool:
        """Whether no further client is let in, with or without an episode."""
        return self.stopping or len(self.seats) >= 2 * self.house.limit + 64

    def served(self, name: str) -> ServedEnv:
        """The environment of a name, "" for the first."""
        return self.envs[name] if name else next(iter(self.envs.values()))

    # -- sessions ------------------------------------------------------------------------------------------------

    def seat(
        self,
        name: str,
        chosen: dict[str, Any],
        end: Callable[[BaseException, str], None],
        idle_timeout: float = math.inf,
    ) -> Seat:
        """A new session.

        Args:
            name: Which environment, "" for the first.
            chosen: The client's arguments of the environment.
            end: Called when the session is over because of a time-out or the server's end.
            idle_timeout: Seconds without a message that end it, where that is less than the server's own limit.
        """
        idle_timeout = min(idle_timeout, self.idle_timeout)
        seat = Seat(Session(self.served(name), chosen, self.house), end, self._loop.time(), idle_timeout)
        self.seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """A session is over: its environment is closed in a thread."""
        if seat in self.seats:
            self.seats.discard(seat)
            closing = self.work.submit(seat.session.close, apart=seat.slow).done
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def ending(self, task: asyncio.Task[None]) -> None:
        """Keep a task that tells a client of the end until it is done."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def begin(self, seat: Seat, raw: str | bytes, limit: float | None = None) -> asyncio.Future[Any]:
        """Begin to answer a message; the future has the `Answer`, or the exception of a time-out.

        Args:
            seat: Whose message it is; it has none running.
            raw: The message.
            limit: Seconds the answer may take, where that is less than the server's own limit.
        """
        job = self.work.submit(seat.session.handle, raw, apart=seat.slow)
        seat.running, seat.since, seat.limit = job.done, self._loop.time(), limit
        job.done.add_done_callback(lambda _: self._ended(seat, job.seconds))
        return job.done

    def _ended(self, seat: Seat, seconds: float) -> None:
        seat.running, seat.since = None, self._loop.time()
        seat.slow = seconds > PATIENCE

    def _look_around(self) -> None:
        """End what takes too long."""
        now = self._loop.time()
        for seat in list(self.seats):
            waited = now - seat.since
            if seat.running is not None:
                limit = min(self.step_timeout, seat.limit or self.step_timeout)
                if waited > limit and not seat.running.done():
                    error = BackendSlowError(
                        f"no answer from the environment in {limit:g} seconds; the episode is lost"
                    )
                    seat.running.set_exception(error)
            elif waited > seat.idle_timeout:
                seat.since = now
                error = BackendSlowError(f"no message in {seat.idle_timeout:g} seconds; the episode is closed")
                seat.end(error, "IDLE_TIMEOUT")
        self._sweep = self._loop.call_later(_TICK, self._look_around)
