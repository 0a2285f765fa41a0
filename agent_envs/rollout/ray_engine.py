"""Plays episodes on the workers of a Ray cluster: the engine "ray" of `run_episodes`, `evaluate` and the commands.

Ray does the scheduling: a worker is an actor that it starts, spreads over the nodes and starts again when it dies, and
calls that a dead worker was making are made again. Here are only the worker, and the slots that wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from agent_envs import checks
from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError, ConfigError, MissingExtraError, first_line
from agent_envs.policies.policy import Policy
from agent_envs.rollout.episode_run import EpisodeTask, close_env
from agent_envs.rollout.slots import TextEnvLike, play_one, run_slots

__all__ = ["RayEngine"]

_LIVES = 4
"""Workers that one episode may lose before it is taken for the reason."""
_DIED = f"lost its worker {_LIVES} times, or the cluster is gone"
_PATIENCE = 5.0  # seconds for a connection, and for calls that nobody waits for any more
_HOST = re.compile(r"([^/]+):(\d+)")
_AHEAD = 4
"""Calls that `RayEngine.map` makes before the first of them is taken, for each worker."""


@dataclass(frozen=True)
class RayEngine:
    """Where episodes are played: workers on a Ray cluster, each of which plays many at once.

    Environments and policies are sent to the workers, so they must pickle; `agent_envs.policies.MadePolicy` makes a
    policy where it plays. What a worker imports must be installed on its node.

    Args:
        address: The cluster, such as "auto" or "10.0.0.1:6379"; None for the one that this process is connected to or,
            without one, for a cluster of this machine that ends with the call.
        workers: Number of workers, spread over the nodes; None for one per processor of the cluster.
        gpus_per_worker: GPUs that each worker asks for, such as 1 or 0.5.
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float = 0.0

    def __post_init__(self) -> None:
        if self.workers is not None:
            checks.integer("workers", self.workers, minimum=1)
        checks.number("gpus_per_worker", self.gpus_per_worker, minimum=0)

    def play_tasks(
        self,
        make_env: Callable[[], TextEnvLike],
        tasks: Iterable[EpisodeTask],
        take: Callable[[int, Episode, float], None],
        *,
        concurrency: int,
        step_timeout: float | None = None,
        episode_timeout: float | None = None,
        first_env: TextEnvLike | None = None,
    ) -> None:
        """Play episodes as `agent_envs.rollout.slots.play_tasks` does, `concurrency` at once over all workers.

        Every worker makes an environment before the first episode; its errors are raised.

        Raises:
            BackendError: There is no such cluster, it cannot start the workers, or an episode lost four of them.
        """
        if first_env is not None:
            close_env(first_env)  # the workers make their own
        order = enumerate(tasks)

        async def slot(worker: Any) -> None:
            for number, task in order:  # shared by all slots: whichever is free takes the next episode
                if id(task.policy) not in policies:
                    policies[id(task.policy)] = task.policy, ray.put(task.policy)
                _, policy = policies[id(task.policy)]
                rest = (task.seed, task.options, task.episode_id, task.group_id)
                call = worker.play.remote([policy], rest, step_timeout, episode_timeout)
                with _lost(f"episode {number if task.episode_id is None else task.episode_id} {_DIED}"):
                    episode, seconds = await call
                take(number, episode, seconds)

        policies: dict[int, tuple[Policy, Any]] = {}  # kept with what refers to it on the cluster, so that ids stay
        with self._started(make_env, most=concurrency, at_once=concurrency) as (ray, workers):
            run_slots(slot(worker) for worker in islice(cycle(workers), concurrency))

    def map(self, make: Callable[[], Callable[[Any], Any]], items: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of a function for each item, in the order of the items; few are read ahead.

        Args:
            make: Makes the function, once on every worker, which then calls it for one item at a time.
            items: What the function takes.

        Raises:
            BackendError: As for `play_tasks`.
            Exception: What the function raised.
        """
        with self._started(make, most=None, at_once=1) as (ray, workers):
            calls: deque[Any] = deque()
            turn = cycle(workers)

            def result() -> Any:
                with _lost(f"an item {_DIED}"):
                    return ray.get(calls.popleft())

            try:
                for item in items:
                    calls.append(next(turn).call.remote(item))
                    if len(calls) >= _AHEAD * len(workers):
                        yield result()
                while calls:
                    yield result()
            finally:
                if calls:  # nobody wants them; Ray complains of calls that a worker takes with it
                    ray.wait(list(calls), num_returns=len(calls), timeout=_PATIENCE)

    @contextlib.contextmanager
    def _started(self, make: Callable[[], Any], *, most: int | None, at_once: int) -> Iterator[tuple[Any, list[Any]]]:
        """Connect, start the workers, and at the end undo both."""
        try:
            import ray
        except ImportError as e:
            raise MissingExtraError("ray", extra="ray") from e
        own = not ray.is_initialized()
        if own:
            try:
                quiet = {"include_dashboard": False} if self.address is None else {}
                where = self.address or "local"
                if host := _HOST.fullmatch(where):  # Ray itself would wait for minutes
                    socket.create_connection((host[1].strip("[]"), int(host[2])), timeout=_PATIENCE).close()
                ray.init(address=where, logging_level=logging.ERROR, log_to_driver=False, **quiet)
            except (OSError, ValueError, RuntimeError, OverflowError) as e:
                raise BackendError(f"Ray at {self.address or 'this machine'} cannot be reached: {first_line(e)}") from e
        elif self.address is not None and ray.get_runtime_context().gcs_address != self.address != "auto":
            raise ConfigError(
                f"this process is connected to Ray at {ray.get_runtime_context().gcs_address} already, "
                f"not at {self.address}; leave the address out"
            )
        workers: list[Any] = []
        try:
            processors = ray.cluster_resources().get("CPU", 1.0)
            count = self.workers or max(1, int(processors))
            count = count if most is None else min(count, most)
            options: dict[str, Any] = {
                "num_cpus": min(1.0, processors / count / 2),  # more workers than processors are possible
                "num_gpus": self.gpus_per_worker,
                "scheduling_strategy": "SPREAD",
                "max_restarts": -1,
                "max_task_retries": _LIVES - 1,
                "max_concurrency": 1 + -(-at_once // count),  # and the call that looks whether it is there
            }
            actor = ray.remote(**options)(_Worker)
            workers += [actor.remote(make) for _ in range(count)]
            with _lost("a worker cannot be started"):
                ray.get([worker.ready.remote() for worker in workers])
            yield ray, workers
        finally:
            for worker in workers:
                ray.kill(worker)
            if own:
                ray.shutdown()


@contextlib.contextmanager
def _lost(what: str) -> Iterator[None]:
    """Turn Ray's own errors into one of this package; what the far side raised stays what it was."""
    from ray import exceptions

    try:
        yield
    except exceptions.RayTaskError as e:
        if isinstance(e.cause, Exception):
            raise e.cause from e
        raise BackendError(f"{what}: {first_line(e)}") from e
    except exceptions.RayError as e:
        last = str(e).strip().rpartition("\n")[2].strip()  # of a traceback, what went wrong
        raise BackendError(f"{what}: {type(e).__name__}: {first_line(e)} {last}") from e


class _Worker:
    """Lives on a node of the cluster; plays episodes, or calls a function."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._idle: list[Any] = []
        self._policies: dict[str, Any] = {}
        self._calling = asyncio.Lock()

    async def ready(self) -> None:
        """Make the first environment or function."""
        self._idle.append(await asyncio.to_thread(self._make))

    async def play(
        self, policy: list[Any], rest: tuple[Any, ...], step_timeout: float | None, episode_timeout: float | None
    ) -> tuple[Episode, float]:
        """Play an episode with a policy, behind a reference, and the rest of a task; return it and its seconds."""
        (reference,) = policy
        key = reference.hex()
        if key not in self._policies:
            self._policies.setdefault(key, await reference)
        task = EpisodeTask(self._policies[key], *rest)
        env = self._idle.pop() if self._idle else None
        episode, env, began = await play_one(self._make, env, task, step_timeout, episode_timeout)
        if env is not None:
            self._idle.append(env)
        return episode, time.monotonic() - began

    async def call(self, item: Any) -> Any:
        """Call the function that was made, for one item at a time."""
        async with self._calling:
            if not self._idle:
                await self.ready()
            return await asyncio.to_thread(self._idle[0], item)
