"""The server's paths: OpenEnv's WebSocket and HTTP endpoints, as an aiohttp application."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, WSMsgType, web

from agent_envs._version import __version__
from agent_envs.errors import AgentEnvsError, BackendBusyError, BackendDownError, ConfigError
from agent_envs.serving.access import AccessError, check_access
from agent_envs.serving.protocol import PROTOCOL, decode, encode, error_data, logged
from agent_envs.serving.schemas import environment_metadata, schemas

if TYPE_CHECKING:
    from agent_envs.serving.server import EnvServer, Seat

__all__ = ["application"]

_log = logging.getLogger(__name__)
_MAX_UNANSWERED = 8  # messages of one client; the protocol is question and answer
_BODY_SECONDS = 30.0
_GOODBYE_SECONDS = 3.0
_PLAIN_IDLE = 300.0  # seconds; nothing else tells that a client without a connection is gone
_STATUS = {
    "VALIDATION_ERROR": 422, "INVALID_JSON": 422, "UNKNOWN_TYPE": 422, "RESET_NEEDED": 409, "CAPACITY_REACHED": 503,
    "BUSY": 503, "STOPPING": 503,
}  # fmt: skip
_REFUSALS = {
    "BUSY": BackendBusyError("too many steps wait; come again later"),
    "CAPACITY_REACHED": BackendBusyError("too many clients; come again later"),
    "STOPPING": BackendDownError("the server stops"),
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(server: EnvServer) -> web.Application:
    """The application that answers for a server."""
    routes = _Routes(server)
    app = web.Application(middlewares=[routes.guard], client_max_size=server.max_message)
    app.router.add_get("/", routes.overview)
    app.router.add_get("/health", routes.health)
    for name in ("", *server.envs):
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
            app.router.add_route(method, prefix + path, _named(handler, name))
    return app


def _named(handler: Callable[[web.Request, str], Awaitable[web.StreamResponse]], name: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request, name)

    return handle


class _HTTPError(Exception):
    def __init__(self, status: int, data: dict[str, Any]) -> None:
        super().__init__(data["message"])
        self.status, self.data = status, data


class _Routes:
    """The handlers."""

    def __init__(self, server: EnvServer) -> None:
        self._server = server
        self._sessions: dict[str, Seat] = {}  # those of clients without a WebSocket

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuses who may not ask, and makes every error a JSON object."""
        try:
            if request.path != "/health":
                check_access(request.headers, self._server.token)
            return await handler(request)
        except AccessError as e:
            headers = {"WWW-Authenticate": 'Bearer, Basic realm="agentr1"'} if e.status == 401 else {}
            return _json({"detail": str(e)}, e.status, headers)
        except _HTTPError as e:
            headers = {"Retry-After": "1"} if e.status == 503 else {}
            return _json({"detail": e.data["message"], **e.data}, e.status, headers)
        except web.HTTPNotFound:
            known = ", ".join(f"/{name}" for name in self._server.envs)
            detail = f"there is nothing at {request.path[:200]!r}; served are {known}, each with /ws, /reset, /step"
            return _json({"detail": detail}, 404)
        except ConnectionError:
            return web.Response(status=400)  # the client has gone: nobody reads it
        except web.HTTPException as e:
            return _json({"detail": e.reason}, e.status, {k: v for k, v in e.headers.items() if k == "Allow"})
        except AgentEnvsError as e:
            data = error_data(e)
            return _json({"detail": str(e), **data}, _STATUS.get(data["code"], 500))
        except Exception as e:  # noqa: BLE001  an environment is somebody's code
            _log.error(logged("a request"))
            data = error_data(e)
            return _json({"detail": data["message"], **data}, 500)

    # -- about ---------------------------------------------------------------------------------------------------

    async def overview(self, request: web.Request) -> web.Response:
        """What is served, and how busy it is."""
        server = self._server
        return _json(
            {
                "version": __version__,
                "protocol": PROTOCOL,
                "envs": list(server.envs),
                "clients": len(server.seats),
                "episodes": server.house.taken,
                "max_episodes": server.house.limit,
                "waiting": len(server.work),
            }
        )

    async def health(self, request: web.Request) -> web.Response:
        """Whether new episodes can begin."""
        stopping = self._server.stopping
        return _json({"status": "stopping" if stopping else "healthy"}, 503 if stopping else 200)

    async def metadata(self, request: web.Request, name: str) -> web.Response:
        """OpenEnv's description of an environment."""
        return _json(environment_metadata(await self._described(name)))

    async def schema(self, request: web.Request, name: str) -> web.Response:
        """JSON schemas of actions, observations and states."""
        return _json(schemas(await self._described(name)))

    async def _described(self, name: str) -> dict[str, Any]:
        served = self._server.served(name)
        about: dict[str, Any] = await self._server.work.submit(self._server.house.describe, served, {}).done
        return about

    # -- an episode over a WebSocket -----------------------------------------------------------------------------

    async def socket(self, request: web.Request, name: str) -> web.StreamResponse:
        """One client: messages in, answers out, until it goes."""
        server = self._server
        if server.full:
            raise _refusal("STOPPING" if server.stopping else "CAPACITY_REACHED")
        chosen = decode(request.query.get("kwargs", "{}"))
        if not isinstance(chosen, dict):
            raise ConfigError(f"kwargs is a JSON object, got {type(chosen).__name__}")
        ping = server.ping if math.isfinite(server.ping) else None
        ws = web.WebSocketResponse(heartbeat=ping, max_msg_size=server.max_message, compress=False, timeout=1.0)
        await ws.prepare(request)
        talk = _Talk(server, ws, request.transport)
        talk.seat = server.seat(name, chosen, talk.end)
        try:
            await talk.listen()
        finally:
            server.leave(talk.seat)
        return ws

    # -- an episode over plain requests --------------------------------------------------------------------------

    async def reset(self, request: web.Request, name: str) -> web.Response:
        """Begin an episode. The answer's `session_id` is how further requests name it."""
        body = await _body(request)
        session_id, chosen = body.pop("session_id", None), body.pop("env_kwargs", {})
        body.pop("request_id", None)
        if session_id is None:
            if self._server.full:
                raise _refusal("STOPPING" if self._server.stopping else "CAPACITY_REACHED")
            if not isinstance(chosen, dict):
                raise ConfigError(f"env_kwargs is a JSON object, got {type(chosen).__name__}")
            session_id = secrets.token_urlsafe(16)
            seat = self._server.seat(name, chosen, lambda error, code: self._drop(session_id), _PLAIN_IDLE)
            self._sessions[session_id] = seat
            try:
                data = await self._ask(seat, "reset", body)
            except BaseException:
                self._drop(session_id)
                raise
        else:
            data = await self._ask(self._session(session_id), "reset", body)
        data["observation"]["session_id"] = session_id
        return _json(data)

    async def step(self, request: web.Request, name: str) -> web.Response:
        """Act. A session whose episode is over is closed."""
        body = await _body(request)
        timeout = body.get("timeout_s")
        if timeout is not None and (
            isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0
        ):
            raise ConfigError(f"timeout_s must be a number of seconds above 0, got {timeout!r:.100}")
        action = body.get("action")
        if not isinstance(action, dict):
            raise ConfigError('expected {"action": {"text": "..."}, "session_id": "..."}')
        session_id = body.get("session_id")
        data = await self._ask(self._session(session_id), "step", action, timeout)
        if data["done"]:
            self._drop(str(session_id))
        return _json(data)

    async def state(self, request: web.Request, name: str) -> web.Response:
        """How far an episode is; without a session, what a new one would say."""
        session_id = request.query.get("session_id")
        if session_id is None:
            return _json({"episode_id": None, "step_count": 0})
        return _json(await self._ask(self._session(session_id), "state", {}))

    async def close(self, request: web.Request, name: str) -> web.Response:
        """End a session."""
        session_id = (await _body(request)).get("session_id")
        self._session(session_id)
        self._drop(str(session_id))
        return _json({"closed": True})

    def _session(self, session_id: object) -> Seat:
        if not isinstance(session_id, str):
            raise ConfigError("expected the session_id that the answer to /reset has in its observation; or use /ws")
        seat = self._sessions.get(session_id)
        if seat is None:
            message = "there is no such session: its episode is over, or it was silent for too long; begin with /reset"
            raise _HTTPError(404, error_data(ConfigError(message)))
        return seat

    def _drop(self, session_id: str) -> None:
        seat = self._sessions.pop(session_id, None)
        if seat is not None:
            self._server.leave(seat)

    async def _ask(self, seat: Seat, kind: str, data: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
        if seat.running is not None:
            raise _HTTPError(409, error_data(BackendBusyError("this session answers another request"), "BUSY"))
        if len(self._server.work) >= self._server.max_waiting:
            raise _refusal("BUSY")
        try:
            answer = await asyncio.shield(self._server.begin(seat, encode({"type": kind, "data": data}), limit))
        except AgentEnvsError as e:
            for session_id in [key for key, value in self._sessions.items() if value is seat]:
                self._drop(session_id)
            raise _HTTPError(504, error_data(e, "STEP_TIMEOUT")) from e
        if answer.close:
            raise _refusal("STOPPING")
        content: dict[str, Any] = decode(answer.text)["data"]
        if answer.failed:
            raise _HTTPError(_STATUS.get(content["code"], 500), content)
        return content


class _Talk:
    """One WebSocket: it is read all the time, so that pings are answered and a client that goes is noticed."""

    seat: Seat

    def __init__(self, server: EnvServer, ws: web.WebSocketResponse, transport: asyncio.Transport | None) -> None:
        self._server = server
        self._ws = ws
        self._transport = transport
        self._inbox: deque[str | bytes] = deque()
        self._answering: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Take messages until the connection ends."""
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
        server, ws = self._server, self._ws
        try:
            while self._inbox:
                raw = self._inbox.popleft()
                if server.stopping:
                    self.end(_REFUSALS["STOPPING"], "STOPPING")
                    return
                if len(server.work) >= server.max_waiting:
                    refusal = error_data(_REFUSALS["BUSY"], "BUSY")
                    await ws.send_str(encode({"type": "error", "data": refusal}))
                    continue
                try:
                    answer = await server.begin(self.seat, raw)
                except AgentEnvsError as e:  # it took too long
                    self.end(e, "STEP_TIMEOUT")
                    return
                if answer.close:
                    await ws.close()
                    return
                await ws.send_str(answer.text)
        except ConnectionError:
            pass  # the client is gone, which `listen` notices too
        finally:
            self._answering = None

    def end(self, error: BaseException, code: str) -> None:
        """Say why, and close."""
        self._server.ending(asyncio.create_task(self._say_goodbye(error, code)))

    async def _say_goodbye(self, error: BaseException, code: str) -> None:
        await self._close(
            WSCloseCode.GOING_AWAY, str(error), encode({"type": "error", "data": error_data(error, code)})
        )

    async def _close(self, code: int, why: str, last: str | None = None) -> None:
        """End the connection, after a last message; also where the client reads nothing of it."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                if last is not None:
                    await self._ws.send_str(last)
                await self._ws.close(code=code, message=why.encode()[:120])
        except (ConnectionError, RuntimeError):
            pass
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()


def _refusal(code: str) -> _HTTPError:
    return _HTTPError(_STATUS[code], error_data(_REFUSALS[code], code))


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object that a request brings; without a body an empty one."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            raw = await request.read()
    except TimeoutError as e:
        raise web.HTTPRequestTimeout from e
    body = decode(raw) if raw.strip() else {}
    if not isinstance(body, dict):
        raise ConfigError(f"expected a JSON object, got {type(body).__name__}")
    return body


def _json(content: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(text=encode(content), status=status, headers=headers, content_type="application/json")
