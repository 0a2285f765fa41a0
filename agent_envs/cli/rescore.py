"""`agentr1 rescore`: stored episodes under another reward, and what that changes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs.checks import load_function
from agent_envs.cli.env_arguments import EnvChoice, add_env_arguments, chosen_env
from agent_envs.episodes.files import episode_paths, read_records
from agent_envs.episodes.record import Episode
from agent_envs.episodes.rescore import RewardFunction, replay, reward_by
from agent_envs.episodes.statistics import Interval, clustered_mean, grouped
from agent_envs.errors import AgentEnvsError, ConfigError, DataError
from agent_envs.files import replacing

__all__ = ["Comparison", "add_arguments", "run"]

_EPILOG = """\
Without --reward the recorded actions are played again, each episode on its own task, in the environment of the run.json
beside the episodes (that of `agentr1 eval` and `train`) with the arguments given here in place of its own, and the
wrappers given here around its own. --bare forgets run.json. What was observed is compared with what is stored: where it
differs, the arguments changed the task and not only its reward (a generated task needs those it was made with).
Everything else stays as it was recorded, tokens and log-probabilities too.

With --reward module:function the function gets each episode (agent_envs.Episode) and returns its return, or a list with
the reward of every step. It is looked for in the current folder too.

examples:
  agentr1 rescore runs/eval --env-kwargs '{"reward": "agentr1"}' --out rescored.jsonl
  agentr1 rescore episodes.jsonl --wrapper "StepPenalty(penalty=0.02)" --wrapper "FormatReward" --out new.jsonl
  agentr1 rescore episodes.jsonl --reward my_rewards:brevity --out new.jsonl      # def brevity(episode): ...
  agentr1 rescore episodes.jsonl --env my_task:Me/MyTask-v0 --env-kwargs '{"process_reward": 0.2}' --out new.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 rescore`."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("episodes", nargs="+", metavar="PATH", help="episodes.jsonl, or a folder with such files (a run's --out)")
    add("--out", metavar="FILE", required=True, help="the episodes with their new rewards; the file appears whole")
    add("--reward", metavar="MODULE:FUNCTION", help="a function of the episode instead of a replay")
    add("--only-same", action="store_true", help="leave out episodes whose replay differs from what is stored")
    add("--bare", action="store_true", help="take nothing from run.json: no arguments, no wrappers")
    add("--quiet", action="store_true", help="no progress bar")
    recorded = "as recorded"
    add_env_arguments(parser, env=recorded, split=recorded, data=recorded)


@dataclass
class Comparison:
    """Old and new returns, and what happened to the episodes."""

    old: dict[str, list[float]] = field(default_factory=dict)
    """Returns as stored, by environment."""
    new: dict[str, list[float]] = field(default_factory=dict)
    """Returns now, by environment."""
    solved: dict[str, list[bool]] = field(default_factory=dict)
    """Of each episode whether it succeeded, as stored and now, by environment."""
    tasks: dict[str, list[str]] = field(default_factory=dict)
    """The task of each episode, by environment: several of one are no independent ones."""
    replayed: int = 0
    """Episodes played again."""
    different: int = 0
    """Of them, those in which an observation differed or the replay ended before the record did."""
    observations: int = 0
    """Observations that differed."""
    cut: int = 0
    """Episodes whose replay ended before the record did."""
    kept: int = 0
    """Episodes without steps, which stay as they are."""

    def add(self, before: Episode, after: Episode) -> None:
        """Count an episode."""
        for table, value in ((self.old, before.reward), (self.new, after.reward)):
            table.setdefault(before.env_id, []).append(value)
        self.solved.setdefault(before.env_id, []).extend((before.success, after.success))
        self.tasks.setdefault(before.env_id, []).append(f"{before.env_id} {before.group_id or before.episode_id}")

    def table(self) -> str:
        """Mean returns before and after, their difference episode by episode, and success, with 95 % intervals."""
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
            shown = [_shown(clustered_mean(grouped(values, tasks))) for values in (old, new)]
            change_shown = _shown(clustered_mean(grouped(change, tasks)), "+")
            before, after = (sum(solved[place::2]) / len(old) for place in (0, 1))
            lines.append(
                f"{name:{width}}  {len(old):>8}  {shown[0]:<24}  {shown[1]:<24}  "
                f"{change_shown:<25}  {before:.3f} -> {after:.3f}"
            )
        return "\n".join(lines)


def _shown(interval: Interval, sign: str = "") -> str:
    return f"{interval.value:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def run(arguments: argparse.Namespace) -> str:
    """Rescore the episodes; a table of what that changed."""
    paths, out = episode_paths(arguments.episodes), Path(arguments.out)
    if out.resolve() in {path.resolve() for path in paths}:
        raise ConfigError(f"--out {out} is one of the files to be read; name another")
    given = chosen_env(arguments) if arguments.env else _without_env(arguments)
    comparison = Comparison()
    with ExitStack() as open_envs, replacing(out) as partial, partial.open("w", encoding="ascii") as file:
        if arguments.reward is not None:
            _refuse_env_options(arguments)
            episodes = _by_function(arguments, paths, comparison)
        else:
            episodes = _by_replay(arguments, paths, given, comparison, open_envs)
        for episode in episodes:
            file.write(episode.to_json() + "\n")
        if not comparison.old and comparison.different:
            raise DataError(
                f"all {comparison.different} episodes differ from what is stored, so --only-same leaves none: name the "
                "arguments that the tasks were made with"
            )
        if not comparison.old:
            raise DataError(f"{', '.join(map(str, arguments.episodes))}: there is no episode to rescore")
    return "\n".join([*_said(comparison, arguments.only_same), str(out), "", comparison.table()])


def _said(comparison: Comparison, only_same: bool) -> Iterator[str]:
    if comparison.replayed:
        same = comparison.replayed - comparison.different
        yield f"{comparison.replayed} episodes replayed, {same} with every observation as stored"
    if comparison.different:
        left_out = ", which were left out" if only_same else " (--only-same leaves them out)"
        yield (
            f"{comparison.different} episodes differ, in {comparison.observations} observations, "
            f"{comparison.cut} by ending sooner{left_out}: are these the arguments that the tasks were made with?"
        )
    if comparison.kept:
        yield f"{comparison.kept} episodes have no steps and stay as they are"


def _without_env(arguments: argparse.Namespace) -> EnvChoice:
    arguments.env = ""
    return chosen_env(arguments)


def _refuse_env_options(arguments: argparse.Namespace) -> None:
    for option in ("env", "split", "data", "env_kwargs", "wrapper", "only_same", "bare"):
        if vars(arguments)[option]:
            raise ConfigError(f"--{option.replace('_', '-')} is for a replay, and --reward needs none; leave one out")


def _episodes(arguments: argparse.Namespace, paths: Sequence[Path]) -> Iterator[tuple[Episode, Path]]:
    """Every episode with the file it is in."""
    from tqdm import tqdm

    with tqdm(unit="episode", desc="rescoring", disable=arguments.quiet, leave=False) as bar:
        for path in paths:
            for number, record in enumerate(read_records([path]), start=1):
                try:
                    yield Episode.from_dict(record), path
                except DataError as e:
                    raise DataError(f"{path}, episode {number}: {e}") from e
                bar.update()


def _by_function(arguments: argparse.Namespace, paths: Sequence[Path], comparison: Comparison) -> Iterator[Episode]:
    function = _function(arguments.reward)
    for episode, _ in _episodes(arguments, paths):
        try:
            after = reward_by(function, episode, arguments.reward)
        except AgentEnvsError:
            raise
        except Exception as e:
            raise ConfigError(
                f"{arguments.reward} failed on episode {episode.episode_id!r}: {type(e).__name__}: {e}"
            ) from e
        comparison.add(episode, after)
        yield after


def _by_replay(
    arguments: argparse.Namespace,
    paths: Sequence[Path],
    given: EnvChoice,
    comparison: Comparison,
    open_envs: ExitStack,
) -> Iterator[Episode]:
    envs: dict[str, gym.Env[Any, Any]] = {}
    recorded: dict[Path, EnvChoice] = {}
    for episode, path in _episodes(arguments, paths):
        if path not in recorded:
            recorded[path] = EnvChoice("") if arguments.bare else _recorded(path)
        if not episode.steps:
            comparison.kept += 1
            comparison.add(episode, episode)
            yield episode
            continue
        if episode.index is None and episode.seed is None:
            raise DataError(f"episode {episode.episode_id!r} has neither index nor seed, so its task cannot be found")
        choice = _choice(given, recorded[path], episode)
        key = repr(choice)
        if key not in envs:
            envs[key] = choice.make()
            open_envs.callback(envs[key].close)
        result = replay(envs[key], episode)
        differs = bool(result.differing or result.left)
        comparison.replayed += 1
        comparison.different += differs
        comparison.observations += result.differing
        comparison.cut += bool(result.left)
        if differs and arguments.only_same:
            continue
        comparison.add(episode, result.episode)
        yield result.episode


def _recorded(path: Path) -> EnvChoice:
    """The environment that the run.json of the episodes' run names; an empty choice without one."""
    for folder in (path.parent, path.parent.parent):
        try:
            settings = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            kwargs = {"data": settings["data"]} if isinstance(settings.get("data"), str) else {}
            kwargs |= settings["env_kwargs"]
            return EnvChoice(str(settings["env"]), kwargs, tuple(map(str, settings["wrappers"])))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return EnvChoice("")


def _choice(given: EnvChoice, recorded: EnvChoice, episode: Episode) -> EnvChoice:
    """What is given; where nothing is, what was recorded, and what the episode says of itself."""
    told = episode.reset_info
    kwargs = {**recorded.env_kwargs}
    if isinstance(told.get("split"), str):
        kwargs["split"] = told["split"]  # a run plays several
    source = told.get("source", "generated")
    if "data" not in kwargs and (source == "official" or (source != "generated" and Path(str(source)).exists())):
        kwargs["data"] = source
    return EnvChoice(
        given.env_id or recorded.env_id or episode.env_id,
        {**kwargs, **given.env_kwargs},
        (*recorded.wrappers, *given.wrappers),
    )


def _function(name: str) -> RewardFunction:
    """The function that `--reward` names; modules of the current folder are found too."""
    folder = os.getcwd()
    sys.path.append(folder)
    try:
        return load_function(name, what="--reward")
    finally:
        sys.path.remove(folder)
