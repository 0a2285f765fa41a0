"""Play one episode, `run_episode` in the calling thread and `arun_episode` in a thread of its own, or several at once.

Nothing polls: a time-out is a timer that is set again when the step that it was set for is over. Several are the
default engine; every engine plays one episode in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from agent_envs import checks
from agent_envs.agents.loading import Agent, Score, with_agent
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.policies.policy import PolicyLike
from agent_envs.rollout.episode_run import EpisodeRun, EpisodeTask, TextEnvLike, close_env
from agent_envs.threads import background_loop, is_responsive, run_in_thread
from agent_envs.wrapping.order import check_stock


def run_episode(
    env: TextEnvLike, policy: PolicyLike, *, seed: int | None = None, options: Mapping[str, Any] | None = None,
    agent: str | Agent | None = None,
    score: str | Score | None = None,
) -> Episode:  # fmt: skip
    """Play one episode in the calling thread; a running event loop (Jupyter) does not get in the way.

    Args:
        env: The environment; it stays open and can be used again.
        policy: Chooses the actions: a policy, or a function from an observation to an action. What is async runs on
            the process's background loop.
        seed: Seed of the reset, or None.
        options: Options of the reset, for example `{"index": 3}`.
        agent: Plays the episode with the policy's model: a function `agent(env, model)`, or its name. None for a loop
            of one call per step.
        score: A function `score(episode, env, workdir)`, or its name, whose number is added to the reward of the last
            reply when nothing of the agent runs any more; the episode is solved if it is at least 1.

    Returns:
        The episode. An exception in the environment or the policy is not raised: the episode then has
        `StopReason.ERROR` and the traceback in `error`. KeyboardInterrupt is raised.

    Raises:
        ConfigError: `policy` is none, or the environment is in one of Gymnasium's wrappers that break text.
    """
    check_stock(env)
    run = EpisodeRun(env, EpisodeTask(with_agent(policy, agent, score), seed, options), background_loop())
    run.play()
    return run.episode()


async def arun_episode(
    env: TextEnvLike,
    policy: PolicyLike,
    *,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    episode_id: str | None = None,
    group_id: str | None = None,
    agent: str | Agent | None = None,
    score: str | Score | None = None,
) -> Episode:
    """Play one episode in a thread of its own; an async `act` runs on the caller's event loop.

    Args:
        env: The environment. After a time-out or a cancellation, do not use it again: the abandoned thread closes it
            when it returns. In every other case it stays open.
        step_timeout: Seconds one step may take, the policy's action included; the reset counts as a step.
        episode_timeout: Seconds the whole episode may take.
        episode_id: The episode's name; a random one by default.
        group_id: A name shared with the episodes it is compared with; the task's id by default.
        agent, score: As in `run_episode`.

    Returns:
        The episode, as from `run_episode`. After a time-out it holds the completed steps, the last one marked as
        truncated; a pending `act` is cancelled, and `error` says where the thread was.

    Raises:
        ConfigError: `policy` is none, a time-out is not above 0, or one of Gymnasium's wrappers breaks text.
    """
    check_timeouts(step_timeout, episode_timeout)
    check_stock(env)
    task = EpisodeTask(with_agent(policy, agent, score), seed, options, episode_id, group_id)
    run = EpisodeRun(env, task, asyncio.get_running_loop())
    return await supervise(run, step_timeout, episode_timeout)


def check_timeouts(step_timeout: float | None, episode_timeout: float | None) -> None:
    """Raise a ConfigError if a time-out is neither None nor above 0."""
    for name, seconds in (("step_timeout", step_timeout), ("episode_timeout", episode_timeout)):
        if seconds is not None and seconds != float("inf"):
            checks.number(name, seconds, above=0)


async def supervise(run: EpisodeRun, step_timeout: float | None, episode_timeout: float | None) -> Episode:
    """Play a run in a daemon thread; return its episode at its end or at a time-out, whichever comes first."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def report() -> None:
        if not ended.done():
            ended.set_result(None)

    def target() -> None:
        run.play_apart()
        with contextlib.suppress(RuntimeError):  # the loop is closed: whoever waited was cancelled
            loop.call_soon_threadsafe(report)

    run_in_thread(target)
    try:
        while not ended.done():
            reason, seconds = run.time_left(step_timeout, episode_timeout)
            if seconds is not None and seconds <= 0:
                if run.abandon():
                    return run.episode(reason)
                seconds = None  # it has just ended and is about to report
            if seconds is None:
                await ended  # takes less memory than `asyncio.wait`, while thousands of episodes are played
            else:
                await asyncio.wait({ended}, timeout=seconds)
    except asyncio.CancelledError:
        run.abandon()
        raise
    return run.episode()


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
    """Run coroutines side by side; the first error, or an interrupt of the wait, cancels the others and is raised.

    They run on a loop of their own in a daemon thread. So this thread may run a loop already, and time-outs stay exact
    when an async tool or policy blocks the background loop.
    """

    async def run_all() -> None:
        tasks = [asyncio.create_task(slot) for slot in slots]
        try:
            await asyncio.gather(*tasks)
        finally:
            for waiting in tasks:
                waiting.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    loop = asyncio.new_event_loop()
    task = loop.create_task(run_all())

    def target() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(asyncio.wait({task}))
        finally:  # a KeyboardInterrupt in a coroutine ended the loop, and was raised by it
            if not task.cancelled():
                task.exception()

    done = run_in_thread(target)
    try:
        done.result()
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(task.cancel)
        raise
    task.result()


async def play_one(
    make_env: Callable[[], TextEnvLike],
    env: TextEnvLike | None,
    task: EpisodeTask,
    step_timeout: float | None,
    episode_timeout: float | None,
) -> tuple[Episode, TextEnvLike | None, float]:
    """Play an episode in an environment or, without one, in one that is made for it.

    Return it, the environment if it can be used again, and when the episode began (`time.monotonic`).
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
