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
from agent_envs.errors import AgentEnvsError, BackendBusyError, BackendDownError, ConfigError, MissingExtraError
from agent_envs.serving.listener import Listener, read_body
from agent_envs.serving.protocol import PROTOCOL, decode, encode, error_data, traceback_text
from agent_envs.serving.served_env import environment_metadata, schemas
from agent_envs.serving.session import Session
from agent_envs.serving.workers import Sessions

try:
    from aiohttp import WSCloseCode, WSMsgType, web
except ImportError as e:
    raise MissingExtraError("aiohttp", extra="serve") from e

__all__ = ["application", "refusal"]

_log = logging.getLogger(__name__)
_MAX_UNANSWERED = 8  # messages of one client, which should wait for each answer
_FAREWELL_SECONDS = 3.0
_HTTP_IDLE = 300.0  # seconds; nothing else shows that a client without a connection is gone
_STATUS = {
    "VALIDATION_ERROR": 422, "INVALID_JSON": 422, "UNKNOWN_TYPE": 422, "RESET_NEEDED": 409, "CAPACITY_REACHED": 503,
    "BUSY": 503, "STOPPING": 503,
}  # fmt: skip
_REFUSALS = {
    "BUSY": BackendBusyError("too many messages are waiting; try again later"),
    "CAPACITY_REACHED": BackendBusyError("too many clients; try again later"),
    "STOPPING": BackendDownError("the server is shutting down"),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(sessions: Sessions, listener: Listener, ping: float | None) -> web.Application:
    """Return the application that serves sessions, with `ping` seconds between pings."""
    routes = _Routes(sessions, listener, ping)
    app = listener.application(routes.with_errors)
    app.router.add_get("/", routes.overview)
    app.router.add_get("/health", routes.health)
    for name in ("", *sessions.envs):
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

    def __init__(self, sessions: Sessions, listener: Listener, ping: float | None) -> None:
        self._sessions, self._listener, self._ping = sessions, listener, ping
        self._by_id: dict[str, Session] = {}  # sessions of clients without a WebSocket

    async def with_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every error into a JSON object."""
        try:
            return await handler(request)
        except _HTTPError as e:
            headers = {"Retry-After": "1"} if e.status == 503 else {}
            return _json({"detail": e.data["message"], **e.data}, e.status, headers)
        except web.HTTPNotFound:
            names = ", ".join(f"/{name}" for name in self._sessions.envs)
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
        sessions = self._sessions
        return _json(
            {
                "version": __version__,
                "protocol": PROTOCOL,
                "envs": list(sessions.envs),
                "clients": len(sessions.open),
                "episodes": sessions.state.episodes,
                "max_episodes": sessions.state.max_episodes,
                "waiting": len(sessions.queue),
            }
        )

    async def health(self, request: web.Request) -> web.Response:
        """Whether new episodes can begin."""
        stopping = self._sessions.stopping
        return _json({"status": "stopping" if stopping else "healthy"}, 503 if stopping else 200)

    async def metadata(self, request: web.Request, name: str) -> web.Response:
        """OpenEnv's description of an environment."""
        return _json(environment_metadata(await self._described(name)))

    async def schema(self, request: web.Request, name: str) -> web.Response:
        """JSON schemas of actions, observations and states."""
        return _json(schemas(await self._described(name)))

    async def _described(self, name: str) -> dict[str, Any]:
        sessions = self._sessions
        description: dict[str, Any] = await sessions.queue.submit(sessions.state.describe, sessions.env(name), {}).done
        return description

    # -- an episode over a WebSocket -----------------------------------------------------------------------------

    async def socket(self, request: web.Request, name: str) -> web.StreamResponse:
        """Serve one client: messages in, answers out, until it leaves."""
        sessions = self._sessions
        self._check_room()
        client_kwargs = decode(request.query.get("kwargs", "{}"))
        if not isinstance(client_kwargs, dict):
            raise ConfigError(f"kwargs must be a JSON object, got {type(client_kwargs).__name__}")
        ws = web.WebSocketResponse(
            heartbeat=self._ping, max_msg_size=sessions.state.max_message, compress=False, timeout=1.0
        )
        await ws.prepare(request)
        client = _WebSocketClient(sessions, self._listener, ws, request)
        client.session = sessions.enter(name, client_kwargs, client.end)
        try:
            await client.listen()
        finally:
            sessions.leave(client.session)
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
            session = self._sessions.enter(name, client_kwargs, lambda *_: self._drop(session_id), _HTTP_IDLE)
            self._by_id[session_id] = session
            try:
                data = await self._ask(session, "reset", body)
            except BaseException:
                self._drop(session_id)
                raise
        else:
            data = await self._ask(self._session(session_id), "reset", body)
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
        data = await self._ask(self._session(session_id), "step", action, timeout)
        if data["done"]:
            self._drop(str(session_id))
        return _json(data)

    async def state(self, request: web.Request, name: str) -> web.Response:
        """Report how far an episode is; without a session, what a new one would report."""
        session_id = request.query.get("session_id")
        if session_id is None:
            return _json({"episode_id": None, "step_count": 0})
        return _json(await self._ask(self._session(session_id), "state", {}))

    async def close(self, request: web.Request, name: str) -> web.Response:
        """Close a session."""
        session_id = (await _body(request)).get("session_id")
        self._session(session_id)
        self._drop(str(session_id))
        return _json({"closed": True})

    def _check_room(self) -> None:
        if self._sessions.full:
            raise _refusal("STOPPING" if self._sessions.stopping else "CAPACITY_REACHED")

    def _session(self, session_id: object) -> Session:
        if not isinstance(session_id, str):
            raise ConfigError("expected the session_id from the observation that /reset returned; or use /ws")
        if session_id not in self._by_id:
            message = "no such session: its episode is over, or it was idle for too long; start with /reset"
            raise _HTTPError(404, error_data(ConfigError(message)))
        return self._by_id[session_id]

    def _drop(self, session_id: str) -> None:
        if session_id in self._by_id:
            self._sessions.leave(self._by_id.pop(session_id))

    async def _ask(
        self, session: Session, kind: str, data: dict[str, Any], limit: float | None = None
    ) -> dict[str, Any]:
        if session.running is not None:
            raise _HTTPError(
                409, error_data(BackendBusyError("this session is still answering another request"), "BUSY")
            )
        if len(self._sessions.queue) >= self._sessions.max_waiting:
            raise _refusal("BUSY")
        try:
            message = encode({"type": kind, "data": data})
            answer = await asyncio.shield(self._sessions.answer(session, message, limit))
        except AgentEnvsError as e:
            for session_id in [key for key, value in self._by_id.items() if value is session]:
                self._drop(session_id)
            raise _HTTPError(504, error_data(e, "STEP_TIMEOUT")) from e
        if answer.close:
            raise _refusal("STOPPING")
        content: dict[str, Any] = decode(answer.text)["data"]
        if answer.failed:
            raise _HTTPError(_STATUS.get(content["code"], 500), content)
        return content


class _WebSocketClient:
    """A client's WebSocket. It is read all the time, so that pings are answered and a client that leaves is noticed."""

    session: Session

    def __init__(self, sessions: Sessions, listener: Listener, ws: web.WebSocketResponse, request: web.Request) -> None:
        self._sessions, self._listener, self._ws, self._request = sessions, listener, ws, request
        self._inbox: deque[str | bytes] = deque()
        self._answering: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Receive messages until the connection ends."""
        async for message in self._ws:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            if len(self._inbox) >= _MAX_UNANSWERED:
                await self._close(WSCloseCode.POLICY_VIOLATION, "too many unanswered messages")
                break
            self._inbox.append(message.data)
            if self._answering is None:
                self._answering = asyncio.create_task(self._answer())
        self._inbox.clear()

    async def _answer(self) -> None:
        """Answer what has come in, one message after the other."""
        sessions, ws = self._sessions, self._ws
        try:
            while self._inbox:
                raw = self._inbox.popleft()
                if sessions.stopping:
                    self.end(_REFUSALS["STOPPING"], "STOPPING")
                    return
                if len(sessions.queue) >= sessions.max_waiting:
                    await ws.send_str(encode({"type": "error", "data": error_data(_REFUSALS["BUSY"], "BUSY")}))
                    continue
                try:
                    answer = await sessions.answer(self.session, raw)
                except AgentEnvsError as e:  # it took too long
                    self.end(e, "STEP_TIMEOUT")
                    return
                if answer.close:
                    await ws.close()
                    return
                await ws.send_str(answer.text)
                if not self._inbox:
                    self._listener.answered(self._request)
        except ConnectionError:
            pass  # the client is gone, as `listen` notices too
        finally:
            self._answering = None

    def end(self, error: BaseException, code: str) -> None:
        """Tell the client why, and close."""
        last = encode({"type": "error", "data": error_data(error, code)})
        self._sessions.keep(asyncio.create_task(self._close(WSCloseCode.GOING_AWAY, str(error), last)))

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
