"""The server: OpenEnv's HTTP and WebSocket protocol in front of any number of episodes, in one process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_envs.checks import integer, number
from agent_envs.errors import ConfigError, check_release
from agent_envs.serving.listener import BackgroundServer, Listener
from agent_envs.serving.protocol import MAX_ADDRESS, MAX_MESSAGE
from agent_envs.serving.served_env import ServedEnv
from agent_envs.serving.state import ServerState
from agent_envs.serving.workers import Sessions

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["EnvServer"]


class EnvServer(BackgroundServer):
    """Serves environments to many clients at once, each with an episode of its own.

    Args:
        envs: The environments to serve; the first one at the root, each at /NAME too.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which `url` then shows.
        token: What clients have to send. Required if other machines can reach `host`.
        max_episodes: Most environments at once; further ones are refused.
        max_waiting: Most messages of all clients that may wait for a thread; further ones are refused.
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
        integer("max_episodes", max_episodes, minimum=1)
        integer("max_waiting", max_waiting, minimum=1)
        integer("max_message", max_message, minimum=1)
        for name, seconds in {"step_timeout": step_timeout, "idle_timeout": idle_timeout, "ping": ping}.items():
            if seconds != math.inf:
                number(name, seconds, above=0)
        if len({served_env.name for served_env in envs}) < len(envs):
            raise ConfigError("each environment can be served once; start another server for other arguments")
        self.listener = Listener(host, port, token, _refusal, max_body=max_message)
        self.state = ServerState(max_episodes, max_message)
        self.sessions = Sessions(
            {served_env.name: served_env for served_env in envs},
            self.state,
            max_waiting=max_waiting,
            step_timeout=step_timeout,
            idle_timeout=idle_timeout,
        )
        self._ping = ping if math.isfinite(ping) else None

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self.listener.port

    async def open(self) -> None:
        """Start listening, on the running loop; a ConfigError if an environment or the address does not work."""
        check_release("aiohttp", "3.11", "4", "serve")
        from agent_envs.serving.routes import application

        await self.sessions.start()
        await self.listener.open(
            application(self.sessions, self.listener, self._ping),
            shutdown_timeout=2.0, keepalive_timeout=75.0, max_line_size=MAX_ADDRESS,
        )  # fmt: skip
        self.sessions.watch()

    async def shut_down(self, grace: float = 30.0) -> None:
        """Stop: refuse connections and messages, give running steps `grace` seconds, close the episodes."""
        self.sessions.stopping = True
        self.listener.refuse()
        await self.sessions.finish(grace)
        await self.listener.close()
        await self.sessions.close()


def _refusal(status: int, message: str) -> web.StreamResponse:
    from agent_envs.serving.routes import refusal

    return refusal(status, message)
