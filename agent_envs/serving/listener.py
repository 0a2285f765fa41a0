"""The way in to this package's servers: how many clients at once, for how long, and with how much to say.

Connections, the time until a request is complete and the bytes that wait for an answer are limited, each request is
checked (see `access`), and a malformed one is refused without a traceback.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from agent_envs.errors import ConfigError, check_release, first_line
from agent_envs.serving.access import AccessError, check_access, check_binding
from agent_envs.threads import LoopThread

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["BackgroundServer", "Listener", "read_body", "read_object"]

_log = logging.getLogger(__name__)
_TICK = 0.5  # seconds between looks at all connections
_COLLECT_AFTER = 1000  # closed connections, and as many as are open
_COLLECT_SECONDS = 600.0  # at most between two full collections of garbage
_SPARE_FILES = 64  # open files that are no connections
_OPEN_TO_ALL = ("/health", "/ready")  # load balancers have no token
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class _Handler(Protocol):
    """What aiohttp makes for a connection."""

    def connection_made(self, transport: Any) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> Any: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class _Connection(asyncio.Protocol):
    """One connection: counts what comes in, and passes it on to aiohttp's handler of it."""

    transport: asyncio.Transport

    def __init__(self, listener: Listener, handler: _Handler) -> None:
        self._listener, self.handler = listener, handler
        self.since = listener.loop.time()
        self.accepted = self.began = False
        """Whether a request has come, headers and all."""
        self.unanswered = 0
        """Bytes since the last answer."""
        self.unsent = 0
        """Bytes of answers that the client has not read, at the last look."""
        self.unsent_since = 0.0

    def connection_made(self, transport: Any) -> None:  # uvloop's is no asyncio.Transport
        self.transport = transport
        self.accepted = self._listener.has_room_for(self)
        if self.accepted:
            self.handler.connection_made(transport)
        else:
            transport.write(_FULL)
            transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.accepted:
            return
        self.unanswered += len(data)
        self._listener.unanswered += len(data)
        if self._listener.unanswered > self._listener.max_unanswered:
            self._listener.drop_largest()
        try:
            self.handler.data_received(data)
        except Exception as e:  # noqa: BLE001  whatever a parser fails with, only this client has to do with it
            _log.debug("a request could not be parsed: %r", e)
            self.transport.abort()

    def answered(self) -> None:
        self._listener.unanswered -= self.unanswered
        self.unanswered = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.answered()
        if self.accepted:
            self.accepted = False
            self._listener.closed += 1
            del self._listener.connections[self.handler]
            self.handler.connection_lost(exc)

    def eof_received(self) -> Any:
        return self.handler.eof_received() if self.accepted else None

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()


_Answer = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


class _Quiet(logging.Filter):
    """Keeps a malformed request's traceback out of the log: anybody could fill it."""

    def filter(self, record: logging.LogRecord) -> bool:
        from aiohttp import web
        from aiohttp.http import HttpProcessingError

        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (HttpProcessingError, web.RequestPayloadError))


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_Quiet())


class Listener:
    """Listens on an address and guards an aiohttp application.

    Args:
        host, port, token: Where to listen, and what clients have to send; as for `check_binding`.
        refusal: Makes the answer to a refused request from its status and a message.
        max_body: Bytes of the largest body of a request.
        token_header: A header that may carry the token alone, instead of `Authorization`.
        max_connections: Most connections at once. Beyond, one that has not sent a request yet is cut off for a new one,
            and without such a one the new one gets status 503.
        max_unanswered: Most bytes that all clients may have sent without an answer; beyond, the client with the most
            of them is cut off.
        head_seconds: Time until a connection's first request, after which it is cut off.
        stalled_seconds: Time in which a client reads nothing of its answer, after which it is cut off.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None,
        refusal: Callable[[int, str], web.StreamResponse],
        *,
        max_body: int,
        token_header: str = "",
        max_connections: int = 2048,
        max_unanswered: int = 512 << 20,
        head_seconds: float = 20.0,
        stalled_seconds: float = 120.0,
    ) -> None:
        check_binding(host, token)
        self.host, self.port = host, port
        self.loop: asyncio.AbstractEventLoop
        self.connections: dict[object, _Connection] = {}
        self.unanswered, self.max_unanswered = 0, max(max_unanswered, 2 * max_body)
        self.closed, self._collected = 0, math.inf  # since the last full collection of garbage, and when that was
        self._token, self._token_header, self._refusal, self._max_body = token, token_header, refusal, max_body
        self._max_connections, self._head_seconds, self._stalled_seconds = (
            max_connections, head_seconds, stalled_seconds,
        )  # fmt: skip
        self._runner: web.AppRunner
        self._server: asyncio.Server
        self._timer: asyncio.TimerHandle

    @property
    def url(self) -> str:
        """The address that the server listens on."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def application(
        self, with_errors: Callable[[web.Request, _Answer], Awaitable[web.StreamResponse]]
    ) -> web.Application:
        """Return an application whose requests are checked, and then answered by `with_errors(request, handler)`."""
        from aiohttp import web

        @web.middleware
        async def guard(request: web.Request, handler: _Answer) -> web.StreamResponse:
            return await self._guard(request, lambda request: with_errors(request, handler))

        return web.Application(middlewares=[guard], client_max_size=self._max_body)

    async def open(self, app: web.Application, **options: Any) -> None:
        """Start listening, on the running loop; a ConfigError if the address does not work.

        `options` are those of `aiohttp.web.AppRunner`.
        """
        from aiohttp import web

        self.loop = asyncio.get_running_loop()
        self._max_connections = min(self._max_connections, max(16, _open_file_limit() - _SPARE_FILES))
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, logger=_http_log, **options)
        await self._runner.setup()
        make_handler: Any = self._runner.server
        try:
            self._server = await self.loop.create_server(
                lambda: _Connection(self, make_handler()), self.host, self.port, backlog=1024
            )
        except (OSError, OverflowError) as e:
            await self._runner.cleanup()
            raise ConfigError(f"cannot listen on {self.host}:{self.port}: {e}") from e
        self.port = self._server.sockets[0].getsockname()[1]
        self._timer = self.loop.call_later(_TICK, self._watch)

    def refuse(self) -> None:
        """Stop listening; open connections stay."""
        self._server.close()

    async def close(self) -> None:
        """Stop listening, and close the connections."""
        self._server.close()
        self._timer.cancel()
        await self._runner.cleanup()

    # -- connections ---------------------------------------------------------------------------------------------

    def has_room_for(self, connection: _Connection) -> bool:
        """Take on a connection if there is room, or if a connection without a request can go for it."""
        if len(self.connections) >= self._max_connections:
            silent = next((one for one in self.connections.values() if not one.began), None)  # the oldest
            if silent is None:
                return False
            silent.connection_lost(None)
            silent.transport.abort()
        self.connections[connection.handler] = connection
        return True

    def answered(self, request: web.Request) -> None:
        """Note that everything that a client has sent over a WebSocket is answered."""
        if request.protocol in self.connections:
            self.connections[request.protocol].answered()

    def drop_largest(self) -> None:
        """Cut off the client that has sent most without an answer."""
        largest = max(self.connections.values(), key=lambda connection: connection.unanswered)
        _log.warning("a client is cut off: its unanswered requests have %d bytes", largest.unanswered)
        largest.answered()
        largest.transport.abort()

    def collect_garbage(self) -> None:
        """Say from now on when this process collects garbage in full, in a process that is the server's alone.

        Python does whenever there are a quarter more objects, which holds up everybody: with 10,000 connections for
        0.7 seconds of processor time. It is done here when as many connections have closed as are open, so that the
        memory of what is over stays below that of what goes on.
        """
        gc.set_threshold(*gc.get_threshold()[:2], 1 << 30)
        self._collected = time.monotonic()

    def _collect_when_due(self) -> None:
        now = time.monotonic()
        if self.closed > max(_COLLECT_AFTER, len(self.connections)) or now - self._collected > _COLLECT_SECONDS:
            gc.collect()
            self.closed, self._collected = 0, now

    def _watch(self) -> None:
        now = self.loop.time()
        if self._collected < math.inf:
            self._collect_when_due()
        for connection in list(self.connections.values()):
            if not connection.began:
                if now - connection.since > self._head_seconds:
                    connection.transport.abort()
                continue
            unsent = connection.transport.get_write_buffer_size()
            if not unsent or unsent != connection.unsent:
                connection.unsent, connection.unsent_since = unsent, now
            elif now - connection.unsent_since > self._stalled_seconds:
                connection.transport.abort()
        self._timer = self.loop.call_later(_TICK, self._watch)

    async def _guard(self, request: web.Request, handler: _Answer) -> web.StreamResponse:
        connection = self.connections.get(request.protocol)
        if connection is None:  # cut off since
            raise ConnectionResetError
        connection.began = True
        try:
            if request.path not in _OPEN_TO_ALL:
                headers: Mapping[str, str] = request.headers
                if self._token is not None and self._token_header in headers:
                    headers = {**headers, "Authorization": f"Bearer {headers[self._token_header]}"}
                check_access(headers, self._token)
            return await handler(request)
        except AccessError as e:
            response = self._refusal(e.status, str(e))
            if e.status == 401:
                for way in ("Bearer", 'Basic realm="agentr1"'):  # browsers read one challenge in a header
                    response.headers.add("WWW-Authenticate", way)
            return response
        finally:
            connection.answered()


def _open_file_limit() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 1 << 20
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


async def read_body(request: web.Request, seconds: float = 60.0) -> bytes:
    """Return a request's body; aiohttp's exception for status 400, 408 or 413 if it is broken, slow or too large."""
    from aiohttp import web

    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError as e:
        raise web.HTTPRequestTimeout from e
    except (ValueError, web.RequestPayloadError) as e:  # such as a gzip that is none
        raise web.HTTPBadRequest(reason="the body cannot be decoded") from e


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the JSON object that a request's body holds; a ConfigError if it holds something else."""
    try:
        body = json.loads(await read_body(request))
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"the request is not JSON: {first_line(e)}") from e
    if not isinstance(body, dict):
        raise ConfigError(f"the request must be a JSON object, got {type(body).__name__}")
    return body


class BackgroundServer:
    """A server that runs in a thread from `start`, or `with`, to `close`."""

    listener: Listener
    _thread: LoopThread | None = None

    @property
    def url(self) -> str:
        """The address that the server listens on."""
        return self.listener.url

    async def open(self) -> None:
        """Start listening, on the running loop; a ConfigError if the address does not work."""
        raise NotImplementedError

    async def shut_down(self, grace: float = 30.0) -> None:
        """Stop; running calls get `grace` seconds."""
        raise NotImplementedError

    def start(self) -> None:
        """Serve in a thread; a ConfigError as in `open`, or if the server is already running."""
        if self._thread is not None:
            raise ConfigError(f"the server is already running, at {self.url}")
        check_release("aiohttp", "serve")
        thread = LoopThread("agent_envs-server")
        try:
            thread.submit(self.open()).result()
        except BaseException:
            thread.stop()
            raise
        self._thread = thread

    def close(self, grace: float = 30.0) -> None:
        """End the thread that `start` began; running calls get `grace` seconds."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.submit(self.shut_down(grace)).result()
            finally:
                thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
