"""The way in to this package's servers: how many clients at once, for how long, and with how much to say.

Connections, the time until a request is complete and the bytes that wait for an answer are limited, each request is
checked (see `access`), and a malformed one is refused without a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

from agent_envs.errors import AgentEnvsError, ConfigError, check_release, first_line, needs_extra
from agent_envs.serving.access import StatusError, check_access, check_binding
from agent_envs.serving.protocol import traceback_text
from agent_envs.threads import LoopThread

with needs_extra("serve"):
    from aiohttp import web
    from aiohttp.http import HttpProcessingError

_log = logging.getLogger(__name__)
_TICK = 0.5  # seconds between looks at all connections
_HEAD_SECONDS = 20.0  # until a connection's first request, after which it is cut off
_UNANSWERED = 512 << 20  # bytes that all clients may have sent without an answer; beyond, who sent most is cut off
_COLLECT_AFTER = 1000  # closed connections, and as many as are open
_COLLECT_SECONDS = 600.0  # at most between two full collections of garbage
_SPARE_FILES = 64  # open files that are no connections
_OPEN_TO_ALL = ("/health", "/ready")  # load balancers have no token
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_OPTIONS = {"access_log": None, "keepalive_timeout": 75.0, "max_line_size": 1 << 16, "max_field_size": 8190}


def _worth_logging(record: logging.LogRecord) -> bool:
    """Keep a malformed request's traceback out of the log: anybody could fill it."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (HttpProcessingError, web.RequestPayloadError))


_http_log = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(_worth_logging)


class _Connection(web.RequestHandler):
    """One connection, which counts what comes in."""

    def __init__(self, listener: Listener, server: web.Server, **options: Any) -> None:
        super().__init__(server, loop=listener.loop, logger=_http_log, **options)
        self._listener = listener
        self.since = listener.loop.time()
        self.accepted = self.began = False
        """Whether a request has come, headers and all."""
        self.unanswered = 0
        """Bytes since the last answer."""
        self.unsent = 0
        """Bytes of answers that the client has not read, at the last look."""
        self.unsent_since = 0.0

    def connection_made(self, transport: Any) -> None:
        self.accepted = self._listener.has_room_for(self)
        if self.accepted:
            super().connection_made(transport)
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
            super().data_received(data)
        except Exception as e:  # noqa: BLE001  whatever a parser fails with, only this client has to do with it
            _log.debug("a request could not be parsed: %r", e)
            self.cut_off()

    def answered(self) -> None:
        self._listener.unanswered -= self.unanswered
        self.unanswered = 0

    def cut_off(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.answered()
        if self.accepted:
            self.accepted = False
            self._listener.closed += 1
            self._listener.connections.pop(self, None)
            super().connection_lost(exc)


_Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Listener:
    """Listens on an address and guards an aiohttp application.

    Args:
        host, port, token: Where to listen, and what clients have to send; as for `check_binding`.
        refusal: Makes the answer to a request that failed from its status, a message and the error.
        max_body: Bytes of the largest body of a request.
        token_header: A header that may carry the token alone, instead of `Authorization`.
        max_connections: Most connections at once. Beyond, one that has not sent a request yet is cut off for a new one,
            and without such a one the new one gets status 503.
        stalled_seconds: Time in which a client reads nothing of its answer, after which it is cut off.
        statuses: By an error's class, which it is looked up by in this order: the status of its answer.
        paths: What there is, in words.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token: str | None,
        refusal: Callable[[int, str, Exception], web.StreamResponse],
        *,
        max_body: int,
        token_header: str = "",
        max_connections: int = 2048,
        stalled_seconds: float = 120.0,
        statuses: Mapping[type[Exception], int] | None = None,
        paths: str = "",
    ) -> None:
        check_release("aiohttp", "serve")
        check_binding(host, token)
        self.host, self.port = host, port
        self.loop: asyncio.AbstractEventLoop
        self.connections: dict[_Connection, None] = {}  # in the order in which they came
        self.unanswered, self.max_unanswered = 0, max(_UNANSWERED, 2 * max_body)
        self.closed, self._collected = 0, math.inf  # since the last full collection of garbage, and when that was
        self._token, self._token_header, self._refusal, self._max_body = token, token_header, refusal, max_body
        self._max_connections, self._stalled_seconds = max_connections, stalled_seconds
        self._statuses, self._paths = statuses or {AgentEnvsError: 400}, paths
        self._runner: web.AppRunner
        self._server: asyncio.Server
        self._timer: asyncio.TimerHandle

    @property
    def url(self) -> str:
        """The address that the server listens on."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def open(
        self,
        routes: web.RouteTableDef | list[web.RouteDef],
        *,
        handler_cancellation: bool = False,
        shutdown_timeout: float = 2.0,
    ) -> None:
        """Start listening, on the running loop; a ConfigError if the address does not work.

        The options are those of `aiohttp.web.AppRunner`.
        """
        self.loop = asyncio.get_running_loop()
        with contextlib.suppress(ImportError):  # Windows has no such limit
            import resource

            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if files != resource.RLIM_INFINITY:
                self._max_connections = min(self._max_connections, max(16, files - _SPARE_FILES))
        app = web.Application(middlewares=[self._guard], client_max_size=self._max_body)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app, handle_signals=False, handler_cancellation=handler_cancellation, shutdown_timeout=shutdown_timeout
        )
        await self._runner.setup()
        server: Any = self._runner.server
        try:
            self._server = await self.loop.create_server(
                lambda: _Connection(self, server, **_OPTIONS), self.host, self.port, backlog=1024
            )
        except (OSError, OverflowError) as e:
            await self._runner.cleanup()
            raise ConfigError(
                f"cannot listen on {self.host}:{self.port} ({e}); name another port, or 0 for a free one"
            ) from e
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
            silent = next((one for one in self.connections if not one.began), None)  # the oldest
            if silent is None:
                return False
            silent.cut_off()
            del self.connections[silent]
        self.connections[connection] = None
        return True

    def drop_largest(self) -> None:
        """Cut off the client that has sent most without an answer."""
        largest = max(self.connections, key=lambda connection: connection.unanswered)
        _log.warning("a client is cut off: its unanswered requests have %d bytes", largest.unanswered)
        largest.answered()
        largest.cut_off()

    def collect_garbage(self) -> None:
        """Say from now on when this process collects garbage in full, in a process that is the server's alone.

        Python does whenever there are a quarter more objects, which holds up everybody: with 10,000 connections for
        0.7 seconds of processor time. It is done here when as many connections have closed as are open, so that the
        memory of what is over stays below that of what goes on.
        """
        gc.set_threshold(*gc.get_threshold()[:2], 1 << 30)
        self._collected = self.loop.time()

    def _watch(self) -> None:
        now = self.loop.time()
        many = self.closed > max(_COLLECT_AFTER, len(self.connections))
        if self._collected < math.inf and (many or now - self._collected > _COLLECT_SECONDS):
            gc.collect()
            self.closed, self._collected = 0, now
        for connection in list(self.connections):
            transport = connection.transport
            if not connection.began:
                if now - connection.since > _HEAD_SECONDS:
                    connection.cut_off()
            elif transport is not None:
                unsent = transport.get_write_buffer_size()
                if not unsent or unsent != connection.unsent:
                    connection.unsent, connection.unsent_since = unsent, now
                elif now - connection.unsent_since > self._stalled_seconds:
                    connection.cut_off()
        self._timer = self.loop.call_later(_TICK, self._watch)

    # -- requests --------------------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Answer) -> web.StreamResponse:
        connection = request.protocol
        if not isinstance(connection, _Connection) or not connection.accepted:  # cut off since
            raise ConnectionResetError
        connection.began = True
        try:
            if request.path not in _OPEN_TO_ALL:
                headers: Mapping[str, str] = request.headers
                if self._token is not None and self._token_header in headers:
                    headers = {**headers, "Authorization": f"Bearer {headers[self._token_header]}"}
                check_access(headers, self._token)
            return await handler(request)
        except ConnectionError:
            raise
        except Exception as e:  # noqa: BLE001  every one has an answer
            return self._explained(request, e)
        finally:
            connection.answered()

    def _explained(self, request: web.Request, error: Exception) -> web.StreamResponse:
        """Return the answer to a request that failed."""
        message = str(error)
        status = next((status for kind, status in self._statuses.items() if isinstance(error, kind)), 0)
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            status, message = 413, f"the request has more than {self._max_body} bytes"
        elif isinstance(error, web.HTTPException):
            status, message = error.status, error.reason
            if isinstance(error, (web.HTTPNotFound, web.HTTPMethodNotAllowed)):
                message = f"there is nothing at {request.method} {request.path[:200]}; the paths are {self._paths}"
        elif isinstance(error, StatusError):
            status = error.status
        elif not status:
            _log.error(traceback_text("a request"))
            status, message = 500, f"{type(error).__name__} in the server, which has logged it"
        elif status >= 500:
            _log.error("%s: %s", request.path, error)
        response = self._refusal(status, message, error)
        if status == 401:
            for way in ("Bearer", 'Basic realm="agentr1"'):  # browsers read one challenge in a header
                response.headers.add("WWW-Authenticate", way)
        elif status == 503:
            response.headers["Retry-After"] = "1"
        elif isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = error.headers["Allow"]
        return response


def answered(request: web.Request) -> None:
    """Note that everything that a client has sent over a WebSocket is answered."""
    if isinstance(request.protocol, _Connection):
        request.protocol.answered()


async def read_body(request: web.Request, seconds: float = 60.0) -> bytes:
    """Return a request's body; aiohttp's exception for status 400, 408 or 413 if it is broken, slow or too large."""
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
        raise ConfigError(f"the request must be an object of JSON, got {type(body).__name__}")
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
        """Stop listening, and close the connections; running calls get `grace` seconds."""
        await self.listener.close()

    def start(self) -> Self:
        """Serve in a thread, and return the server; a ConfigError as in `open`, or if the server is already running."""
        if self._thread is not None:
            raise ConfigError(f"the server is already running, at {self.url}")
        thread = LoopThread("agent_envs-server")
        try:
            thread.submit(self.open()).result()
        except BaseException:
            thread.stop()
            raise
        self._thread = thread
        return self

    def close(self, grace: float = 30.0) -> None:
        """End the thread that `start` began; running calls get `grace` seconds."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.submit(self.shut_down(grace)).result()
            finally:
                thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()
