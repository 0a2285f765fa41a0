"""Plays episodes in threads of this process: the default engine, and what every engine plays one episode with."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from agent_envs.episodes.record import Episode, StopReason
from agent_envs.rollout.episode_run import EpisodeRun, EpisodeTask, TextEnvLike, close_env
from agent_envs.rollout.one import supervise
from agent_envs.threads import background_loop, is_responsive, run_in_thread

T = TypeVar("T")


def play_tasks(
    make_env: Callable[[], TextEnvLike],
    tasks: Iterable[EpisodeTask],
    take: Callable[[int, Episode, float], None],
    *,
    concurrency: int,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    first_env: TextEnvLike | None = None,
) -> None:
    """Play episodes, up to `concurrency` at once, and hand each over as it ends.

    Args:
        make_env: Makes an environment; they are reused as by `run_episodes`. The first is made at once, and its errors
            are raised.
        tasks: The episodes to play, read one at a time as slots become free.
        take: Gets the number of the task, its episode and the seconds it took, always from the same thread; an
            exception in it ends everything.
        concurrency, step_timeout, episode_timeout: As for `run_episodes`.
        first_env: An environment that is there already; it is used, and closed in the end.
    """
    first_env = make_env() if first_env is None else first_env
    order = enumerate(tasks)

    async def slot(env: TextEnvLike | None) -> None:
        for number, task in order:  # shared by all slots: whichever is free takes the next episode
            episode, env, began = await play_one(make_env, env, task, step_timeout, episode_timeout)
            take(number, episode, time.monotonic() - began)
        if env is not None:
            closing = asyncio.wrap_future(run_in_thread(close_env, env))
            await asyncio.wait({closing}, timeout=step_timeout)

    run_slots(slot(env) for env in [first_env] + [None] * (concurrency - 1))


def run_slots(slots: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side on a loop of their own; the first error cancels the others and is raised."""

    async def run_all() -> None:
        tasks = [asyncio.create_task(slot) for slot in slots]
        try:
            await asyncio.gather(*tasks)
        finally:
            for waiting in tasks:
                waiting.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    _run_apart(run_all())


async def play_one(
    make_env: Callable[[], TextEnvLike],
    env: TextEnvLike | None,
    task: EpisodeTask,
    step_timeout: float | None,
    episode_timeout: float | None,
) -> tuple[Episode, TextEnvLike | None, float]:
    """Play an episode in an environment or, without one, in one that is made for it.

    Returns:
        The episode, the environment if it can be used again, and when the episode began (`time.monotonic`).
    """
    while True:
        run = EpisodeRun(make_env if env is None else env, task, background_loop(), close_on_error=True)
        episode = await supervise(run, step_timeout, episode_timeout)
        env = None if episode.stop_reason.broken else run.env
        if not await _held_up_by_another(run, episode):
            return episode, env, run.started


async def _held_up_by_another(run: EpisodeRun, episode: Episode) -> bool:
    """Return whether the episode ran out of time only because another's async `act` blocks the loop they share.

    It is then played again. Episodes that begin from now on get a new loop.
    """
    if episode.stop_reason not in (StopReason.STEP_TIMEOUT, StopReason.EPISODE_TIMEOUT):
        return False
    guilty = run.blocks_loop()
    if await asyncio.wrap_future(run_in_thread(is_responsive, run.loop)):
        return False
    background_loop(replace=run.loop)
    return not guilty


def _run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new loop in a daemon thread, which works where this thread already runs a loop.

    Time-outs stay exact when an async tool or policy blocks the background loop, which is another one. An interrupt of
    the wait cancels the coroutine.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)

    def target() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(asyncio.wait({task}))
        finally:  # a KeyboardInterrupt in the coroutine ended the loop, and was raised by it
            if not task.cancelled():
                task.exception()

    done = run_in_thread(target)
    try:
        done.result()
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(task.cancel)
        raise
    return task.result()
