"""The server: OpenEnv's WebSockets in front of worker processes that play the episodes, and its state over HTTP."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Sequence
from typing import Any

from agent_envs._version import __version__
from agent_envs.errors import AgentEnvsError, ConfigError, TaskIndexError, needs_extra
from agent_envs.serving.limits import Limits
from agent_envs.serving.listener import BackgroundServer, Listener, answered
from agent_envs.serving.metrics import METRICS_TYPE
from agent_envs.serving.pool import ClientSession, Pool
from agent_envs.serving.protocol import PROTOCOL, SessionError, decode, encode, error_data
from agent_envs.serving.served_env import ServedEnv

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

    told = {"/": overview, "/health": health, "/ready": ready, "/metrics": metrics}
    played = {"/ws": next(iter(pool.envs)), **{f"/{name}/ws": name for name in pool.envs}}
    every = [web.get(path, handler) for path, handler in told.items()]
    return every + [web.get(path, functools.partial(_play, pool, name=name)) for path, name in played.items()]


async def _play(pool: Pool, request: web.Request, name: str) -> web.StreamResponse:
    """Serve one client: messages in, answers out, until it leaves.

    The WebSocket is read all the time, so that pings are answered and a client's end is noticed.
    """
    limits = pool.limits
    ping = limits.ping if math.isfinite(limits.ping) else None
    ws = web.WebSocketResponse(heartbeat=ping, max_msg_size=limits.max_message, compress=False, timeout=1.0)
    client_kwargs = decode(request.query.get("kwargs", "{}"))

    def end() -> None:
        """Tell the client why its session has ended, and close."""
        assert session.failure is not None
        last = encode({"type": "error", "data": session.failure.data})
        farewell = _close(request, ws, WSCloseCode.GOING_AWAY, str(session.failure), last)
        pool.keep(asyncio.create_task(farewell))

    session = pool.enter(name, client_kwargs, end)
    inbox: list[str | bytes] = []
    answering: asyncio.Task[None] | None = None
    try:
        await ws.prepare(request)
        async for message in ws:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            inbox.append(message.data)
            if len(inbox) == 1:
                answering = asyncio.create_task(_answer(pool, request, ws, session, inbox))
            elif len(inbox) > _MAX_UNANSWERED:
                await _close(request, ws, WSCloseCode.POLICY_VIOLATION, "too many unanswered messages")
                break
    finally:
        pool.leave(session)
        if answering is not None:
            answering.cancel()
    return ws


async def _answer(
    pool: Pool, request: web.Request, ws: web.WebSocketResponse, session: ClientSession, inbox: list[str | bytes]
) -> None:
    """Answer the messages that have come, one after the other."""
    while inbox:
        try:
            text = (await pool.ask(session, inbox[0])).decode(errors="replace")
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


_CONNECTIONS = 2048  # that are possible at once, however few episodes are


class EnvServer(BackgroundServer):
    """Serves environments to many clients at once, each with an episode of its own.

    Args:
        envs: The environments to serve; the first one at the root, each at /NAME too.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which `url` then shows.
        token: What clients have to send. Required if other machines can reach `host`.
        limits: What it allows: the fields of `agent_envs.serving.limits.Limits`, such as `workers` and `max_episodes`.

    Raises:
        ConfigError: The arguments do not fit, an environment cannot be made, or the address cannot be used.
        MissingExtraError: aiohttp is not installed.

    A message over the WebSocket at /ws or /NAME/ws is ``{"type": ..., "data": {...}}``, and gets one answer:

    - ``reset`` {seed, index or options, episode_id}: an observation, with instructions, tools, tool_instructions.
    - ``step`` {text}: ``{"observation": {"text", "terminated", "truncated", "info"}, "reward", "done"}``.
    - ``step`` {type: call_tool, tool_name, arguments}: the same, with tool_name and result; the call is converted to
      the environment's format. ``step`` {type: list_tools}: the tools, which is no step.
    - ``state``: episode_id, step_count, env, done. ``close``: closes the connection.
    - ``hello`` {protocol: 1}: what `RemoteEnv` needs. ``expert_action``, ``demo_action``, ``format_call``, ``snapshot``
      and ``restore`` with the methods' arguments: a value, or an observation.

    Over HTTP: GET /health ("healthy" or "draining"; 503 without a worker), /ready (503 while no client is taken),
    /metrics, / (version, environments, clients, episodes and their limits).

    An error is ``{"type": "error", "data": {"message", "code", "error"}}`` with the exception's name; a connection that
    is turned away gets JSON with ``detail``. Nothing was done: INVALID_JSON, UNKNOWN_TYPE, VALIDATION_ERROR,
    RESET_NEEDED (no episode), CAPACITY_REACHED (no place for a client), BUSY (for a message). The environment failed:
    EXECUTION_ERROR. The episode is lost and the connection closes: STEP_TIMEOUT, WORKER_LOST, OVER_BUDGET. It closes:
    IDLE_TIMEOUT, STOPPING.

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
        **limits: Any,
    ) -> None:
        if not envs:
            raise ConfigError("there is nothing to serve: name at least one environment")
        if len({served_env.name for served_env in envs}) < len(envs):
            raise ConfigError("each environment can be served once; start another server for other arguments")
        allowed = Limits(**limits)
        self.listener = Listener(
            host,
            port,
            token,
            refusal,
            max_body=allowed.max_message,
            max_connections=max(_CONNECTIONS, 2 * allowed.max_episodes),
            statuses={ConfigError: 422, TaskIndexError: 422, AgentEnvsError: 500},
            paths=", ".join(f"/{served_env.name}" for served_env in envs) + ", each with /ws",
        )
        self.pool = Pool({served_env.name: served_env for served_env in envs}, allowed)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self.listener.port

    async def open(self) -> None:
        """Start listening, on the running loop; a ConfigError if an environment or the address does not work."""
        await self.pool.start()
        try:
            await self.listener.open(routes(self.pool))
        except BaseException:
            await self.pool.close()
            raise

    async def shut_down(self, grace: float = 30.0, drain: float = 0.0) -> None:
        """Stop: refuse connections and messages, give running steps `grace` seconds, close the episodes.

        Before that, the episodes that are being played get `drain` seconds to end, in which none begins.
        """
        if drain:
            await self.pool.drain(drain)
        self.pool.stopping = True
        self.listener.refuse()
        await self.pool.finish(grace)
        await self.listener.close()
        await self.pool.close()
