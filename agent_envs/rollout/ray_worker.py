"""A worker on a Ray cluster, and the driver's side of it: how they hand each other tasks and episodes.

One call is open for each worker, however many episodes it plays: `RayWorker.exchange` brings the tasks that it plays
next, and returns with the episodes that have ended. Ray never repeats it. If the call or its answer is lost, the driver
asks which life the worker is in. In the same one it still plays all that it was given and has all that it answered:
the driver asks again, and the worker leaves out what it has been given before. In another one it knows nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError, first_line
from agent_envs.rollout.episode_run import EpisodeTask
from agent_envs.rollout.slots import play_one

__all__ = ["LIVES", "RayWorker", "Share", "rays_errors"]

LIVES = 4
"""Workers that one episode may lose before it is taken for the reason."""
_LONGEST = 10.0  # seconds until an exchange returns, even if no episode has ended
_GATHERING = 0.02  # seconds that an episode that has ended waits for others, to share an answer with them
_TOGETHER = 8  # it waits no longer when one in so many episodes has ended
_MOST = 256  # episodes in an answer

Ended = tuple[int, Episode, float]
"""The number of a task, its episode and the seconds it took."""


class RayWorker:
    """Lives on a node of the cluster; plays episodes, or calls a function."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._life = uuid.uuid4().hex
        self._idle: list[Any] = []
        self._policies: dict[str, Any] = {}
        self._games: dict[int, asyncio.Task[tuple[Episode, float]]] = {}  # until the driver has taken them
        self._ended: dict[int, asyncio.Task[tuple[Episode, float]]] = {}  # the games among them that are over
        self._more_ended = asyncio.Event()
        self._calling = asyncio.Lock()

    async def ready(self) -> None:
        """Make the first environment or function."""
        self._idle.append(await asyncio.to_thread(self._make))

    async def life(self) -> str:
        """Return which of the worker's lives this is; it has another one after each restart."""
        return self._life

    async def exchange(
        self,
        life: str,
        taken: Sequence[int],
        policies: list[Any],
        tasks: Sequence[tuple[int, int, tuple[Any, ...]]],
        limits: tuple[float | None, float | None],
    ) -> list[Ended] | None:
        """Begin episodes, wait until some have ended, and return these; they are kept until the driver has taken them.

        Args:
            life: The life that the driver knows; in another one nothing happens, and None is returned.
            taken: Numbers of the episodes that the driver has taken.
            policies: References to the policies of the tasks.
            tasks: The number of each, the position of its policy, and the rest of an `EpisodeTask`; those that the
                worker has already are left out.
            limits: Seconds that a step and an episode may take.
        """
        if life != self._life:
            return None
        for number in taken:
            self._games.pop(number, None)
            self._ended.pop(number, None)
        for reference in policies:
            if reference.hex() not in self._policies:
                self._policies[reference.hex()] = await reference
        for number, policy, rest in tasks:
            if number not in self._games:
                self._begin(number, EpisodeTask(self._policies[policies[policy].hex()], *rest), limits)
        await self._until_ended(1, _LONGEST)
        await self._until_ended(-(-len(self._games) // _TOGETHER), _GATHERING)
        return [(number, *game.result()) for number, game in islice(self._ended.items(), _MOST)]

    async def call(self, item: Any) -> Any:
        """Call the function that was made, for one item at a time."""
        async with self._calling:
            if not self._idle:
                await self.ready()
            return await asyncio.to_thread(self._idle[0], item)

    def _begin(self, number: int, task: EpisodeTask, limits: tuple[float | None, float | None]) -> None:
        def end(game: asyncio.Task[tuple[Episode, float]]) -> None:
            self._ended[number] = game
            self._more_ended.set()

        self._games[number] = asyncio.create_task(self._play(task, limits))
        self._games[number].add_done_callback(end)

    async def _play(self, task: EpisodeTask, limits: tuple[float | None, float | None]) -> tuple[Episode, float]:
        env = self._idle.pop() if self._idle else None
        episode, env, began = await play_one(self._make, env, task, *limits)
        if env is not None:
            self._idle.append(env)
        return episode, time.monotonic() - began

    async def _until_ended(self, count: int, seconds: float) -> None:
        """Wait until so many episodes have ended that the driver has not taken, or for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self._ended) < count:
                    self._more_ended.clear()
                    await self._more_ended.wait()


class Share:
    """The driver's side of a worker: the episodes that it is to play at once.

    Args:
        worker: The actor, which is ready.
        reference: Returns what refers to a policy on the cluster.
        take: As for `agent_envs.rollout.slots.play_tasks`.
        limits: Seconds that a step and an episode may take.
    """

    def __init__(
        self,
        worker: Any,
        reference: Callable[[Any], Any],
        take: Callable[[int, Episode, float], None],
        limits: tuple[float | None, float | None],
    ) -> None:
        self._worker, self._reference, self._take, self._limits = worker, reference, take, limits
        self._life = ""
        self._playing: dict[int, EpisodeTask] = {}
        self._lost: Counter[int] = Counter()

    def add(self, number: int, task: EpisodeTask) -> None:
        """Add an episode to those that the worker plays."""
        self._playing[number] = task

    async def play(self, order: Iterator[tuple[int, EpisodeTask]]) -> None:
        """Have the episodes played, and then others from `order` in their places, until none is left.

        Raises:
            BackendError: An episode has lost four workers, or the worker cannot be started again.
            Exception: What is wrong with the environments, the policies or what they return.
        """
        slots, new, taken = len(self._playing), list(self._playing), list[int]()
        if self._playing:
            self._life = await self._current_life()
        while self._playing:
            ended = await self._exchange(new, taken)
            if ended is None:
                new = list(self._playing)
                continue
            for number, episode, seconds in ended:
                if self._playing.pop(number, None) is not None:
                    self._take(number, episode, seconds)
            taken, new = [number for number, *_ in ended], []
            for number, task in islice(order, slots - len(self._playing)):
                self.add(number, task)
                new.append(number)

    async def _exchange(self, new: Sequence[int], taken: Sequence[int]) -> list[Ended] | None:
        """Return the episodes that have ended; None if the call, its answer or the worker was lost."""
        from ray import exceptions

        policies: dict[Any, int] = {}
        tasks = []
        for number in new:
            task = self._playing[number]
            policy = policies.setdefault(self._reference(task.policy), len(policies))
            tasks.append((number, policy, (task.seed, task.options, task.episode_id, task.group_id)))
        exchange, ended, cause = self._worker.exchange.options(max_task_retries=0), None, "it was started again"
        with rays_errors("a worker cannot be used"):
            try:
                ended = await exchange.remote(self._life, taken, list(policies), tasks, self._limits)
            except (exceptions.RayTaskError, exceptions.RaySystemError):  # it would be the same again
                raise
            except exceptions.RayError as e:
                cause = _shown(e)
        if ended is None:
            await self._find_worker(cause)
        return ended

    async def _find_worker(self, cause: str) -> None:
        """Wait until the worker is there; if that is another one, all its episodes have lost one."""
        known, self._life = self._life, await self._current_life()
        if self._life == known:
            return
        self._lost.update(list(self._playing))
        for number in self._playing:
            if self._lost[number] == LIVES:
                raise BackendError(f"{self._name(number)} lost its worker {LIVES} times, the last time with: {cause}")

    async def _current_life(self) -> str:
        """Return the worker's life, as soon as it is there; Ray repeats this call."""
        first = self._name(next(iter(self._playing)))
        with rays_errors(f"{first} lost its worker {LIVES} times, or the cluster is gone"):
            life: str = await self._worker.life.remote()
        return life

    def _name(self, number: int) -> str:
        name = self._playing[number].episode_id
        return f"episode {number if name is None else name}"


@contextlib.contextmanager
def rays_errors(what: str) -> Iterator[None]:
    """Turn Ray's own errors into one of this package; what the far side raised stays what it was."""
    from ray import exceptions

    try:
        yield
    except exceptions.RayTaskError as e:
        if isinstance(e.cause, Exception) and not isinstance(e.cause, exceptions.RayError):
            raise e.cause from e
        raise BackendError(f"{what}: {_shown(e.cause or e)}") from e
    except exceptions.RayError as e:
        raise BackendError(f"{what}: {_shown(e)}") from e


def _shown(error: BaseException) -> str:
    last = str(error).strip().rpartition("\n")[2].strip()  # of a traceback, what went wrong
    return f"{type(error).__name__}: {first_line(error)} {last}"
