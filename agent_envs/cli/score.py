"""Score stored episodes again: by replaying them, by a function, or by the metrics of paper search.

By replay, the recorded actions are taken again, each episode on its own task, in the environment named by the run.json
beside the episodes (written by `agentr1 eval` and `train`). Arguments given here replace its own, and wrappers given
here go around its own; --bare ignores run.json, and --trust lets it name code, servers and files to write. The
replay's observations are compared with the stored ones: if they differ, the arguments changed the task and not only its
reward (a generated task needs the arguments it was made with). Everything else stays as recorded, including tokens and
log-probabilities.

By module:function, the function takes each episode (agent_envs.Episode) and returns its return, or a list with the
reward of every step. The module may be in the current folder. Both write the episodes with their new rewards to --out.

By papers: precision, recall and F1 of paper search, by threshold of the score and number of papers.

examples:
  agentr1 score runs/eval --env-kwargs '{"reward": "agentr1"}' --out rescored.jsonl
  agentr1 score episodes.jsonl --wrapper "StepPenalty(penalty=0.02)" --wrapper "FormatReward" --out new.jsonl
  agentr1 score episodes.jsonl --by my_rewards:brevity --out new.jsonl      # def brevity(episode): ...
  agentr1 score runs/papers --by papers --thresholds 0,0.5 --top-k 25,10
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from agent_envs.checks import load_function
from agent_envs.cli.environments import EnvOptions, of_episode
from agent_envs.cli.options import EpisodeOptions, File, OutputOptions, option, refuse_unread
from agent_envs.episodes.record import Episode, read_episodes, stored_row
from agent_envs.episodes.rescore import Replayed, RewardFunction, replay, reward_by
from agent_envs.episodes.run_folder import episode_paths
from agent_envs.episodes.statistics import clustered_mean, estimate, grouped
from agent_envs.errors import AgentEnvsError, ConfigError, DataError, did_you_mean
from agent_envs.files import replacing
from agent_envs.pictures.folder import PictureFolder
from agent_envs.text import count_of
from agent_envs.wrapping.recorded import RecordedEnv, run_settings
from agent_envs.wrapping.specs import make_text_env

_REWARDS = "replay module:function"
_WAYS = [*_REWARDS.split(), "papers"]


@dataclass(kw_only=True)
class Options(EpisodeOptions, OutputOptions, EnvOptions):
    """What is scored, and how; `of` names the ways that read an option."""

    by: str = option("replay", f"how: {', '.join(_WAYS)}", metavar="WAY")
    out: File | None = option(None, "file for the episodes with their new rewards", of=_REWARDS)
    force: bool = option(False, "replace the file if it exists", of=_REWARDS)
    only_same: bool = option(False, "leave out episodes whose replay differs from the record", of="replay")
    bare: bool = option(False, "ignore the arguments and wrappers in run.json", of="replay")
    trust: bool = option(False, "let run.json and the episodes set anything (docs/security.md)", of="replay")
    quiet: bool = option(False, "show no progress bar", of=_REWARDS)
    thresholds: str | None = option(None, "lowest scores, such as 0,0.4 (default: 0 to 0.9)", of="papers")
    top_k: str | None = option(None, "numbers of papers, such as 100,25 (default: 10000,100,50,25)", of="papers")
    skip_errors: bool = option(False, "leave out episodes that an error ended, such as a service's", of="papers")
    json: bool = option(False, "print one JSON object instead of the table", of="papers")


def run(options: Options) -> str:
    way = "module:function" if ":" in options.by else options.by
    if way not in _WAYS:
        raise ConfigError(f"unknown --by {way!r}.{did_you_mean(way, _WAYS)}")
    refuse_unread(options, way, f"--by {options.by}", **{each.name: "replay" for each in fields(EnvOptions)})
    if way == "papers":
        from agent_envs.cli.score_papers import score_papers

        return score_papers(options)
    return _rewarded(options)


class _Row(NamedTuple):
    """An episode before and after."""

    env_id: str
    task: str
    """Episodes of one task are not independent."""
    rewards: tuple[float, float]
    success: tuple[bool, bool]


_Score = Callable[[Episode, Mapping[str, Any]], "Episode | Replayed | None"]
"""Scores an episode, with the settings of its run."""


def _rewarded(options: Options) -> str:
    """Write the episodes with their new rewards, and say what that changes."""
    if options.out is None:
        raise ConfigError(f"--by {options.by} writes episodes; give --out FILE")
    paths, out = episode_paths(options.episodes), options.output_file()
    if os.path.realpath(out) in map(os.path.realpath, paths):
        raise ConfigError(f"--out {out} is one of the input files; choose another")
    rows: list[_Row] = []
    replays: list[tuple[int, bool]] = []  # observations that differ, and whether it ended before the record did
    unchanged, pictures = 0, PictureFolder(out)
    with replacing(out) as whole, whole.open("w", encoding="ascii") as file, ExitStack() as stack:
        by_replay = options.by == "replay"
        score = _by_replay(options.given_env(), options.trust, stack) if by_replay else _by_function(options.by)
        for before, settings in _episodes(options, paths):
            after = score(before, settings)
            if isinstance(after, Replayed):
                replays.append((after.differing, bool(after.left)))
                if any(replays[-1]) and options.only_same:
                    continue
                after = after.episode
            elif after is None:
                unchanged, after = unchanged + 1, before
            task = f"{before.env_id} {before.group_id or before.episode_id}"
            rows.append(_Row(before.env_id, task, (before.reward, after.reward), (before.success, after.success)))
            file.write(json.dumps(stored_row(pictures, after)) + "\n")
        different = [each for each in replays if any(each)]
        if not rows and different:
            raise DataError(
                f"all {len(different)} replays differ from the record, so --only-same leaves no episode; give the "
                "arguments that the tasks were made with"
            )
        if not rows:
            raise DataError(f"{', '.join(options.episodes)}: no episode to score")
    lines = []
    if replays:
        same = len(replays) - len(different)
        lines.append(f"{count_of(len(replays), 'episode')} replayed, {same} with the same observations")
    if different:
        left_out = " and were left out" if options.only_same else " (--only-same leaves them out)"
        others, cuts = zip(*different, strict=True)
        lines.append(
            f"{count_of(len(different), 'replay')} with other observations, {sum(others)} in all, {sum(cuts)} by an "
            f"earlier end{left_out}; are these the arguments that the tasks were made with?"
        )
    if unchanged:
        lines.append(f"{count_of(unchanged, 'episode')} without steps kept unchanged")
    return "\n".join([*lines, str(out), "", _table(rows)])


def _table(rows: Sequence[_Row]) -> str:
    """Return a table of mean returns before and after, paired differences and success, with 95 % intervals."""
    groups = {name: [row for row in rows if row.env_id == name] for name in sorted({row.env_id for row in rows})}
    if len(groups) > 1:
        groups["all"] = list(rows)
    width = max(map(len, groups))
    head = f"{'old return':<24}  {'new return':<24}  {'difference':<25}  success, old -> new"
    lines = [f"{'':{width}}  {'episodes':>8}  {head}"]
    for name, group in groups.items():
        tasks = [row.task for row in group]
        old, new = zip(*(row.rewards for row in group), strict=True)
        means = [f"{estimate(grouped(values, tasks)).shown():<24}" for values in (old, new)]
        most = 1.0 if {*old, *new} <= {0.0, 1.0} else math.inf
        change = clustered_mean(grouped([b - a for a, b in zip(old, new, strict=True)], tasks), -most, most)
        before, after = (sum(row.success[place] for row in group) / len(group) for place in (0, 1))
        cells = [f"{name:{width}}", f"{len(group):>8}", *means, f"{change.shown('+'):<25}"]
        lines.append("  ".join([*cells, f"{before:.3f} -> {after:.3f}"]))
    return "\n".join(lines)


def _episodes(options: Options, paths: Sequence[Path]) -> Iterator[tuple[Episode, Mapping[str, Any]]]:
    """Yield every episode with the settings of its run."""
    from tqdm import tqdm

    with tqdm(unit="episode", desc="scoring", disable=options.quiet, leave=False) as bar:
        for path in paths:
            settings = {} if options.bare or options.by != "replay" else run_settings(path)
            for episode in read_episodes(path):
                yield episode, settings
                bar.update()


def _by_function(name: str) -> _Score:
    function: RewardFunction = load_function(name, what="--by")

    def score(before: Episode, settings: Mapping[str, Any]) -> Episode:
        try:
            return reward_by(function, before, name)
        except AgentEnvsError:
            raise
        except Exception as e:
            raise ConfigError(f"{name} failed on episode {before.episode_id!r}: {type(e).__name__}: {e}") from e

    return score


def _by_replay(given: RecordedEnv, trust: bool, stack: ExitStack) -> _Score:
    """Return what replays episodes, None for one without steps; `stack` closes the environments."""
    envs: dict[str, gym.Env[Any, Any]] = {}

    def score(before: Episode, settings: Mapping[str, Any]) -> Replayed | None:
        if not before.steps:
            return None
        if before.index is None and before.seed is None:
            raise DataError(f"episode {before.episode_id!r} has neither an index nor a seed, so its task is unknown")
        choice = of_episode(given, settings, before, trust=trust)
        key = repr(choice)
        if key not in envs:
            envs[key] = make_text_env(*choice)
            stack.callback(envs[key].close)
        return replay(envs[key], before)

    return score
