"""`agentr1 rescore`: give stored episodes another reward and show what that changes."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs.checks import load_function
from agent_envs.cli.arguments import (
    EnvChoice,
    add_env_arguments,
    add_episodes,
    add_output_arguments,
    output_file,
)
from agent_envs.cli.engines import add_engine_arguments, chosen_engine
from agent_envs.cli.replays import episode_choice, given_env
from agent_envs.episodes.files import episode_paths, read_records
from agent_envs.episodes.record import Episode, stored_row
from agent_envs.episodes.rescore import Replayed, RewardFunction, replay, reward_by
from agent_envs.episodes.statistics import clustered_mean, estimate, grouped
from agent_envs.errors import AgentEnvsError, ConfigError, DataError
from agent_envs.files import replacing
from agent_envs.pictures.folder import PictureFolder
from agent_envs.wrapping.recorded import run_settings

__all__ = ["Comparison", "add_arguments", "run"]

_EPILOG = """\
Without --reward, the recorded actions are replayed, each episode on its own task, in the environment named by the
run.json beside the episodes (written by `agentr1 eval` and `train`). Arguments given here replace its own, and wrappers
given here go around its own; --bare ignores run.json, and --trust lets it name code, servers and files to write. The
replay's observations are compared with the stored ones: if they differ, the arguments changed the task and not only its
reward (a generated task needs the arguments it was made with). Everything else stays as recorded, including tokens and
log-probabilities.

With --reward module:function, the function takes each episode (agent_envs.Episode) and returns its return, or a list
with the reward of every step. The module may lie in the current folder.

examples:
  agentr1 rescore runs/eval --env-kwargs '{"reward": "agentr1"}' --out rescored.jsonl
  agentr1 rescore episodes.jsonl --wrapper "StepPenalty(penalty=0.02)" --wrapper "FormatReward" --out new.jsonl
  agentr1 rescore episodes.jsonl --reward my_rewards:brevity --out new.jsonl      # def brevity(episode): ...
  agentr1 rescore episodes.jsonl --env my_task:Me/MyTask-v0 --env-kwargs '{"process_reward": 0.2}' --out new.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_episodes(parser)
    add_output_arguments(parser, "file for the episodes with their new rewards")
    add("--reward", metavar="MODULE:FUNCTION", help="a function of the episode instead of a replay")
    add("--only-same", action="store_true", help="leave out episodes whose replay differs from the record")
    add("--bare", action="store_true", help="ignore the arguments and wrappers in run.json")
    add("--trust", action="store_true", help="let run.json and the episodes set anything (docs/security.md)")
    add("--quiet", action="store_true", help="show no progress bar")
    add_engine_arguments(parser)
    recorded = "as recorded"
    add_env_arguments(parser, env=recorded, split=recorded, data=recorded)


_Stored = tuple[Episode, Mapping[str, Any]]
"""An episode and the settings of its run."""


@dataclass
class Comparison:
    """Old and new returns, and how the replays went."""

    old: dict[str, list[float]] = field(default_factory=dict)
    """Returns as stored, by environment."""
    new: dict[str, list[float]] = field(default_factory=dict)
    """Returns now, by environment."""
    solved: dict[str, list[bool]] = field(default_factory=dict)
    """Whether each episode succeeded, as stored and now in turn, by environment."""
    tasks: dict[str, list[str]] = field(default_factory=dict)
    """The task of each episode, by environment; episodes of one task are not independent."""
    replayed: int = 0
    different: int = 0
    """Replays in which an observation differed, or that ended before the record did."""
    observations: int = 0
    cut: int = 0
    """Episodes whose replay ended before the record did."""
    kept: int = 0
    """Episodes without steps, which are left unchanged."""

    def take(self, before: Episode, after: Episode | Replayed | None, only_same: bool) -> Episode | None:
        """Count an episode and what became of it; return what is kept of it, if anything."""
        if after is None:
            self.kept += 1
            after = before
        if isinstance(after, Replayed):
            differs = bool(after.differing or after.left)
            self.replayed += 1
            self.different += differs
            self.observations += after.differing
            self.cut += bool(after.left)
            if differs and only_same:
                return None
            after = after.episode
        self.add(before, after)
        return after

    def add(self, before: Episode, after: Episode) -> None:
        for table, value in ((self.old, before.reward), (self.new, after.reward)):
            table.setdefault(before.env_id, []).append(value)
        self.solved.setdefault(before.env_id, []).extend((before.success, after.success))
        self.tasks.setdefault(before.env_id, []).append(f"{before.env_id} {before.group_id or before.episode_id}")

    def table(self) -> str:
        """Return a table of mean returns before and after, paired differences and success, with 95 % intervals."""
        rows = [
            (name, self.old[name], self.new[name], self.solved[name], self.tasks[name]) for name in sorted(self.old)
        ]
        if len(rows) > 1:
            rows.append(("all", *([x for row in rows for x in row[place]] for place in (1, 2, 3, 4))))  # type: ignore[arg-type]
        width = max(len(row[0]) for row in rows)
        head = f"{'old return':<24}  {'new return':<24}  {'difference':<25}  success, old -> new"
        lines = [f"{'':{width}}  {'episodes':>8}  {head}"]
        for name, old, new, solved, tasks in rows:
            change = [b - a for a, b in zip(old, new, strict=True)]
            shown = [estimate(grouped(values, tasks)).shown() for values in (old, new)]
            most = 1.0 if {*old, *new} <= {0.0, 1.0} else math.inf
            change_shown = clustered_mean(grouped(change, tasks), -most, most).shown("+")
            before, after = (sum(solved[place::2]) / len(old) for place in (0, 1))
            lines.append(
                f"{name:{width}}  {len(old):>8}  {shown[0]:<24}  {shown[1]:<24}  "
                f"{change_shown:<25}  {before:.3f} -> {after:.3f}"
            )
        return "\n".join(lines)


def run(arguments: argparse.Namespace) -> str:
    paths, out = episode_paths(arguments.episodes), output_file(arguments)
    if os.path.realpath(out) in map(os.path.realpath, paths):
        raise ConfigError(f"--out {out} is one of the input files; choose another")
    given = given_env(arguments)
    comparison, engine, pictures = Comparison(), chosen_engine(arguments), PictureFolder(out)
    if arguments.reward is not None:
        _refuse_env_options(arguments)
    with replacing(out) as whole, whole.open("w", encoding="ascii") as file, ExitStack() as stack:
        make: Callable[[], Any] = partial(_ScoreByReplay, given, arguments.trust)
        if arguments.reward is not None:
            make = partial(_scorer, arguments.reward)
        stored = _episodes(arguments, paths)
        if engine is not None:
            scored = engine.map(make, stored)
        else:
            score = make()
            if isinstance(score, ExitStack):
                stack.enter_context(score)
            scored = map(score, stored)
        for before, after in scored:
            episode = comparison.take(before, after, arguments.only_same)
            if episode is not None:
                file.write(json.dumps(stored_row(pictures, episode)) + "\n")
        if not comparison.old and comparison.different:
            raise DataError(
                f"all {comparison.different} replays differ from the record, so --only-same leaves no episode; give "
                "the arguments that the tasks were made with"
            )
        if not comparison.old:
            raise DataError(f"{', '.join(map(str, arguments.episodes))}: no episode to rescore")
    return "\n".join([*_summary(comparison, arguments.only_same), str(out), "", comparison.table()])


def _summary(comparison: Comparison, only_same: bool) -> Iterator[str]:
    if comparison.replayed:
        same = comparison.replayed - comparison.different
        yield f"{comparison.replayed} episodes replayed, {same} with the same observations"
    if comparison.different:
        left_out = " and were left out" if only_same else " (--only-same leaves them out)"
        yield (
            f"{comparison.different} replays differ, in {comparison.observations} observations, {comparison.cut} by "
            f"ending sooner{left_out}; are these the arguments that the tasks were made with?"
        )
    if comparison.kept:
        yield f"{comparison.kept} episodes without steps are unchanged"


def _refuse_env_options(arguments: argparse.Namespace) -> None:
    for option in ("env", "split", "data", "env_kwargs", "wrapper", "only_same", "bare"):
        if vars(arguments)[option]:
            raise ConfigError(
                f"--{option.replace('_', '-')} is for replays and does not go with --reward; leave one out"
            )


def _episodes(arguments: argparse.Namespace, paths: Sequence[Path]) -> Iterator[_Stored]:
    """Yield every episode with the settings of its run."""
    from tqdm import tqdm

    with tqdm(unit="episode", desc="rescoring", disable=arguments.quiet, leave=False) as bar:
        for path in paths:
            settings = {} if arguments.bare or arguments.reward is not None else run_settings(path)
            for number, record in enumerate(read_records([path]), start=1):
                try:
                    yield Episode.from_dict(record, PictureFolder(path)), settings
                except DataError as e:
                    raise DataError(f"{path}, episode {number}: {e}") from e
                bar.update()


def _scorer(name: str) -> Callable[[_Stored], tuple[Episode, Episode]]:
    """Load the function that `--reward` names, and return what scores episodes with it."""
    return partial(_score_by_function, name, _function(name))


def _score_by_function(name: str, function: RewardFunction, stored: _Stored) -> tuple[Episode, Episode]:
    """Return an episode before and after, with the rewards of a function."""
    before, _ = stored
    try:
        return before, reward_by(function, before, name)
    except AgentEnvsError:
        raise
    except Exception as e:
        raise ConfigError(f"{name} failed on episode {before.episode_id!r}: {type(e).__name__}: {e}") from e


class _ScoreByReplay(ExitStack):
    """Replays episodes; its environments stay open until it is closed."""

    def __init__(self, given: EnvChoice, trust: bool) -> None:
        super().__init__()
        self._given, self._trust = given, trust
        self._envs: dict[str, gym.Env[Any, Any]] = {}

    def __call__(self, stored: _Stored) -> tuple[Episode, Replayed | None]:
        """Return an episode and its replay, None without steps."""
        before, settings = stored
        if not before.steps:
            return before, None
        if before.index is None and before.seed is None:
            raise DataError(f"episode {before.episode_id!r} has neither an index nor a seed, so its task is unknown")
        choice = episode_choice(self._given, settings, before, trust=self._trust)
        key = repr(choice)
        if key not in self._envs:
            self._envs[key] = choice.make()
            self.callback(self._envs[key].close)
        return before, replay(self._envs[key], before)


def _function(name: str) -> RewardFunction:
    """Load the function that `--reward` names; its module may lie in the current folder."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        return load_function(name, what="--reward")
    finally:
        sys.path.remove(folder)
