"""The server's endpoints: OpenEnv's WebSocket and HTTP API as aiohttp's routes."""

from __future__ import annotations

import asyncio
import functools
import secrets
from typing import Any

from agent_envs._version import __version__
from agent_envs.checks import number
from agent_envs.errors import AgentEnvsError, BackendBusyError, ConfigError, needs_extra
from agent_envs.serving.access import StatusError
from agent_envs.serving.frames import FAILED
from agent_envs.serving.listener import answered, read_object
from agent_envs.serving.metrics import METRICS_TYPE
from agent_envs.serving.pool import ClientSession, Pool
from agent_envs.serving.protocol import PROTOCOL, SessionError, decode, encode, error_data
from agent_envs.serving.served_env import environment_metadata, schemas

with needs_extra("serve"):
    from aiohttp import WSCloseCode, WSMsgType, web

__all__ = ["refusal", "routes"]

_MAX_UNANSWERED = 8  # messages of one client, which should wait for each answer
_FAREWELL_SECONDS = 3.0
_HTTP_IDLE = 300.0  # seconds; nothing else shows that a client without a connection is gone


def routes(pool: Pool, ping: float | None) -> list[web.RouteDef]:
    """Return the routes that serve sessions, with `ping` seconds between pings."""
    about, sockets, requests = _About(pool), _WebSockets(pool, ping), _Requests(pool)
    every = [web.get("/", about.overview), web.get("/health", about.health)]
    every += [web.get("/ready", about.ready), web.get("/metrics", about.metrics)]
    for name in ("", *pool.envs):
        for method, end, handler in (
            ("GET", "ws", sockets.play),
            ("GET", "metadata", about.metadata),
            ("GET", "schema", about.schema),
            ("GET", "state", requests.state),
            ("POST", "reset", requests.reset),
            ("POST", "step", requests.step),
            ("POST", "close", requests.close),
        ):
            path = f"/{name}/{end}" if name else f"/{end}"
            every.append(web.route(method, path, functools.partial(handler, name=name)))
    return every


class _About:
    """What the server is and does."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def overview(self, request: web.Request) -> web.Response:
        """The environments on offer, and how busy the server is."""
        pool = self._pool
        return _json({"version": __version__, "protocol": PROTOCOL, "envs": list(pool.envs), **pool.gauges()})

    async def health(self, request: web.Request) -> web.Response:
        """Whether episodes are played."""
        pool = self._pool
        healthy = "draining" if pool.draining else "healthy"
        status = "stopping" if pool.stopping else healthy if pool.healthy else "starting"
        return _json({"status": status}, 200 if status == healthy else 503)

    async def ready(self, request: web.Request) -> web.Response:
        """Whether a load balancer may send further clients."""
        ready = self._pool.healthy and not self._pool.draining
        return _json({"ready": ready}, 200 if ready else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        """What the server counts, as Prometheus reads it."""
        pool = self._pool
        text = pool.metrics.text(pool.gauges(), [worker.memory() for worker in pool.workers])
        return web.Response(text=text, headers={"Content-Type": METRICS_TYPE})

    async def metadata(self, request: web.Request, name: str) -> web.Response:
        """OpenEnv's description of an environment."""
        return _json(environment_metadata(self._described(name)))

    async def schema(self, request: web.Request, name: str) -> web.Response:
        """JSON schemas of actions, observations and states."""
        return _json(schemas(self._described(name)))

    def _described(self, name: str) -> dict[str, Any]:
        return self._pool.descriptions[name or next(iter(self._pool.envs))]


class _WebSockets:
    """Episodes over WebSockets. One is read all the time, so that pings are answered and a client's end is noticed."""

    def __init__(self, pool: Pool, ping: float | None) -> None:
        self._pool, self._ping = pool, ping

    async def play(self, request: web.Request, name: str) -> web.StreamResponse:
        """Serve one client: messages in, answers out, until it leaves."""
        ws = web.WebSocketResponse(
            heartbeat=self._ping, max_msg_size=self._pool.limits.max_message, compress=False, timeout=1.0
        )
        client_kwargs = decode(request.query.get("kwargs", "{}"))

        def end() -> None:
            self._pool.keep(asyncio.create_task(self._end(request, ws, session)))

        session = self._pool.enter(name, client_kwargs, end)
        inbox: list[str | bytes] = []
        answering: asyncio.Task[None] | None = None
        try:
            await ws.prepare(request)
            async for message in ws:
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break
                inbox.append(message.data)
                if len(inbox) == 1:
                    answering = asyncio.create_task(self._answer(request, ws, session, inbox))
                elif len(inbox) > _MAX_UNANSWERED:
                    await _close(request, ws, WSCloseCode.POLICY_VIOLATION, "too many unanswered messages")
                    break
        finally:
            self._pool.leave(session)
            if answering is not None:
                answering.cancel()
        return ws

    async def _answer(
        self, request: web.Request, ws: web.WebSocketResponse, session: ClientSession, inbox: list[str | bytes]
    ) -> None:
        """Answer the messages that have come, one after the other."""
        while inbox:
            try:
                text = (await self._pool.ask(session, inbox[0])).text.decode(errors="replace")
            except SessionError as e:
                if session.failure is not None:  # the client is being told
                    return
                text = encode({"type": "error", "data": e.data})
            try:
                if not text:
                    await ws.close()
                    return
                await ws.send_str(text)
            except ConnectionError:
                return  # the client is gone, as reading will show
            del inbox[0]
        answered(request)

    async def _end(self, request: web.Request, ws: web.WebSocketResponse, session: ClientSession) -> None:
        """Tell the client why its session has ended, and close."""
        assert session.failure is not None
        last = encode({"type": "error", "data": session.failure.data})
        await _close(request, ws, WSCloseCode.GOING_AWAY, str(session.failure), last)


async def _close(request: web.Request, ws: web.WebSocketResponse, code: int, why: str, last: str = "") -> None:
    """Close a connection after a last message, even if the client reads nothing."""
    try:
        async with asyncio.timeout(_FAREWELL_SECONDS):
            if last:
                await ws.send_str(last)
            await ws.close(code=code, message=why.encode()[:120])
    except (ConnectionError, RuntimeError):
        pass
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


class _Requests:
    """Episodes over plain requests, each of which names its session."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._sessions: dict[str, ClientSession] = {}

    async def reset(self, request: web.Request, name: str) -> web.Response:
        """Begin an episode. Further requests name it by the answer's `session_id`."""
        body = await _body(request)
        session_id, client_kwargs = body.pop("session_id", None), body.pop("env_kwargs", {})
        body.pop("request_id", None)
        begins = session_id is None
        if begins:
            session_id = secrets.token_urlsafe(16)
            self._sessions[session_id] = self._pool.enter(
                name, client_kwargs, lambda: self._drop(session_id), _HTTP_IDLE
            )
        try:
            data = await self._ask(session_id, "reset", body)
        except BaseException:
            if begins:
                self._drop(session_id)
            raise
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
        data = await self._ask(body.get("session_id"), "step", action, timeout)
        if data["done"]:
            self._drop(str(body["session_id"]))
        return _json(data)

    async def state(self, request: web.Request, name: str) -> web.Response:
        """Report how far an episode is; without a session, what a new one would report."""
        session_id = request.query.get("session_id")
        if session_id is None:
            return _json({"episode_id": None, "step_count": 0})
        return _json(await self._ask(session_id, "state", {}))

    async def close(self, request: web.Request, name: str) -> web.Response:
        """Close a session."""
        session_id = (await _body(request)).get("session_id")
        self._session(session_id)
        self._drop(str(session_id))
        return _json({"closed": True})

    async def _ask(
        self, session_id: Any, kind: str, data: dict[str, Any], limit: float | None = None
    ) -> dict[str, Any]:
        """Return the data of the answer to a message."""
        session = self._session(session_id)
        if session.running:
            busy = BackendBusyError("this session is still answering another request")
            raise SessionError(error_data(busy, "BUSY"))
        frame = await self._pool.ask(session, encode({"type": kind, "data": data}), limit)
        content: dict[str, Any] = decode(frame.text)["data"]
        if frame.flags & FAILED:
            raise SessionError(content)
        return content

    def _session(self, session_id: object) -> ClientSession:
        if not isinstance(session_id, str):
            raise ConfigError("expected the session_id from the observation that /reset returned; or use /ws")
        if session_id not in self._sessions:
            why = "its episode is over, it was idle for too long, or its process is gone"
            raise StatusError(404, f"no such session: {why}; start with /reset")
        return self._sessions[session_id]

    def _drop(self, session_id: str) -> None:
        if session_id in self._sessions:
            self._pool.leave(self._sessions.pop(session_id))


def refusal(status: int, message: str, error: Exception) -> web.Response:
    """Return the answer to a request that failed."""
    data = (
        error.data
        if isinstance(error, SessionError)
        else error_data(error)
        if isinstance(error, AgentEnvsError)
        else {}
    )
    return _json({"detail": message, **data}, status)


async def _body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in a request's body, an empty one if there is no body."""
    return await read_object(request) if request.body_exists else {}


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(text=encode(content), status=status, content_type="application/json")
