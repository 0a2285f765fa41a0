"""The server's endpoints: OpenEnv's WebSocket and HTTP API as an aiohttp application."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from agent_envs._version import __version__
from agent_envs.checks import number
from agent_envs.errors import AgentEnvsError, BackendBusyError, BackendDownError, ConfigError, needs_extra
from agent_envs.serving.listener import Listener, read_body
from agent_envs.serving.metrics import METRICS_TYPE, metrics_text
from agent_envs.serving.protocol import CLOSE, FAILED, PROTOCOL, decode, encode, error_data, traceback_text
from agent_envs.serving.served_env import environment_metadata, schemas
from agent_envs.serving.workers.client_session import ClientSession
from agent_envs.serving.workers.pool import Pool

with needs_extra("serve"):
    from aiohttp import WSCloseCode, WSMsgType, web

__all__ = ["application", "refusal"]

_log = logging.getLogger(__name__)
_MAX_UNANSWERED = 8  # messages of one client, which should wait for each answer
_FAREWELL_SECONDS = 3.0
_HTTP_IDLE = 300.0  # seconds; nothing else shows that a client without a connection is gone
_STATUS = {
    "VALIDATION_ERROR": 422, "INVALID_JSON": 422, "UNKNOWN_TYPE": 422, "RESET_NEEDED": 409, "CAPACITY_REACHED": 503,
    "BUSY": 503, "STOPPING": 503, "STEP_TIMEOUT": 504, "IDLE_TIMEOUT": 504, "WORKER_LOST": 502, "OVER_BUDGET": 413,
}  # fmt: skip
_REFUSALS: dict[str, AgentEnvsError] = {
    "BUSY": BackendBusyError("too many messages are waiting; try again later"),
    "CAPACITY_REACHED": BackendBusyError("too many clients, or no worker is ready; try again later"),
    "STOPPING": BackendDownError("the server is shutting down"),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(pool: Pool, listener: Listener, ping: float | None) -> web.Application:
    """Return the application that serves sessions, with `ping` seconds between pings."""
    routes = _Routes(pool, listener, ping)
    app = listener.application(routes.with_errors)
    app.router.add_get("/", routes.overview)
    app.router.add_get("/health", routes.health)
    app.router.add_get("/ready", routes.ready)
    app.router.add_get("/metrics", routes.metrics)
    for name in ("", *pool.envs):
        prefix = f"/{name}" if name else ""
        for method, path, handler in (
            ("GET", "/ws", routes.socket),
            ("POST", "/reset", routes.reset),
            ("POST", "/step", routes.step),
            ("POST", "/close", routes.close),
            ("GET", "/state", routes.state),
            ("GET", "/metadata", routes.metadata),
            ("GET", "/schema", routes.schema),
        ):
            app.router.add_route(method, prefix + path, functools.partial(handler, name=name))
    return app


class _HTTPError(Exception):
    def __init__(self, status: int, data: dict[str, Any]) -> None:
        super().__init__(data["message"])
        self.status, self.data = status, data


class _Routes:
    """The handlers."""

    def __init__(self, pool: Pool, listener: Listener, ping: float | None) -> None:
        self._pool, self._listener, self._ping = pool, listener, ping
        self._by_id: dict[str, _HTTPClient] = {}

    async def with_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every error into a JSON object."""
        try:
            return await handler(request)
        except _HTTPError as e:
            headers = {"Retry-After": "1"} if e.status == 503 else {}
            return _json({"detail": e.data["message"], **e.data}, e.status, headers)
        except web.HTTPNotFound:
            names = ", ".join(f"/{name}" for name in self._pool.envs)
            nothing = f"there is nothing at {request.path[:200]!r}"
            return _json({"detail": f"{nothing}; this server has {names}, each with /ws, /reset, /step"}, 404)
        except ConnectionError:
            return web.Response(status=400)  # the client is gone: nobody reads this
        except web.HTTPException as e:
            return _json({"detail": e.reason}, e.status, {k: v for k, v in e.headers.items() if k == "Allow"})
        except Exception as e:  # noqa: BLE001  an environment may raise anything
            data = error_data(e)
            if isinstance(e, AgentEnvsError):
                return _json({"detail": str(e), **data}, _STATUS.get(data["code"], 500))
            _log.error(traceback_text("a request"))
            return _json({"detail": data["message"], **data}, 500)

    # -- about ---------------------------------------------------------------------------------------------------

    async def overview(self, request: web.Request) -> web.Response:
        """The environments on offer, and how busy the server is."""
        pool = self._pool
        return _json(
            {
                "version": __version__,
                "protocol": PROTOCOL,
                "envs": list(pool.envs),
                "clients": len(pool.open),
                "episodes": pool.episodes,
                "max_episodes": pool.limits.max_episodes,
                "waiting": pool.waiting,
                "workers": sum(worker.ready for worker in pool.workers),
            }
        )

    async def health(self, request: web.Request) -> web.Response:
        """Whether episodes are played."""
        pool = self._pool
        healthy = "draining" if pool.draining else "healthy"
        status = "stopping" if pool.stopping else healthy if pool.healthy else "starting"
        return _json({"status": status}, 200 if status == healthy else 503)

    async def ready(self, request: web.Request) -> web.Response:
        """Whether a load balancer may send further clients."""
        pool = self._pool
        ready = pool.healthy and not pool.draining
        return _json({"ready": ready}, 200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        """What the server counts, as Prometheus reads it."""
        return web.Response(text=metrics_text(self._pool), headers={"Content-Type": METRICS_TYPE})

    async def metadata(self, request: web.Request, name: str) -> web.Response:
        """OpenEnv's description of an environment."""
        return _json(environment_metadata(self._described(name)))

    async def schema(self, request: web.Request, name: str) -> web.Response:
        """JSON schemas of actions, observations and states."""
        return _json(schemas(self._described(name)))

    def _described(self, name: str) -> dict[str, Any]:
        return self._pool.descriptions[name or next(iter(self._pool.envs))]

    # -- an episode over a WebSocket -----------------------------------------------------------------------------

    async def socket(self, request: web.Request, name: str) -> web.StreamResponse:
        """Serve one client: messages in, answers out, until it leaves."""
        self._check_room()
        client_kwargs = decode(request.query.get("kwargs", "{}"))
        if not isinstance(client_kwargs, dict):
            raise ConfigError(f"kwargs must be a JSON object, got {type(client_kwargs).__name__}")
        ws = web.WebSocketResponse(
            heartbeat=self._ping, max_msg_size=self._pool.limits.max_message, compress=False, timeout=1.0
        )
        await ws.prepare(request)
        client = _WebSocketClient(self._pool, self._listener, ws, request)
        client.session = self._pool.enter(name, client_kwargs, client.end)
        try:
            await client.listen()
        finally:
            self._pool.leave(client.session)
        return ws

    # -- an episode over plain requests --------------------------------------------------------------------------

    async def reset(self, request: web.Request, name: str) -> web.Response:
        """Begin an episode. Further requests name it by the answer's `session_id`."""
        body = await _body(request)
        session_id, client_kwargs = body.pop("session_id", None), body.pop("env_kwargs", {})
        body.pop("request_id", None)
        if session_id is None:
            self._check_room()
            if not isinstance(client_kwargs, dict):
                raise ConfigError(f"env_kwargs must be a JSON object, got {type(client_kwargs).__name__}")
            session_id = secrets.token_urlsafe(16)
            self._by_id[session_id] = _HTTPClient(self._pool, name, client_kwargs, lambda: self._drop(session_id))
            try:
                data = await self._by_id[session_id].ask("reset", body)
            except BaseException:
                self._drop(session_id)
                raise
        else:
            data = await self._client(session_id).ask("reset", body)
        data["observation"]["session_id"] = session_id
        return _json(data)

    async def step(self, request: web.Request, name: str) -> web.Response:
        """Carry out an action. A session whose episode is over is closed."""
        body = await _body(request)
        timeout = body.get("timeout_s")
        if timeout is not None:
            number("timeout_s", timeout, above=0)
        action = body.get("action")
        if not isinstance(action, dict):
            raise ConfigError('expected {"action": {"text": "..."}, "session_id": "..."}')
        session_id = body.get("session_id")
        data = await self._client(session_id).ask("step", action, timeout)
        if data["done"]:
            self._drop(str(session_id))
        return _json(data)

    async def state(self, request: web.Request, name: str) -> web.Response:
        """Report how far an episode is; without a session, what a new one would report."""
        session_id = request.query.get("session_id")
        if session_id is None:
            return _json({"episode_id": None, "step_count": 0})
        return _json(await self._client(session_id).ask("state", {}))

    async def close(self, request: web.Request, name: str) -> web.Response:
        """Close a session."""
        session_id = (await _body(request)).get("session_id")
        self._client(session_id)
        self._drop(str(session_id))
        return _json({"closed": True})

    def _check_room(self) -> None:
        if code := self._pool.refusal:
            self._pool.counts.refused[code] += 1
            raise _refusal(code)

    def _client(self, session_id: object) -> _HTTPClient:
        if not isinstance(session_id, str):
            raise ConfigError("expected the session_id from the observation that /reset returned; or use /ws")
        if session_id not in self._by_id:
            why = "its episode is over, it was idle for too long, or its process is gone"
            raise _HTTPError(404, error_data(ConfigError(f"no such session: {why}; start with /reset")))
        return self._by_id[session_id]

    def _drop(self, session_id: str) -> None:
        if session_id in self._by_id:
            self._pool.leave(self._by_id.pop(session_id).session)


class _HTTPClient:
    """A client without a WebSocket."""

    def __init__(self, pool: Pool, name: str, client_kwargs: dict[str, Any], drop: Callable[[], None]) -> None:
        self._pool, self._drop = pool, drop
        self._reply: asyncio.Future[tuple[str, int]] | None = None
        self.session: ClientSession = pool.enter(name, client_kwargs, self._end, _HTTP_IDLE)

    async def ask(self, kind: str, data: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
        """Return the data of the answer to a message."""
        if self._reply is not None or self.session.running:
            raise _HTTPError(
                409, error_data(BackendBusyError("this session is still answering another request"), "BUSY")
            )
        if self._pool.waiting >= self._pool.limits.max_waiting:
            self._pool.counts.refused["BUSY"] += 1
            raise _refusal("BUSY")
        self._reply = asyncio.get_running_loop().create_future()
        try:
            self._pool.ask(self.session, encode({"type": kind, "data": data}), self._answered, limit)
            text, flags = await self._reply
        finally:
            self._reply = None
        if flags & CLOSE:
            raise _refusal("STOPPING")
        content: dict[str, Any] = decode(text)["data"]
        if flags & FAILED:
            raise _HTTPError(_STATUS.get(content["code"], 500), content)
        return content

    def _answered(self, text: str, flags: int) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result((text, flags))

    def _end(self, error: AgentEnvsError, code: str) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(_HTTPError(_STATUS[code], error_data(error, code)))
        self._drop()


class _WebSocketClient:
    """A client's WebSocket. It is read all the time, so that pings are answered and a client that leaves is noticed."""

    session: ClientSession

    def __init__(self, pool: Pool, listener: Listener, ws: web.WebSocketResponse, request: web.Request) -> None:
        self._pool, self._listener, self._ws, self._request = pool, listener, ws, request
        self._inbox: deque[str | bytes] = deque()
        self._busy = False
        self._sending: asyncio.Task[None]

    async def listen(self) -> None:
        """Receive messages until the connection ends."""
        async for message in self._ws:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            if not self._busy:
                self._begin(message.data)
            elif len(self._inbox) < _MAX_UNANSWERED:
                self._inbox.append(message.data)
            else:
                await self._close(WSCloseCode.POLICY_VIOLATION, "too many unanswered messages")
                break
        self._inbox.clear()

    def _begin(self, raw: str | bytes) -> None:
        """Begin to answer a message."""
        pool = self._pool
        if self.session not in pool.open:  # it has ended, and the client is being told so
            return
        self._busy = True
        if pool.stopping:
            self.end(_REFUSALS["STOPPING"], "STOPPING")
        elif pool.waiting >= pool.limits.max_waiting:
            pool.counts.refused["BUSY"] += 1
            self._answered(encode({"type": "error", "data": error_data(_REFUSALS["BUSY"], "BUSY")}), FAILED)
        else:
            pool.ask(self.session, raw, self._answered)

    def _answered(self, text: str, flags: int) -> None:
        self._sending = asyncio.create_task(self._send(text, flags))

    async def _send(self, text: str, flags: int) -> None:
        """Send an answer, and begin the next."""
        try:
            if flags & CLOSE:
                await self._ws.close()
                return
            await self._ws.send_str(text)
        except ConnectionError:
            return  # the client is gone, as `listen` notices too
        self._busy = False
        if self._inbox:
            self._begin(self._inbox.popleft())
        else:
            self._listener.answered(self._request)

    def end(self, error: AgentEnvsError, code: str) -> None:
        """Tell the client why, and close."""
        last = encode({"type": "error", "data": error_data(error, code)})
        self._pool.keep(asyncio.create_task(self._close(WSCloseCode.GOING_AWAY, str(error), last)))

    async def _close(self, code: int, why: str, last: str | None = None) -> None:
        """Close the connection after a last message, even if the client reads nothing."""
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                if last is not None:
                    await self._ws.send_str(last)
                await self._ws.close(code=code, message=why.encode()[:120])
        except (ConnectionError, RuntimeError):
            pass
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()


def refusal(status: int, message: str) -> web.Response:
    """Return the answer to a request that is not allowed."""
    return _json({"detail": message}, status)


def _refusal(code: str) -> _HTTPError:
    return _HTTPError(_STATUS[code], error_data(_REFUSALS[code], code))


async def _body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in a request's body, an empty one if there is no body."""
    raw = await read_body(request)
    body = decode(raw) if raw.strip() else {}
    if not isinstance(body, dict):
        raise ConfigError(f"expected a JSON object, got {type(body).__name__}")
    return body


def _json(content: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(text=encode(content), status=status, headers=headers, content_type="application/json")
