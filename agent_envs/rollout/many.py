"""Play many episodes at once, each at its own pace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec

from agent_envs import checks
from agent_envs.agents.loading import Agent, Score, with_agent
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.errors import BackendError, ConfigError, what_failed
from agent_envs.policies.policy import PolicyLike
from agent_envs.rollout.episode_run import EpisodeTask
from agent_envs.rollout.one import TextEnvLike, check_timeouts, play_tasks
from agent_envs.rollout.ray_engine import RayEngine
from agent_envs.wrapping.specs import WrapperSpec, env_maker

FIRST_EPISODES = 8
"""If this many episodes end first and all with an error, something is broken for all of them."""

_log = logging.getLogger(__name__)


def run_episodes(
    env_id: str | EnvSpec | Callable[..., TextEnvLike],
    policy: PolicyLike,
    n: int,
    *,
    agent: str | Agent | None = None,
    score: str | Score | None = None,
    group: int = 1,
    seeds: int | Sequence[int | None] | None = None,
    options: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperSpec] = (),
    concurrency: int = 64,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    on_error: Literal["raise", "record"] | None = None,
    engine: Literal["threads", "ray"] | RayEngine = "threads",
    progress: bool = True,
) -> list[Episode]:
    """Play `n` episodes, or `n` groups of them, up to `concurrency` at once and never in lock-step.

    Environments are reused from episode to episode and replaced after an error or a time-out. Works in scripts and
    where an event loop is already running.

    Args:
        env_id: What `gymnasium.make` takes ("Id", "module:Id" or an EnvSpec), or a function that makes an environment.
        policy: Chooses the actions: a policy, whose `start` is called from many threads, or a function from an
            observation to an action.
        n: Number of episodes, each with a seed and options of its own.
        agent: Plays them with the policy's model: a function `agent(env, model)`, or its name. None for a loop of one
            call per step.
        score: As in `run_episode`.
        group: How many times each of them is played, side by side: with the same seed and options, and so one task and
            one `group_id`. A policy that draws should draw again each time.
        seeds: One seed for all, or one per episode; None means seed i for episode i.
        options: Reset options for all, or one mapping (or None) per episode.
        env_kwargs: Keyword arguments for the environment.
        wrappers: Applied in order, the last one outermost: "Name(key=value)", or functions from env to env.
        concurrency: Episodes played at the same time, each in a thread.
        step_timeout: Seconds one step may take, the policy's action included. Making the environment and resetting it
            count as one step; the first environment is made beforehand.
        episode_timeout: Seconds an episode may take.
        on_error: What an exception in the environment or the policy does. "record": it ends its episode, which has
            `StopReason.ERROR` and the traceback in `error`. "raise": it ends the call. None: it is recorded, unless
            the first episodes (8, or all of fewer) all end so. The number of errors is logged at the end.
        engine: Where they are played: "threads" of this process, or "ray", the workers of a Ray cluster; a `RayEngine`
            says which cluster and how many workers. A policy that tells the episodes of one task apart by their number
            counts them on each worker.
        progress: Whether to show a progress bar with the mean success and the number of errors so far.

    Returns:
        The episodes in the order of their seeds and options, those of a group one after the other, however they ended.

    Raises:
        ConfigError: An argument is wrong, `policy` is none, or there is no such id.
        BackendError: Episodes ended with an error and `on_error` does not record it.
        Exception: What making the first environment raised. If a later one fails, its episode has `StopReason.ERROR`.
    """
    checks.integer("n", n, minimum=0)
    checks.integer("group", group, minimum=1)
    checks.integer("concurrency", concurrency, minimum=1)
    played = with_agent(policy, agent, score)
    checks.choice("on_error", on_error, ("raise", "record", None))
    check_timeouts(step_timeout, episode_timeout)
    episode_seeds = _per_episode("seeds", range(n) if seeds is None else seeds, int, n)
    episode_options = _per_episode("options", options, Mapping, n)
    for seed in episode_seeds:
        if seed is not None:
            checks.integer("a seed", seed, minimum=0)
    play_all = player_of(engine)
    make_env = env_maker(env_id, env_kwargs, wrappers)
    if n == 0:
        return []
    tasks = [EpisodeTask(played, *each) for each in zip(episode_seeds, episode_options, strict=True)]
    tasks = [task for task in tasks for _ in range(group)]
    count = len(tasks)
    episodes: list[Episode | None] = [None] * count
    ended, solved, errors = 0, 0, []

    def take(number: int, episode: Episode, seconds: float) -> None:
        nonlocal ended, solved
        episodes[number] = episode
        ended += 1  # a disabled bar does not count
        solved += episode.success
        if episode.stop_reason is StopReason.ERROR:
            errors.append((episode.error or "").strip())
            first = len(errors) == ended >= min(count, FIRST_EPISODES)
            if on_error == "raise" or (first and on_error is None):
                many = "an episode" if len(errors) == 1 else f"the first {len(errors)} episodes all"
                raise BackendError(f"{many} ended with an error; on_error='record' keeps such episodes:\n{errors[-1]}")
        counts = {"errors": len(errors)} if errors else {}
        bar.set_postfix(success=f"{solved / ended:.3f}", **counts, refresh=False)
        bar.update()

    from tqdm import tqdm

    with tqdm(total=count, disable=not progress, unit="episode") as bar:
        limits = {"step_timeout": step_timeout, "episode_timeout": episode_timeout}
        play_all(make_env, tasks, take, concurrency=min(count, concurrency), **limits)
    if errors:
        last = what_failed(errors[-1])
        _log.warning("%d of %d episodes ended with an error, the last with: %s", len(errors), count, last)
    return [episode for episode in episodes if episode is not None]


def player_of(engine: Literal["threads", "ray"] | RayEngine) -> Callable[..., None]:
    """Return what plays episodes on an engine, with the arguments of `agent_envs.rollout.one.play_tasks`.

    Another engine is a ConfigError.
    """
    if isinstance(engine, RayEngine):
        return engine.play_tasks
    checks.choice("engine", engine, ("threads", "ray"))
    return play_tasks if engine == "threads" else RayEngine().play_tasks


def _per_episode(name: str, value: Any, single: type, n: int) -> list[Any]:
    """Return one value per episode, from a single one (or None) for all or a sequence of n."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, single):
        return [value] * n
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ConfigError(
            f"{name} must be one {single.__name__} for all or a sequence of {n}, got {checks.shown(value)}"
        )
    if len(value) != n:
        raise ConfigError(f"{name} has {len(value)} entries for n={n} episodes")
    for entry in value:
        if entry is not None and not isinstance(entry, single):
            raise ConfigError(f"{name} must hold {single.__name__} or None for each episode, got {checks.shown(entry)}")
    return list(value)
