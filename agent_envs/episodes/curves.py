"""What `agentr1 plot` draws: success, reward, turns and length of runs and evaluations, grouped over seeds.

A run is a folder with `metrics.jsonl` (an object for each step, with the keys of `MEASURES` or some of them) and, where
it has them, `run.json` and `episodes/`.
Episodes alone, of an evaluation, are read too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent_envs.checks import shown
from agent_envs.episodes.files import episode_paths, read_records
from agent_envs.episodes.record import StopReason
from agent_envs.episodes.run_folder import read_settings
from agent_envs.episodes.statistics import Interval, estimate, grouped
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines, numbered_lines
from agent_envs.rewards import total

__all__ = ["MEASURES", "Configuration", "Measure", "Run", "Spread", "correlation", "group_runs", "read_run", "spread"]


class Measure(NamedTuple):
    """Something that is drawn: a panel."""

    name: str
    """Its name in tables."""
    unit: str
    """What the axis says."""
    training: tuple[str, ...]
    """Its keys among the metrics of training episodes: of `agentr1 train`, of the plain loop."""
    held_out: tuple[str, ...]
    """Its keys among the metrics of held-out tasks."""


MEASURES = (
    Measure("success", "share of episodes", ("env/success", "train/success"), ("val/success",)),
    Measure(
        "reward", "mean return of an episode", ("env/return/mean", "train/return"), ("val/return/mean", "val/return")
    ),
    Measure("turns", "steps of an episode", ("env/num_steps/mean", "train/steps"), ("val/num_steps/mean", "val/steps")),
    Measure("length", "response tokens of an episode", ("env/tokens/response_per_episode",), ()),
)
"""The four measures, success first."""

_SEED = re.compile(r"[-_. ]*seed[-_=]?\d+|[-_. ]s\d+$", re.IGNORECASE)
_LARGEST = 1e30  # what lies beyond, and what is no number, no axis can show
_STEP_FILE = re.compile(r"(?P<phase>[A-Za-z]+)-(?P<step>\d{3,})")


@dataclass
class Run:
    """One run, or one evaluation."""

    name: str
    """Its folder's or file's name."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of `run.json`; empty without one."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = field(default_factory=dict)
    """By phase ("training", "held-out") and measure: steps and values, in order."""
    trials: dict[int, int] = field(default_factory=dict)
    """Held-out episodes by step."""
    episodes: dict[str, list[float]] = field(default_factory=lambda: {measure.name: [] for measure in MEASURES})
    """By measure: the value of each episode that no error ended."""
    tasks: list[str] = field(default_factory=list)
    """The task of each of these episodes: several of one are no independent ones."""
    in_tokens: bool = True
    """Whether episodes' lengths are response tokens; else characters of what the policy wrote."""


def read_run(path: Path, *, episodes: bool = True) -> Run:
    """Read a run's folder, its metrics, or episodes of an evaluation (a file, or a folder).

    Raises:
        ConfigError: There is nothing at the path.
        DataError: A line is neither a step's metrics nor an episode; names the file and the line.
    """
    if path.is_dir():
        log = path / "metrics.jsonl"
        run = Run(path.resolve().name, read_settings(path / "run.json") or {})
        if log.is_file():
            _read_metrics(log, run)
        if not log.is_file() or (episodes and any((path / "episodes").glob("*.jsonl"))):
            _read_episodes([path], run)
        if not run.curves and not run.tasks:
            raise DataError(f"{log}: there are no metrics yet")
        return run
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file or folder")
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    run = Run(path.resolve().parent.name if name in ("metrics", "episodes") else name)
    first = next(numbered_lines(path), (0, b""))[1]
    if not first:
        raise DataError(f"{path}: the file is empty")
    if b'"schema_version"' in first or b'"steps"' in first:
        _read_episodes([path], run)
    else:
        run.settings = read_settings(path.parent / "run.json") or {}
        _read_metrics(path, run)
    return run


def _read_metrics(path: Path, run: Run) -> None:
    for number, record in JSONLines(path).numbered():
        try:
            step = int(record["step"])
            trials = int((record.get("val/episodes") or 0) + (record.get("val/lost_episodes") or 0))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
            raise DataError(
                f"{path}, line {number}: expected the metrics of a step, with 'step': {shown(record)}"
            ) from e
        for measure in MEASURES:
            for phase, keys in (("training", measure.training), ("held-out", measure.held_out)):
                value = next((record[key] for key in keys if isinstance(record.get(key), (int, float))), math.nan)
                if abs(value) < _LARGEST:
                    curve = run.curves.setdefault(phase, {}).setdefault(measure.name, [])
                    curve.append((step, float(value)))
        if record.get("val/episodes"):
            run.trials[step] = trials


def _read_episodes(sources: Sequence[Path], run: Run) -> None:
    """Take in the values of every episode; curves too, where files are named by steps and there are no metrics."""
    without_metrics = not run.curves
    tokens: list[float] = []
    characters: list[float] = []
    for path in episode_paths(sources):
        named = _STEP_FILE.fullmatch(path.stem)
        held_out = bool(named) and not str(named["phase"]).startswith("train") if named else False
        if held_out and not without_metrics:
            continue  # correlations are those of training
        begin = len(characters)
        for record in read_records([path]):
            if record.get("stop_reason") == StopReason.ERROR:
                continue  # it says nothing about the policy
            steps = record["steps"]
            try:
                success = bool(steps[-1]["info"].get("success", False)) if steps else False
                reward = total(step["reward"] for step in steps)
                sampled = sum(len(step.get("response_ids") or ()) for step in steps)
                written = sum(len(step["action"]) for step in steps)
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
                raise DataError(f"{path}: an episode lacks a field or has one of the wrong kind: {e!r}") from e
            for name, value in (("success", success), ("reward", reward), ("turns", len(steps))):
                run.episodes[name].append(float(value))
            run.tasks.append(str(record.get("group_id") or f"episode {len(run.tasks)} of {path}"))
            tokens.append(float(sampled))
            characters.append(float(written))
        if named and without_metrics and len(characters) > begin:
            curves = run.curves.setdefault("held-out" if held_out else "training", {})
            for name in ("success", "reward", "turns"):
                part = run.episodes[name][begin:]
                curves.setdefault(name, []).append((int(named["step"]), total(part) / len(part)))
    run.in_tokens = any(tokens)
    run.episodes["length"] = tokens if run.in_tokens else characters
    if without_metrics and not characters:
        raise DataError(f"{', '.join(map(str, sources))}: there are no metrics and no episodes")


@dataclass
class Configuration:
    """Runs that differ in their seed alone."""

    label: str
    """What tells it from the others."""
    runs: list[Run]
    """One for each seed."""

    def curve(self, phase: str, measure: str) -> dict[int, list[float]]:
        """The values of all runs by step, in order."""
        values: dict[int, list[float]] = {}
        for run in self.runs:
            for step, value in run.curves.get(phase, {}).get(measure, []):
                values.setdefault(step, []).append(value)
        return dict(sorted(values.items()))

    def over_steps(self, measure: str) -> list[float]:
        """The values of all runs at the steps at which success is known too, of training where it has them."""
        values: list[float] = []
        for run in self.runs:
            phase = "training" if run.curves.get("training", {}).get("success") else "held-out"
            known = dict(run.curves.get(phase, {}).get(measure, []))
            values += [known.get(step, math.nan) for step, _ in run.curves.get(phase, {}).get("success", [])]
        return values

    def over_episodes(self, measure: str) -> list[float]:
        """The values of all episodes of all runs."""
        return [value for run in self.runs for value in run.episodes[measure]]

    def estimate(self, measure: str) -> Interval:
        """The mean over these, with the interval that `agentr1 eval` gives."""
        return estimate(grouped(self.over_episodes(measure), [task for run in self.runs for task in run.tasks]))


def group_runs(runs: Iterable[Run]) -> list[Configuration]:
    """Put runs together that differ in their seed alone: by `run.json`, without one by their names without the seed."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = {k: v for k, v in run.settings.items() if k not in ("seed", "steps", "out")}
        key = json.dumps(same, sort_keys=True) if same else _SEED.sub("", run.name)
        groups.setdefault(key, []).append(run)
    parts = [group[0].settings for group in groups.values()]
    names = [_SEED.sub("", group[0].name) or group[0].name for group in groups.values()]
    names = ["".join(c if c.isprintable() else " " for c in name) for name in names]
    shown = sorted({k for part in parts for k in part if k not in ("seed", "steps", "out") and _varies(k, parts)})
    labels = []
    for part, name in zip(parts, names, strict=True):
        said = ", ".join(f"{key} {_short(part.get(key))}" for key in shown)
        whole = f"{_short(part.get('env', '')).rpartition('/')[2]} {_short(part.get('algo', ''))}".strip()
        label = (said or whole or name) if part else name
        labels.append(label)
    return [
        Configuration(label if labels.count(label) == 1 else f"{label} ({name})", group)
        for label, name, group in zip(labels, names, groups.values(), strict=True)
    ]


def _varies(key: str, parts: Sequence[Mapping[str, Any]]) -> bool:
    return len({json.dumps(part.get(key), sort_keys=True) for part in parts}) > 1


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False).strip('"')
    return text if len(text) <= 40 else f"...{text[-37:]}"


class Spread(NamedTuple):
    """Values of several seeds at one step."""

    mean: float
    deviation: float
    """Standard deviation over seeds, 0 for one."""
    seeds: int


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (of a sample) of values.

    >>> spread([1.0, 3.0]).mean
    2.0
    """
    x = np.asarray(values, dtype=float)
    return Spread(float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else 0.0, len(x))


def correlation(x: Sequence[float], y: Sequence[float]) -> Interval | None:
    """Pearson's correlation with its 95 % interval by Fisher's transformation (1921).

    Pairs with a value that is no number, or beyond all measure, are left out. None where it would say nothing: one of
    the two is the same in all pairs but one, or the pairs are so few that the interval is longer than 1, as that of no
    correlation at all is with fewer than 16.

    >>> found = correlation([1, 2, 3, 4, 5], [2, 4, 5, 6, 8])
    >>> [round(value, 2) for value in found]
    [0.99, 0.85, 1.0]
    >>> correlation([1, 2, 3, 4, 5], [2, 4, 5, 4, 5])  # 0.77, of an interval from -0.34 to 0.98
    """
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    both = (abs(a) < _LARGEST) & (abs(b) < _LARGEST)
    a, b = a[both], b[both]
    if len(a) < 4 or any(np.unique(x.round(12), return_counts=True)[1].max() >= len(a) - 1 for x in (a, b)):
        return None
    r = float(np.clip(np.corrcoef(a, b)[0, 1], -1, 1))
    if abs(r) > 1 - 1e-12:
        return Interval(r, r, r)
    half = 1.959964 / math.sqrt(len(a) - 3)
    low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    return Interval(r, low, high) if high - low <= 1 else None
