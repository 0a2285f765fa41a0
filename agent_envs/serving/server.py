"""The server: OpenEnv's WebSocket protocol in front of worker processes that play the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_envs.errors import AgentEnvsError, ConfigError, TaskIndexError, check_release
from agent_envs.serving.limits import Limits
from agent_envs.serving.listener import BackgroundServer, Listener
from agent_envs.serving.pool import Pool
from agent_envs.serving.routes import refusal, routes
from agent_envs.serving.served_env import ServedEnv

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
        check_release("aiohttp", "serve")
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
