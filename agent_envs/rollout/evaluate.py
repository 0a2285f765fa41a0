"""Evaluates a policy on tasks of an environment; a folder keeps the episodes, so that a stopped evaluation resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from agent_envs import checks
from agent_envs.agents.loading import Agent, Score, with_agent
from agent_envs.episodes.record import Episode, StopReason
from agent_envs.episodes.run_folder import EpisodeLog
from agent_envs.errors import BackendError, ConfigError, TaskIndexError
from agent_envs.policies.policy import PolicyLike
from agent_envs.registration import versions
from agent_envs.rollout.episode_run import EpisodeTask, close_env
from agent_envs.rollout.evaluation import EpisodeScore, Evaluation, Prices, score_episode
from agent_envs.rollout.many import FIRST_EPISODES, player_of
from agent_envs.rollout.one import check_timeouts
from agent_envs.rollout.panel import PANEL_FILE, Panel, named, panel_of, read_panel
from agent_envs.rollout.ray_engine import RayEngine
from agent_envs.text_env import TextEnv
from agent_envs.wrapping.specs import WrapperSpec, env_maker


def evaluate(
    env_id: str | EnvSpec | Callable[..., gym.Env[Any, str]],
    policy: PolicyLike | Sequence[PolicyLike],
    n: int | None = 100,
    *,
    agent: str | Agent | None = None,
    score: str | Score | None = None,
    samples: int = 1,
    indices: Sequence[int] | None = None,
    panel: Panel | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperSpec] = (),
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    retry_errors: bool = False,
    concurrency: int = 64,
    step_timeout: float | None = None,
    episode_timeout: float | None = None,
    token_budget: int | None = None,
    give_up_after: int | None = 100,
    prices: Prices | None = None,
    engine: Literal["threads", "ray"] | RayEngine = "threads",
    progress: bool = False,
) -> Evaluation:
    """Play tasks of a split with a policy and summarise the results.

    `env_id`, `env_kwargs`, `wrappers`, `concurrency`, `engine` and the time-outs are those of `run_episodes`.

    Args:
        policy: Chooses the actions. If it draws, give one per sample, or all samples of a task are the same.
        n: Tasks drawn from the split without repeats; a larger number adds tasks to the same ones. None for all.
        agent, score: As in `run_episodes`.
        samples: Episodes per task, for pass@k.
        indices: The tasks, instead of drawn ones.
        panel: The tasks, instead of drawn ones: those of another evaluation, which must be the same on this machine.
        seed: Seed of the drawing of tasks; sample i resets its environment with seed + i.
        out: Folder for `episodes.jsonl`, `run.json` and `summary.json`. The same call resumes a stopped evaluation, and
            so does one with more tasks or samples. Without a folder the episodes are in the result.
        settings: Further settings that must not change when the folder is resumed, such as the policy's name.
        retry_errors: Whether to replay episodes in the folder that an error or a time-out ended.
        token_budget: Start no more episodes once this many tokens are used, those in the folder included.
        give_up_after: Stop after this many broken episodes in a row, or where the first ones (8, or all of fewer) all
            break; None for never.
        prices: What tokens cost.
        progress: Whether to show a progress bar with success, tokens and errors so far.

    Returns:
        The evaluation of all requested episodes that were played, now or earlier.

    Raises:
        ConfigError: An argument is wrong, `policy` is none, the tasks are not those of `panel`, or the folder holds an
            evaluation with other settings.
        TaskIndexError: An index is outside the split.
        BackendError: It gave up because of errors; the folder has the episodes that were played.
    """
    began = time.monotonic()
    limits = {"token_budget": token_budget, "give_up_after": give_up_after}
    for name, number in {"n": n, "samples": samples, "concurrency": concurrency, **limits}.items():
        if number is not None:
            checks.integer(name, number, minimum=1)
    checks.integer("seed", seed, minimum=0)
    if panel is not None and indices is not None:
        raise ConfigError("give either indices or panel")
    if panel is not None and not isinstance(panel, Panel):
        raise ConfigError(f"panel must be a Panel, as read_panel(path) returns one, got {checks.shown(panel)}")
    if out is not None and not isinstance(out, (str, os.PathLike)):
        raise ConfigError(f"out must be the path of a folder, got {checks.shown(out)}")
    check_timeouts(step_timeout, episode_timeout)
    play_all = player_of(engine)
    several = isinstance(policy, Sequence) and not isinstance(policy, str)
    choices: Any = policy if several else [policy] * samples
    policies = [with_agent(each, agent, score) for each in choices]
    if len(policies) != samples:
        raise ConfigError(f"policy must be one for all or one per sample: expected {samples}, got {len(policies)}")
    make_env = env_maker(env_id, env_kwargs, wrappers)
    spare = [make_env()]  # the first environment, until it plays
    with ExitStack() as stack:
        stack.callback(lambda: close_env(spare.pop()) if spare else None)
        chosen = _chosen_tasks(spare[0], n, indices if panel is None else list(panel.tasks), seed)
        played = panel_of(spare[0], chosen, env_id, env_kwargs or {}, wrappers)
        if panel is not None and (differences := panel.differences(played, "in the panel", "here")):
            raise ConfigError(f"this is not panel {panel.name}: {'; '.join(differences)}")
        all_settings = {
            "env": named(env_id),
            "env_kwargs": {**(env_id.kwargs if isinstance(env_id, EnvSpec) else {}), **(env_kwargs or {})},
            "wrappers": [named(wrapper) for wrapper in wrappers],
            "seed": seed,
            **(settings or {}),
            "versions": versions(named(env_id)),
        }
        wanted = {f"{i}/{k}": (i, k) for i in chosen for k in range(samples)}
        scores: dict[str, EpisodeScore] = {}
        episodes: dict[str, Episode] = {}
        for check in {check for each in choices if (check := getattr(each, "check_server", None))}:
            check()  # takes seconds, where episodes would try again and again
        log = None if out is None else stack.enter_context(EpisodeLog(out, all_settings))
        if log is not None:
            _keep_panel(log, played)
            if retry_errors:
                log.drop(lambda episode: episode.stop_reason.broken and episode.episode_id in wanted)
            for episode, row in log.read():
                if episode.episode_id in wanted:
                    seconds = checks.number(f"{log.folder}: seconds", row.get("seconds", 0.0))
                    scores[episode.episode_id] = score_episode(episode, seconds)
        missing = [name for name in wanted if name not in scores]
        tally = _Tally(token_budget, give_up_after, first=min(len(missing), FIRST_EPISODES))
        for earlier in scores.values():
            tally.add(earlier)
        tally.in_a_row = tally.gave_up = 0  # those that were played earlier are no reason to give up

        def tasks() -> Iterator[EpisodeTask]:
            for name in missing:
                if tally.over:
                    return
                index, sample = wanted[name]
                yield EpisodeTask(policies[sample], seed + sample, {"index": index}, name)

        def take(number: int, episode: Episode, seconds: float) -> None:
            if episode.stop_reason is StopReason.RUN_BUDGET:
                tally.spent = True  # the run ended it: it is played again once there is a budget
                return
            if log is None:
                episodes[episode.episode_id] = episode
            else:
                log.append(episode, seconds=round(seconds, 3))
            score = scores[episode.episode_id] = score_episode(episode, seconds)
            tally.add(score)
            bar.set_postfix(tally.shown(), refresh=False)
            bar.update()

        from tqdm import tqdm

        with tqdm(total=len(wanted), initial=len(scores), disable=not progress, unit="episode") as bar:
            bar.set_postfix(tally.shown(), refresh=False)
            if missing and not tally.over:
                play_all(
                    make_env, tasks(), take, concurrency=min(concurrency, len(missing)), step_timeout=step_timeout,
                    episode_timeout=episode_timeout, first_env=spare.pop(),
                )  # fmt: skip
        evaluation = Evaluation(
            settings=all_settings,
            asked=len(wanted),
            panel=played,
            scores=[scores[name] for name in wanted if name in scores],
            samples=samples,
            prices=prices,
            wall_seconds=time.monotonic() - began,
            episodes=[episodes[name] for name in wanted if name in episodes],
            folder=None if log is None else log.folder,
        )
        if log is not None:
            log.save("summary.json", evaluation.to_dict())
        if tally.gave_up:
            raise BackendError(
                f"gave up after {tally.gave_up} broken episodes in a row, the last with: "
                f"{tally.last_error[:500]}" + ("" if log is None else f"; the episodes are in {log.folder}")
            )
        return evaluation


def _chosen_tasks(env: gym.Env[Any, str], n: int | None, indices: Sequence[int] | None, seed: int) -> Sequence[int]:
    count = env.unwrapped.num_tasks if isinstance(env.unwrapped, TextEnv) else None
    if indices is not None:
        unique = list(dict.fromkeys(checks.integer("each of indices", index) for index in indices))
        if not unique:
            raise ConfigError("indices is empty; name the tasks to play")
        if outside := [i for i in unique if i < 0 or (count is not None and i >= count)]:
            end = "" if count is None else f" to {count - 1}"
            raise TaskIndexError(f"the split has tasks 0{end}, got index {outside[0]}")
        return unique
    if count is None:
        if n is None:
            raise ConfigError("this environment does not say how many tasks it has: give n or indices")
        return range(n)
    return np.random.default_rng(seed).permutation(count)[: count if n is None else n].tolist()


def _keep_panel(log: EpisodeLog, panel: Panel) -> None:
    """Write the panel into the folder, unless what was played there is something else by now."""
    if (log.folder / PANEL_FILE).exists():
        earlier = read_panel(log.folder)
        if differences := earlier.differences(panel, "in the folder", "now", common=True):
            raise ConfigError(
                f"{log.folder} holds episodes of other tasks: {'; '.join(differences)}; choose another folder"
            )
        if earlier == panel:
            return
    log.save(PANEL_FILE, panel.to_dict())


class _Tally:
    def __init__(self, token_budget: int | None, give_up_after: int | None, first: int) -> None:
        self._token_budget, self._give_up_after, self._first = token_budget, give_up_after, first
        self._played = self._solved = self._errors = self._tokens = 0
        self.in_a_row = self.gave_up = 0  # broken episodes, now and when it gave up
        self.spent, self.last_error = False, ""

    @property
    def over(self) -> bool:
        return self.gave_up > 0 or self.spent or (self._token_budget is not None and self._tokens >= self._token_budget)

    def add(self, score: EpisodeScore) -> None:
        self._played += 1
        self._solved += score.success
        self._tokens += score.tokens[0] + score.tokens[1]
        if not score.stop_reason.broken:
            self.in_a_row = 0
            return
        self._errors += 1
        self.in_a_row += 1
        self.last_error = score.error
        if self._give_up_after is not None:
            most = min(self._first, self._give_up_after) if self._errors == self._played else self._give_up_after
            if self.in_a_row >= most:
                self.gave_up = self.gave_up or self.in_a_row

    def shown(self) -> dict[str, str]:
        counted = self._played - self._errors
        rows = {
            "success": f"{self._solved / counted:.3f}" if counted else "-",
            "tokens": f"{self._tokens:,}" if self._tokens else "",
            "errors": f"{self._errors or ''}",
        }
        return {name: text for name, text in rows.items() if text}
