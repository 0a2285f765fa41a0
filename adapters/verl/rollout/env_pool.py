"""Environments that are made once and reused, one per concurrent episode."""

from __future__ import annotations

import asyncio
import atexit
import json
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from agent_envs.wrapping.specs import make_text_env

__all__ = ["EnvPool"]


class EnvPool:
    """The free environments, by id, keyword arguments and wrappers."""

    def __init__(self) -> None:
        self._free: dict[str, list[gym.Env[Any, str]]] = defaultdict(list)
        self._lock = threading.Lock()
        atexit.register(self.close)

    async def acquire(
        self, env_id: str, kwargs: Mapping[str, Any], wrappers: Sequence[str]
    ) -> tuple[str, gym.Env[Any, str]]:
        """Return a free environment, or a new one made in a thread, and the key to release it with."""
        key = json.dumps([env_id, dict(kwargs), list(wrappers)], sort_keys=True)
        with self._lock:
            if self._free[key]:
                return key, self._free[key].pop()
        return key, await asyncio.to_thread(make_env, env_id, kwargs, wrappers)

    def release(self, key: str, env: gym.Env[Any, str]) -> None:
        """Return an environment to the pool."""
        with self._lock:
            self._free[key].append(env)

    def close(self) -> None:
        """Close every free environment."""
        with self._lock:
            envs = [env for free in self._free.values() for env in free]
            self._free.clear()
        for env in envs:
            env.close()


def make_env(env_id: str, kwargs: Mapping[str, Any], wrappers: Sequence[str]) -> gym.Env[Any, str]:
    """Make an environment in its wrappers in a process that may not have imported the package's ids yet."""
    import agent_envs  # noqa: F401  registers the ids

    return make_text_env(env_id, kwargs, wrappers)
