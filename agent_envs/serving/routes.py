"""The server's endpoints: episodes over OpenEnv's WebSockets, and what there is to know of the server over HTTP."""

from __future__ import annotations

import asyncio
import functools
import math

from agent_envs._version import __version__
from agent_envs.errors import AgentEnvsError, needs_extra
from agent_envs.serving.listener import answered
from agent_envs.serving.metrics import METRICS_TYPE
from agent_envs.serving.pool import ClientSession, Pool
from agent_envs.serving.protocol import PROTOCOL, SessionError, decode, encode, error_data

with needs_extra("serve"):
    from aiohttp import WSCloseCode, WSMsgType, web

_MAX_UNANSWERED = 8  # messages of one client, which should wait for each answer
_FAREWELL_SECONDS = 3.0
_json = functools.partial(web.json_response, dumps=encode)


def routes(pool: Pool) -> list[web.RouteDef]:
    """Return the routes that serve a pool's sessions."""

    async def overview(request: web.Request) -> web.Response:
        return _json({"version": __version__, "protocol": PROTOCOL, "envs": list(pool.envs), **pool.gauges()})

    async def health(request: web.Request) -> web.Response:
        healthy = "draining" if pool.draining else "healthy"
        status = "stopping" if pool.stopping else healthy if pool.healthy else "starting"
        return _json({"status": status}, status=200 if status == healthy else 503)

    async def ready(request: web.Request) -> web.Response:  # whether a load balancer may send further clients
        takes_clients = pool.healthy and not pool.draining
        return _json({"ready": takes_clients}, status=200 if takes_clients else 503)

    async def metrics(request: web.Request) -> web.Response:
        text = pool.metrics.text(pool.gauges(), [worker.memory() for worker in pool.workers])
        return web.Response(text=text, headers={"Content-Type": METRICS_TYPE})

    play = _WebSockets(pool).play
    told = {"/": overview, "/health": health, "/ready": ready, "/metrics": metrics}
    played = {"/ws": next(iter(pool.envs)), **{f"/{name}/ws": name for name in pool.envs}}
    every = [web.get(path, handler) for path, handler in told.items()]
    return every + [web.get(path, functools.partial(play, name=name)) for path, name in played.items()]


class _WebSockets:
    """Episodes over WebSockets. One is read all the time, so that pings are answered and a client's end is noticed."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def play(self, request: web.Request, name: str) -> web.StreamResponse:
        """Serve one client: messages in, answers out, until it leaves."""
        limits = self._pool.limits
        ping = limits.ping if math.isfinite(limits.ping) else None
        ws = web.WebSocketResponse(heartbeat=ping, max_msg_size=limits.max_message, compress=False, timeout=1.0)
        client_kwargs = decode(request.query.get("kwargs", "{}"))

        def end() -> None:
            """Tell the client why its session has ended, and close."""
            assert session.failure is not None
            last = encode({"type": "error", "data": session.failure.data})
            farewell = _close(request, ws, WSCloseCode.GOING_AWAY, str(session.failure), last)
            self._pool.keep(asyncio.create_task(farewell))

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
                text = (await self._pool.ask(session, inbox[0])).decode(errors="replace")
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


def refusal(status: int, message: str, error: Exception) -> web.Response:
    """Return the answer to a request that failed."""
    data = error_data(error) if isinstance(error, AgentEnvsError) else {}
    return _json({"detail": message, **(error.data if isinstance(error, SessionError) else data)}, status=status)
