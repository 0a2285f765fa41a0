"""Episodes: a policy in an environment, from reset to the end; and many at once, each at its own pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import ConfigError
from agent_envs.policies.base import Policy
from agent_envs.rollout.one import EpisodeRun, close_env, supervise
from agent_envs.threads import background_loop, is_responsive, run_in_thread
from agent_envs.wrapping.order import check_stock
from agent_envs.wrapping.specs import WrapperSpec, env_maker

__all__ = ["Job", "arun_episode", "check_timeouts", "play_jobs", "run_episode", "run_episodes"]

TextEnvLike = gym.Env[Any, str]
T = TypeVar("T")


def run_episode(
    env: TextEnvLike, policy: Policy, *, seed: int | None = None, options: Mapping[str, Any] | None = None
) -> Episode:
    """Play one episode in the calling thread, where a running event loop (Jupyter) is no obstacle.

    Args:
        env: The environment; it stays open and can be used again.
        policy: Gives the actions. An async ``act`` runs on the process's background loop.
        seed: Seed of the reset, or None.
        options: Options of the reset, for example ``{"index": 3}``.

    Returns:
        The episode. An exception in the environment or the policy does not pass: the episode then has
        ``StopReason.ERROR`` and the traceback in ``error``. KeyboardInterrupt does pass.

    Raises:
        ConfigError: The environment is in one of Gymnasium's wrappers that do harm to text.
    """
    check_stock(env)
    run = EpisodeRun(env, policy, background_loop(), seed=seed, options=options)
    run.play()
    return run.episode()


async def arun_episode(
    env: TextEnvLike,
    policy: Policy,
    *,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    episode_id: str | None = None,
    group_id: str | None = None,
) -> Episode:
    """Play one episode in a thread of its own; an async ``act`` runs on the caller's event loop.

    Args:
        env: The environment. After a time-out or a cancellation it must not be used again: the thread that was left
            behind closes it when it comes back. In every other case it stays open.
        policy: Gives the actions.
        seed: Seed of the reset, or None.
        options: Options of the reset.
        step_timeout: Seconds one step may take, the policy's action included; the reset counts as a step.
        episode_timeout: Seconds the whole episode may take.
        episode_id: Name of the episode; by default a random one.
        group_id: Name shared with the episodes it is compared with; by default the task's id.

    Returns:
        The episode, as ``run_episode`` does. After a time-out it holds the steps that were completed, the
        last one marked as truncated; a pending ``act`` is cancelled, and ``error`` says where the thread was.

    Raises:
        ConfigError: A time-out is not above 0, or one of Gymnasium's wrappers does harm to text.
    """
    check_timeouts(step_timeout, episode_timeout)
    check_stock(env)
    run = EpisodeRun(
        env,
        policy,
        asyncio.get_running_loop(),
        seed=seed,
        options=options,
        episode_id=episode_id,
        group_id=group_id,
    )
    return await supervise(run, step_timeout, episode_timeout)


def run_episodes(
    env_id: str | EnvSpec | Callable[..., TextEnvLike],
    policy: Policy,
    n: int,
    *,
    seeds: int | Sequence[int | None] | None = None,
    options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperSpec] = (),
    concurrency: int = 64,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    progress: bool = True,
) -> list[Episode]:
    """Play ``n`` episodes, up to ``concurrency`` at once and never in lock-step.

    Environments are used again from episode to episode, and replaced after an error or a time-out. Works in a
    script and where an event loop is already running.

    Args:
        env_id: What ``gymnasium.make`` takes ("Id", "module:Id" or an EnvSpec), or a function that makes an
            environment.
        policy: Gives the actions; its ``start`` is called from many threads.
        n: Number of episodes.
        seeds: One seed for all, or one per episode; None means seed i for episode i.
        options: Reset options for all, or one mapping (or None) per episode.
        env_kwargs: Keyword arguments for the environment.
        wrappers: Applied in order, the last one outermost: "Name(key=value)", or functions from env to env.
        concurrency: Episodes played at the same time, each in a thread.
        step_timeout: Seconds one step may take, the policy's action included. Making the environment and the
            reset count as one step; the first environment is made beforehand.
        episode_timeout: Seconds an episode may take.
        progress: Whether to show a progress bar with the mean success so far.

    Returns:
        The episodes in the order of their seeds and options, however they ended.

    Raises:
        ConfigError: Arguments do not fit.
        gymnasium.error.Error: There is no such id.
        Exception: What making the first environment raised. A later one is an episode with
            ``StopReason.ERROR``.
    """
    for name, number, least in (("n", n, 0), ("concurrency", concurrency, 1)):
        if not isinstance(number, (int, np.integer)) or number < least:
            raise ConfigError(f"{name} must be an integer of at least {least}, got {number!r}")
    if isinstance(policy, type):
        raise ConfigError(
            f"policy is an object with start(), got the class {policy.__name__}; write {policy.__name__}()"
        )
    check_timeouts(step_timeout, episode_timeout)
    episode_seeds = _per_episode("seeds", range(n) if seeds is None else seeds, int, n)
    episode_options = _per_episode("options", options, Mapping, n)
    for seed in episode_seeds:
        if seed is not None and seed < 0:
            raise ConfigError(f"seeds must be at least 0, got {seed}")
    make_env = env_maker(env_id, dict(env_kwargs or {}), wrappers)
    if n == 0:
        return []
    episodes: list[Episode | None] = [None] * n
    solved = 0

    def take(number: int, episode: Episode, seconds: float) -> None:
        nonlocal solved
        episodes[number] = episode
        solved += episode.success
        bar.set_postfix(success=f"{solved / (bar.n + 1):.3f}", refresh=False)
        bar.update()

    from tqdm import tqdm

    jobs = [Job(policy, episode_seeds[i], episode_options[i]) for i in range(n)]
    with tqdm(total=n, disable=not progress, unit="episode") as bar:
        play_jobs(
            make_env, jobs, take, concurrency=min(n, concurrency), step_timeout=step_timeout,
            episode_timeout=episode_timeout,
        )  # fmt: skip
    return [episode for episode in episodes if episode is not None]


@dataclass(frozen=True, slots=True)
class Job:
    """An episode to be played."""

    policy: Policy
    """Gives the actions."""
    seed: int | None = None
    """Seed of the reset."""
    options: Mapping[str, Any] | None = None
    """Options of the reset."""
    episode_id: str | None = None
    """Name of the episode; None for a random one."""
    group_id: str | None = None
    """Name shared with the episodes it is compared with; None for the task's id."""


def play_jobs(
    make_env: Callable[[], TextEnvLike],
    jobs: Iterable[Job],
    take: Callable[[int, Episode, float], None],
    *,
    concurrency: int,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
) -> None:
    """Play episodes, up to ``concurrency`` at once, and hand each over as it ends.

    Args:
        make_env: Makes an environment in its wrappers. Environments are used again from episode to episode, and
            replaced after an error or a time-out. The first is made at once, and its errors pass.
        jobs: The episodes, read one at a time as places become free.
        take: Gets the number of the job, its episode and the seconds it took, from one thread; what it raises
            ends everything.
        concurrency: Episodes played at the same time, each in a thread.
        step_timeout: Seconds one step may take.
        episode_timeout: Seconds an episode may take.
    """
    first_env = make_env()
    order = enumerate(jobs)

    async def slot(env: TextEnvLike | None) -> None:
        for number, job in order:  # shared by all slots: whoever is free takes the next episode at once
            while True:
                run = EpisodeRun(
                    make_env if env is None else env,
                    job.policy,
                    background_loop(),
                    seed=job.seed,
                    options=job.options,
                    episode_id=job.episode_id,
                    group_id=job.group_id,
                    close_on_error=True,
                )
                episode = await supervise(run, step_timeout, episode_timeout)
                env = None if episode.stop_reason.broken else run.env
                if not await _held_up_by_another(run, episode):
                    break
            take(number, episode, time.monotonic() - run.started)
        if env is not None:
            closing = asyncio.wrap_future(run_in_thread(close_env, env))
            await asyncio.wait({closing}, timeout=step_timeout)

    async def play_all() -> None:
        envs = [first_env] + [None] * (concurrency - 1)
        slots = [asyncio.create_task(slot(env)) for env in envs]
        try:
            await asyncio.gather(*slots)
        finally:
            for task in slots:
                task.cancel()
            await asyncio.gather(*slots, return_exceptions=True)

    _run_apart(play_all())


async def _held_up_by_another(run: EpisodeRun, episode: Episode) -> bool:
    """Whether the episode ran out of time because another's async ``act`` blocks their loop; it is then played again.

    Episodes that begin from now on get a new loop.
    """
    if episode.stop_reason not in (StopReason.STEP_TIMEOUT, StopReason.EPISODE_TIMEOUT):
        return False
    guilty = run.blocks_loop()
    if await asyncio.wrap_future(run_in_thread(is_responsive, run.loop)):
        return False
    background_loop(replace=run.loop)
    return not guilty


def _run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` in a daemon thread, which works where this thread runs a loop already.

    Time-outs stay exact when an async tool or policy blocks the background loop, which is not the loop here.
    An interrupt of the wait cancels the coroutine.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)

    def target() -> None:
        try:
            loop.run_until_complete(asyncio.wait({task}))
        finally:
            loop.close()

    done = run_in_thread(target)
    try:
        done.result()
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        raise
    return task.result()


def _per_episode(name: str, value: Any, single: type, n: int) -> list[Any]:
    """One value per episode: a single one (or None) for all, or a sequence of n."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, single):
        return [value] * n
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ConfigError(f"{name} is one {single.__name__} for all or a sequence of {n}, got {value!r:.80}")
    if len(value) != n:
        raise ConfigError(f"{name} has {len(value)} entries for n={n} episodes")
    for entry in value:
        if entry is not None and not isinstance(entry, single):
            raise ConfigError(f"{name} holds {single.__name__} or None per episode, got {entry!r:.80}")
    return list(value)


def check_timeouts(step_timeout: float | None, episode_timeout: float | None) -> None:
    """Refuse what is no time-out.

    Raises:
        ConfigError: One is not above 0.
    """
    for name, seconds in (("step_timeout", step_timeout), ("episode_timeout", episode_timeout)):
        if seconds is not None and not seconds > 0:
            raise ConfigError(f"{name} must be above 0 seconds or None, got {seconds!r}")
