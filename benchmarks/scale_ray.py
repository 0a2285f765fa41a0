"""The part of scale.py that plays many episodes at once on the workers of Ray."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import statistics
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
from serving import cpu_seconds, processes, resident

import agent_envs
from agent_envs.episodes.record import Episode
from agent_envs.policies import ExpertPolicy
from agent_envs.policies.policy import Response
from agent_envs.rollout.episode_run import EpisodeTask
from agent_envs.rollout.ray_engine import RayEngine
from agent_envs.wrapping.specs import env_maker

TASKS = 50
SECONDS = 5.0  # of each measurement of the rate
REPEATS = 3


class Rate(NamedTuple):
    """How fast steps are made."""

    per_second: float
    """Steps per second."""
    cost: float
    """Seconds of processor time per step, of all processes that have to do with it."""


class ThinkingPolicy:
    """An expert that thinks before each action, as a model would.

    Args:
        think: Seconds on average, exponentially distributed.
        wait_for: Episodes of a worker that have to have begun before the first of them goes on.
    """

    def __init__(self, think: float, wait_for: int = 0) -> None:
        self.think, self.wait_for = think, wait_for
        self.begun = 0
        self.all_begun: asyncio.Event | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"think": self.think, "wait_for": self.wait_for}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def start(self, env: gym.Env[str, str]) -> ThinkingActor:
        with self._lock:
            self.begun += 1
        return ThinkingActor(self, env)


class ThinkingActor:
    """Notes, with each action, the microseconds from when the last one was due to when its answer was there."""

    def __init__(self, policy: ThinkingPolicy, env: gym.Env[str, str]) -> None:
        self._policy, self._env, self._due = policy, env, 0.0

    async def act(self, observation: Any, info: dict[str, Any]) -> Response:
        policy, now = self._policy, time.monotonic()
        usage = {"answer_us": int(1e6 * (now - self._due))} if self._due else None
        if not self._due and policy.wait_for:
            if policy.all_begun is None:
                policy.all_begun = asyncio.Event()
            if policy.begun >= policy.wait_for:
                policy.all_begun.set()
            await policy.all_begun.wait()
            now = time.monotonic()
        text = self._env.get_wrapper_attr("expert_action")()
        self._due = now + random.expovariate(1 / policy.think)
        await asyncio.sleep(self._due - now)
        return Response(text, usage=usage)


class MostMemory:
    """The most memory that this process and those that it started take while it is open, in kB."""

    def __enter__(self) -> MostMemory:
        self.most, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._ended.wait(0.5):
            self.most = max(self.most, resident(os.getpid()))

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


class Played:
    """What is kept of the episodes; they themselves are not, as if they went to a file."""

    def __init__(self) -> None:
        self.solved = self.steps = 0
        self.answers_us = array("q")

    def take(self, number: int, episode: Episode, seconds: float) -> None:
        self.solved += episode.success
        self.steps += len(episode.steps)
        self.answers_us.extend(step.usage["answer_us"] for step in episode.steps if step.usage)


def play_at_once(env_id: str, episodes: int, workers: int, think: float) -> tuple[Played, float, float]:
    """Play so many episodes at once; return what is kept of them, the seconds that took and the most memory, in kB."""
    policy = ThinkingPolicy(think, wait_for=episodes // workers)
    tasks = (EpisodeTask(policy, number, {"index": number % TASKS}) for number in range(episodes))
    played = Played()
    with MostMemory() as memory:
        begin = time.perf_counter()
        RayEngine(workers=workers).play_tasks(env_maker(env_id, {}, ()), tasks, played.take, concurrency=episodes)
        return played, time.perf_counter() - begin, memory.most


def measure_many(env_id: str, options: argparse.Namespace) -> None:
    """Print how so many episodes at once went."""
    import ray

    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        few = play_at_once(env_id, options.workers, options.workers, 2.0)[2]
        used = cpu_seconds(os.getpid())
        played, seconds, most = play_at_once(env_id, options.episodes, options.workers, options.think)
        used = cpu_seconds(os.getpid()) - used
        times = sorted(played.answers_us)
        print(
            f"{env_id} through Ray: {played.solved} of {options.episodes} episodes solved, all at once, "
            f"{played.steps} steps in {seconds:.0f} s\n"
            f"  a step: p50 {times[len(times) // 2] / 1e3:.1f} ms, p99 {times[int(0.99 * len(times))] / 1e3:.0f} ms, "
            f"longest {times[-1] / 1e3:.0f} ms; {1e6 * used / played.steps:.0f} us of processor time per step; "
            f"{(most - few) / options.episodes:.1f} kB per episode in {len(processes(os.getpid()))} processes",
            flush=True,
        )
        show_rate(env_id, options.workers, RayEngine(workers=options.workers))
    finally:
        ray.shutdown()


def rate(env_id: str, kwargs: dict[str, Any], engine: RayEngine, episodes: int) -> Rate:
    """The rate of episodes on the workers, which are there before the first."""
    began = ended = before = after = 0.0
    steps = taken = 0

    def take(number: int, episode: Episode, seconds: float) -> None:
        nonlocal began, ended, before, after, steps, taken
        taken += 1
        if taken > 1:
            steps += len(episode.steps)
        if taken == 1:
            began, before = time.perf_counter(), cpu_seconds(os.getpid())
        elif taken == episodes:
            ended, after = time.perf_counter(), cpu_seconds(os.getpid())

    policy = ExpertPolicy()
    tasks = (EpisodeTask(policy, options={"index": number % TASKS}) for number in range(episodes))
    engine.play_tasks(env_maker(env_id, kwargs, ()), tasks, take, concurrency=32 * (engine.workers or 1))
    return Rate(steps / (ended - began), (after - before) / steps)


def play_alone(env_id: str, kwargs: dict[str, Any], ready: Any, results: Any) -> None:
    """Play episodes in turn in this process, and put the rate."""
    env, policy = gym.make(env_id, **kwargs), ExpertPolicy()
    agent_envs.run_episode(env, policy, options={"index": 0})
    ready.wait()
    steps, begin, before = 0, time.perf_counter(), time.process_time()
    while (seconds := time.perf_counter() - begin) < SECONDS:
        for index in range(TASKS):
            steps += len(agent_envs.run_episode(env, policy, options={"index": index}).steps)
    results.put(Rate(steps / seconds, (time.process_time() - before) / steps))


def alone(number: int, play: Callable[..., None], *given: Any) -> Rate:
    """The rate of so many processes, each of which plays by itself: `play(*given, ready, results)`."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(number), context.Queue()
    workers = [context.Process(target=play, args=(*given, ready, results)) for _ in range(number)]
    for worker in workers:
        worker.start()
    rates = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return Rate(sum(rate.per_second for rate in rates), statistics.mean(rate.cost for rate in rates))


def show_rates(what: str, processes: int, theirs: Callable[[], Rate], ours: Callable[[Rate], Rate]) -> None:
    """Print steps per second beside those of so many processes by themselves, which `ours` is told, taking turns.

    The ratio of the processor times is that of the rates where nothing else runs and all cores are busy.
    """
    rates = [(ours(own), own) for own in (theirs() for _ in range(REPEATS))]
    ratios = [a.per_second / b.per_second for a, b in rates]
    costs = [b.cost / a.cost for a, b in rates]
    print(
        f"  {what}: {statistics.median(a.per_second for a, _ in rates):.0f} steps/s, {processes} processes by "
        f"themselves {statistics.median(b.per_second for _, b in rates):.0f}: {statistics.median(ratios):.2f} times "
        f"({min(ratios):.2f}, {max(ratios):.2f})\n"
        f"    by processor time {statistics.median(costs):.2f} times ({min(costs):.2f}, {max(costs):.2f}): "
        f"{1e6 * statistics.median(a.cost for a, _ in rates):.0f} us per step, by themselves "
        f"{1e6 * statistics.median(b.cost for _, b in rates):.0f}",
        flush=True,
    )


def show_rate(env_id: str, workers: int, engine: RayEngine, kwargs: dict[str, Any] | None = None) -> None:
    """Print steps per second on the workers beside those of as many processes."""
    kwargs = kwargs or {}
    show_rates(
        f"{env_id}, {workers} workers", workers, lambda: alone(workers, play_alone, env_id, kwargs),
        lambda own: rate(env_id, kwargs, engine, max(200, int(own.per_second * SECONDS / 8))),
    )  # fmt: skip
