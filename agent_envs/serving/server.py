"""The server: OpenEnv's WebSocket protocol in front of worker processes that play the episodes."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from agent_envs.checks import integer, number
from agent_envs.errors import AgentEnvsError, ConfigError, TaskIndexError, check_release
from agent_envs.serving.listener import BackgroundServer, Listener
from agent_envs.serving.pool import Limits, Pool
from agent_envs.serving.process import machine_memory
from agent_envs.serving.protocol import MAX_MESSAGE
from agent_envs.serving.routes import refusal, routes
from agent_envs.serving.served_env import ServedEnv

__all__ = ["EnvServer"]

_CONNECTIONS = 2048  # that are possible at once, however few episodes are
_CAN_PIN = hasattr(os, "sched_getaffinity")  # not on macOS


class EnvServer(BackgroundServer):
    """Serves environments to many clients at once, each with an episode of its own.

    Args:
        envs: The environments to serve; the first one at the root, each at /NAME too.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which `url` then shows.
        token: What clients have to send. Required if other machines can reach `host`.
        workers: Processes that play the episodes; by default one for each core. With 0 they are played in threads of
            this process, which knows environments that are registered here alone, and cannot end a step that hangs.
        max_episodes: Most clients at once, each with an episode; further ones are refused.
        max_waiting: Most messages of all clients that may wait for an answer; further ones are refused.
        step_timeout: Seconds a step may take; then the client gets an error and its episode ends. If the step has not
            returned after as long again, its worker is replaced, and the worker's other episodes end too.
        stall_timeout: Seconds a step may hold the interpreter, so that nothing else runs in its worker, which is
            replaced then.
        worker_memory: Megabytes that a worker may take before it is replaced; by default the workers share four fifths
            of the machine's.
        episode_bytes: Bytes of the messages and answers of an episode.
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
        workers: int | None = None,
        max_episodes: int = 256,
        max_waiting: int = 1024,
        step_timeout: float = 120.0,
        stall_timeout: float = 30.0,
        idle_timeout: float = 1800.0,
        ping: float = 20.0,
        max_message: int = MAX_MESSAGE,
        worker_memory: float | None = None,
        episode_bytes: int = 512 << 20,
    ) -> None:
        if not envs:
            raise ConfigError("there is nothing to serve: name at least one environment")
        integer("max_episodes", max_episodes, minimum=1)
        integer("max_waiting", max_waiting, minimum=1)
        integer("max_message", max_message, minimum=1)
        integer("episode_bytes", episode_bytes, minimum=1)
        if workers is None:
            workers = 0 if os.name == "nt" else len(os.sched_getaffinity(0)) if _CAN_PIN else os.cpu_count() or 1
        integer("workers", workers, minimum=0, maximum=0 if os.name == "nt" else 1024)  # Windows inherits no sockets
        if worker_memory is None:
            worker_memory = 0.8 * machine_memory() / max(1, workers) / (1 << 20) or math.inf
        waits = {"step_timeout": step_timeout, "stall_timeout": stall_timeout, "idle_timeout": idle_timeout}
        for name, seconds in {**waits, "ping": ping, "worker_memory": worker_memory}.items():
            if seconds != math.inf:
                number(name, seconds, above=0)
        if len({served_env.name for served_env in envs}) < len(envs):
            raise ConfigError("each environment can be served once; start another server for other arguments")
        limits = Limits(
            workers=workers,
            max_episodes=max_episodes,
            max_waiting=max_waiting,
            max_message=max_message,
            worker_memory=worker_memory * (1 << 20),
            episode_bytes=episode_bytes,
            **waits,
        )
        self.listener = Listener(
            host,
            port,
            token,
            refusal,
            max_body=max_message,
            max_connections=max(_CONNECTIONS, 2 * max_episodes),
            statuses={ConfigError: 422, TaskIndexError: 422, AgentEnvsError: 500},
            paths=", ".join(f"/{served_env.name}" for served_env in envs) + ", each with /ws, /metadata, /schema",
        )
        self.pool = Pool({served_env.name: served_env for served_env in envs}, limits)
        self._ping = ping if math.isfinite(ping) else None

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self.listener.port

    async def open(self) -> None:
        """Start listening, on the running loop; a ConfigError if an environment or the address does not work."""
        check_release("aiohttp", "serve")
        await self.pool.start()
        try:
            await self.listener.open(routes(self.pool, self._ping))
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
