"""How a worker and the driver hand each other tasks and episodes, without Ray's processes.

Behaviours pinned here:
1. Whatever is lost on the way (a call, an answer, the worker at any moment), each episode is taken once.
2. No more episodes are played at once than a share has; tasks are read when one has ended.
3. An episode that loses four workers is an error that names it; one that loses an answer has lost none.
4. What a worker raised ends the run as it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pytest

from agent_envs.envs.gsm8k.env import GSM8KToolEnv
from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError
from agent_envs.policies import ExpertPolicy
from agent_envs.rollout.episode_run import EpisodeTask
from agent_envs.rollout.ray_worker import LIVES, RayWorker, Share
from agent_envs.rollout.slots import run_slots

exceptions = pytest.importorskip("ray.exceptions")

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

HARMLESS = ("call lost", "call late", "answer lost")
DEADLY = ("killed before", "killed while playing", "killed with the answer", "killed after the answer")


class _Reference:
    """Refers to a policy as Ray's references do."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def hex(self) -> str:
        return str(id(self.policy))

    def __await__(self) -> Iterator[Any]:
        yield from ()
        return self.policy


class _Actor:
    """A worker that is started again when it dies; the calls of some numbers do not go well."""

    def __init__(self, faults: Mapping[int, str]) -> None:
        self.worker = RayWorker(GSM8KToolEnv)
        self.exchange = self.life = self
        self.exchanges: list[list[int]] = []
        self._faults = faults
        self._late: list[asyncio.Task[Any]] = []

    def options(self, *, max_task_retries: int) -> _Exchange:
        assert max_task_retries == 0
        return _Exchange(self)

    async def remote(self) -> str:
        return await self.worker.life()

    async def exchanged(self, *args: Any) -> Any:
        self.exchanges.append([number for number, *_ in args[3]])
        match self._faults.get(len(self.exchanges) - 1, ""):
            case "call lost":
                raise exceptions.ActorUnavailableError("no connection", None)
            case "call late":
                self._late.append(asyncio.create_task(self._later(*args)))
                raise exceptions.ActorUnavailableError("no connection", None)
            case "answer lost":
                await self.worker.exchange(*args)
                raise exceptions.ActorUnavailableError("no connection", None)
            case "killed before":
                self._start_again()
                raise exceptions.ActorDiedError
            case "killed while playing":
                playing = asyncio.create_task(self.worker.exchange(*args))
                await asyncio.sleep(random.random() / 100)
                playing.cancel()
                self._start_again()
                raise exceptions.ActorDiedError
            case "killed with the answer":
                await self.worker.exchange(*args)
                self._start_again()
                raise exceptions.ObjectLostError("0", None, "")
            case "killed after the answer":
                answer = await self.worker.exchange(*args)
                self._start_again()
                return answer
            case "broken answer":
                raise exceptions.RaySystemError("it cannot be read")
        return await self.worker.exchange(*args)

    async def _later(self, *args: Any) -> None:
        worker = self.worker
        await asyncio.sleep(random.random() / 100)
        await worker.exchange(*args)

    def _start_again(self) -> None:
        self.die()
        self.worker = RayWorker(GSM8KToolEnv)

    def die(self) -> None:
        for playing in (*self._late, *self.worker._games.values()):
            playing.cancel()


class _Exchange:
    def __init__(self, actor: _Actor) -> None:
        self.remote = actor.exchanged


def _play(
    tasks: Iterator[EpisodeTask], slots: int, *actors: _Actor, taken: list[tuple[int, Episode]] | None = None
) -> list[tuple[int, Episode]]:
    """Play with so many slots on each actor; return what was taken, in the list that is given if there is one."""
    taken = [] if taken is None else taken
    order = enumerate(tasks)
    shares = [
        Share(actor, _Reference, lambda number, episode, _: taken.append((number, episode)), (None, None))
        for actor in actors
    ]
    for share in shares:
        for number, task in islice(order, slots):
            share.add(number, task)

    async def play(share: Share, actor: _Actor) -> None:
        try:
            await share.play(order)
        finally:
            actor.die()

    run_slots(map(play, shares, actors))
    return taken


def _tasks(count: int, policy: Any = None) -> Iterator[EpisodeTask]:
    policy = policy or ExpertPolicy(noise=0.5)
    return (EpisodeTask(policy, seed, {"index": seed}, f"name{seed}") for seed in range(count))


@pytest.mark.parametrize("seed", range(20))
def test_each_episode_is_taken_once_whatever_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    faults = []
    for _ in range(2):
        calls = rng.sample(range(12), 7)
        faults.append(dict(zip(calls, rng.choices(HARMLESS, k=4) + rng.choices(DEADLY, k=LIVES - 1), strict=True)))
    taken = _play(_tasks(80), 8, *map(_Actor, faults))
    assert sorted(number for number, _ in taken) == list(range(80))
    assert all((episode.episode_id, episode.index) == (f"name{number}", number) for number, episode in taken)
    alone = dict(_play(_tasks(80), 8, _Actor({})))
    assert all(episode.to_dict() == alone[number].to_dict() for number, episode in taken)


def test_tasks_are_read_when_there_is_room() -> None:
    taken: list[tuple[int, Episode]] = []

    def tasks() -> Iterator[EpisodeTask]:
        for read, task in enumerate(_tasks(30)):
            assert read < len(taken) + 6
            yield task

    assert _play(tasks(), 3, _Actor({}), _Actor({4: "killed before"}), taken=taken) is taken
    assert len(taken) == 30


def test_a_worker_leaves_out_what_it_has() -> None:
    actor = _Actor({1: "answer lost", 2: "call lost"})
    made: list[int] = []
    begin = actor.worker._begin
    actor.worker._begin = lambda number, *args: (made.append(number), begin(number, *args))  # type: ignore[assignment, method-assign, func-returns-value]
    assert len(_play(_tasks(12), 4, actor)) == 12
    assert made == list(range(12))
    assert sum(map(len, actor.exchanges)) > 12


@pytest.mark.parametrize("fault", DEADLY[:3])
def test_an_episode_that_loses_four_workers_is_an_error(fault: str) -> None:
    faults = dict.fromkeys(range(LIVES), fault)
    with pytest.raises(BackendError, match="episode name0 lost its worker 4 times, the last time with: "):
        _play(_tasks(2), 2, _Actor(faults))
    faults.popitem()
    assert len(_play(_tasks(2), 2, _Actor(faults))) == 2


def test_lost_answers_cost_no_worker() -> None:
    assert len(_play(_tasks(10), 2, _Actor(dict.fromkeys(range(10), "answer lost")))) == 10


def test_what_a_worker_raises_ends_the_run() -> None:
    with pytest.raises(BackendError, match="a worker cannot be used: RaySystemError: System error: it cannot be read"):
        _play(_tasks(10), 2, _Actor({1: "broken answer"}))

    class Broken:
        def hex(self) -> str:
            return "broken"

        def __await__(self) -> Iterator[Any]:
            raise ValueError("cannot be unpickled")

    worker = RayWorker(GSM8KToolEnv)

    async def exchange() -> Any:
        return await worker.exchange(await worker.life(), [], [Broken()], [(0, 0, (0,))], (None, None))

    with pytest.raises(ValueError, match="cannot be unpickled"):
        asyncio.run(exchange())
