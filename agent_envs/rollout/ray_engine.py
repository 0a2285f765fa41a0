"""Plays episodes on the workers of a Ray cluster: the engine "ray" of `run_episodes`, `evaluate` and the commands.

Ray does the work: a worker is an actor that it starts, spreads over the nodes and starts again when it dies; an episode
is a call, which Ray makes again where its worker has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from agent_envs import checks
from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError, ConfigError, first_line, needs_extra
from agent_envs.rollout.episode_run import EpisodeTask, close_env
from agent_envs.rollout.one import TextEnvLike, play_one, run_slots

_LIVES = 4  # workers that one episode may lose before it is taken for the reason
_PATIENCE = 5.0  # seconds for a connection
_HOST = re.compile(r"([^/]+):(\d+)")


class RayWorker:
    """Lives on a node of the cluster, and plays episodes."""

    def __init__(self, make: Callable[[], TextEnvLike]) -> None:
        self._make = make
        self._idle: list[TextEnvLike] = []
        self._policies: dict[Any, Any] = {}

    async def ready(self) -> None:
        """Make the first environment."""
        self._idle.append(await asyncio.to_thread(self._make))

    async def play(
        self, policy: list[Any], task: tuple[Any, ...], limits: tuple[float | None, float | None]
    ) -> tuple[Episode, float]:
        """Play an episode, and return it with the seconds that it took.

        The task is that of an `EpisodeTask` less the policy, to which a list refers: Ray would read it again for each
        call. The limits are seconds that a step and an episode may take.
        """
        if policy[0] not in self._policies:
            self._policies.setdefault(policy[0], await policy[0])
        env = self._idle.pop() if self._idle else None
        episode, env, began = await play_one(self._make, env, EpisodeTask(self._policies[policy[0]], *task), *limits)
        if env is not None:
            self._idle.append(env)
        return episode, time.monotonic() - began


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
        """Play episodes as `agent_envs.rollout.one.play_tasks` does, `concurrency` at once over all workers.

        Every worker makes an environment before the first episode; its errors are raised.

        Raises:
            BackendError: There is no such cluster, it cannot start the workers, or an episode lost four of them.
        """
        if first_env is not None:
            close_env(first_env)  # the workers make their own
        order = enumerate(tasks)
        policies: dict[int, tuple[Any, Any]] = {}  # kept with what refers to it on the cluster, so that ids stay

        async def slot(worker: Any) -> None:
            for number, task in order:
                if id(task.policy) not in policies:
                    policies[id(task.policy)] = task.policy, ray.put(task.policy)
                rest = (task.seed, task.options, task.episode_id, task.group_id)
                name = number if task.episode_id is None else task.episode_id
                with _rays_errors(f"episode {name} lost its worker {_LIVES} times, or the cluster is gone"):
                    played = await worker.play.remote([policies[id(task.policy)][1]], rest, limits)
                take(number, *played)

        limits = step_timeout, episode_timeout
        with self._started(make_env, concurrency) as (ray, workers):
            run_slots(slot(worker) for worker in islice(cycle(workers), concurrency))

    @contextlib.contextmanager
    def _started(self, make_env: Callable[[], TextEnvLike], most: int) -> Iterator[tuple[Any, list[Any]]]:
        """Connect, start the workers, and at the end undo both."""
        with needs_extra("ray"):
            import ray
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
            count = min(self.workers or max(1, int(processors)), most)
            options: dict[str, Any] = {
                "num_cpus": min(1.0, processors / count / 2),  # more workers than processors are possible
                "num_gpus": self.gpus_per_worker,
                "scheduling_strategy": "SPREAD",
                "max_restarts": -1,
                "max_task_retries": _LIVES - 1,
                "max_concurrency": 1 + most // count,
            }
            actor = ray.remote(**options)(RayWorker)
            workers += [actor.remote(make_env) for _ in range(count)]
            with _rays_errors("a worker cannot be started"):
                ray.get([worker.ready.remote() for worker in workers])
            yield ray, workers
        finally:
            for worker in workers:
                ray.kill(worker)
            if own:
                ray.shutdown()


@contextlib.contextmanager
def _rays_errors(what: str) -> Iterator[None]:
    """Turn Ray's own errors into one of this package; what the far side raised stays what it was."""
    from ray import exceptions

    try:
        yield
    except exceptions.RayTaskError as e:
        if isinstance(e.cause, Exception) and not isinstance(e.cause, exceptions.RayError):
            raise e.cause from e
        raise BackendError(f"a worker cannot be used: {_told(e.cause or e)}") from e
    except exceptions.RayError as e:
        raise BackendError(f"{what}: {_told(e)}") from e


def _told(error: BaseException) -> str:
    last = str(error).strip().rpartition("\n")[2].strip()  # of a traceback, what went wrong
    return f"{type(error).__name__}: {first_line(error)} {last}"
