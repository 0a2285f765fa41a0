"""The environments of an agent-loop worker: made once and reused, in its own process or on a server of its node.

A server is a named Ray actor, one for each node and environment, which the node's first worker starts and all of its
workers find. It is `agent_envs.serving.EnvServer`, so what is heavy (a corpus, a catalogue, a sandbox) is loaded once
for each of its worker processes and not for each agent-loop worker; one that hangs or dies is replaced there.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import math
import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from agent_envs.errors import BackendDownError, first_line
from agent_envs.files import allow_open_files
from agent_envs.wrapping.specs import make_text_env

_MOST = 1 << 15
"""Episodes and messages at once on a node's server; what limits them are the agent-loop workers."""
_actors: dict[str, Any] = {}  # by name: Ray ends an actor that nobody refers to any more
_WAIT = 1e6
"""Seconds to wait for an answer where no limit is set."""


class EnvPool:
    """Environments that are made once and reused, one per concurrent episode."""

    def __init__(self) -> None:
        self._free: dict[str, list[gym.Env[Any, str]]] = defaultdict(list)
        self._lock = threading.Lock()
        atexit.register(self.close)

    async def acquire(
        self, env_id: str, kwargs: Mapping[str, Any], wrappers: Sequence[str], servers: EnvServers | None = None
    ) -> tuple[str, gym.Env[Any, str]]:
        """Return a free environment, or a new one, and the key to release it with.

        A new one is made in a thread, in this process or on the node's server.
        """
        import agent_envs  # noqa: F401  registers the ids, which this process may not have imported yet

        key = json.dumps([env_id, kwargs, wrappers], sort_keys=True)
        with self._lock:
            if self._free[key]:
                return key, self._free[key].pop()
        if servers is None:
            return key, await asyncio.to_thread(make_text_env, env_id, kwargs, wrappers)
        return key, await servers.make(env_id, kwargs, wrappers)

    def release(self, key: str, env: gym.Env[Any, str]) -> None:
        """Return an environment to the pool."""
        with self._lock:
            self._free[key].append(env)

    def close(self, key: str | None = None) -> None:
        """Close the free environments of a key, or all."""
        with self._lock:
            keys = list(self._free) if key is None else [key]
            envs = [env for one in keys for env in self._free.pop(one, ())]
        for env in envs:
            env.close()


@dataclass(frozen=True)
class EnvServers:
    """The servers of environments on this node, as named Ray actors of so many worker processes each."""

    workers: int
    step_timeout: float | None = None

    async def make(self, env_id: str, kwargs: Mapping[str, Any], wrappers: Sequence[str]) -> gym.Env[Any, str]:
        """Return an environment of the node's server, which is started if there is none.

        All splits are played on one server. Errors of the environment are raised as in this process.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        served = {name: value for name, value in kwargs.items() if name != "split"}
        node = ray.get_runtime_context().get_node_id()
        what = json.dumps([env_id, served, list(wrappers), self.workers, self.step_timeout], sort_keys=True)
        name = f"agentr1_envs/{node}/{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        if name not in _actors:
            here = NodeAffinitySchedulingStrategy(node, soft=False)
            kept = {"get_if_exists": True, "num_cpus": 0, "max_restarts": -1, "max_task_retries": 3}
            actor = ray.remote(_NodeServer).options(name=name, scheduling_strategy=here, **kept)
            limits = {
                "workers": self.workers, "step_timeout": self.step_timeout or math.inf, "idle_timeout": math.inf,
                "max_episodes": _MOST, "max_waiting": _MOST,
            }  # fmt: skip
            _actors[name] = actor.remote((env_id, served, tuple(wrappers)), limits)
        try:
            url, token = await _actors[name].address.remote()
        except ray.exceptions.RayTaskError as e:
            raise (e.cause if isinstance(e.cause, Exception) else e) from e
        except ray.exceptions.RayActorError as e:  # whoever started it is gone, and the server with it
            _actors.pop(name, None)
            raise BackendDownError(f"the server of {env_id} on this node is gone: {first_line(e)}") from e
        allow_open_files()
        about = {"url": url, "token": token, "timeout": _WAIT if self.step_timeout is None else 2 * self.step_timeout}
        if "split" in kwargs:
            about["split"] = kwargs["split"]
        return await asyncio.to_thread(make_text_env, "AgentR1/Remote-v0", about, ())


class _NodeServer:
    """The Ray actor: a server of one environment that listens on this machine alone, for whoever has its token."""

    def __init__(self, served: tuple[str, Mapping[str, Any], Sequence[str]], limits: Mapping[str, Any]) -> None:
        self._served, self._limits = served, limits
        self._token = secrets.token_urlsafe()
        self._server: Any = None

    def address(self) -> tuple[str, str]:
        """Start the server if it is not running; return its address and the token."""
        from agent_envs.serving import EnvServer, ServedEnv

        if self._server is None:
            allow_open_files()
            server = EnvServer([ServedEnv(*self._served)], port=0, token=self._token, **self._limits)
            server.start()
            self._server = server
        return self._server.url, self._token
