"""The data that `agentr1 plot` draws: success, reward, turns, calls and length of runs and evaluations, by seed.

A run is a folder with `metrics.jsonl`, which has an object per step with some of the keys of `MEASURES`, and optionally
`run.json` and `episodes/`. An evaluation is a file or a folder of episodes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent_envs.checks import shown
from agent_envs.episodes.record import StopReason, calls_of
from agent_envs.episodes.run_folder import episode_paths, read_records, read_settings
from agent_envs.episodes.statistics import Interval, estimate, grouped
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines, numbered_lines
from agent_envs.rewards import total


class Measure(NamedTuple):
    """A quantity that is drawn in its own panel."""

    name: str
    """The panel's title, and the name in tables."""
    unit: str
    """The label of the axis."""
    metric: str
    """Name of the metric, after ``env/`` over training episodes and ``val/`` over held-out tasks."""


MEASURES = (
    Measure("success", "share of episodes", "success"),
    Measure("reward", "mean return of an episode", "return/mean"),
    Measure("turns", "steps of an episode", "num_steps/mean"),
    Measure("calls", "tool calls of an episode", "calls/mean"),
    Measure("length", "response tokens of an episode", "tokens/response_per_episode"),
)
"""The measures, success first."""

_SEED = re.compile(r"[-_. ]*seed[-_=]?\d+|[-_. ]s\d+$", re.IGNORECASE)
_NOT_COMPARED = frozenset({"out", "seed", "steps", "versions"})
_BROKEN = frozenset(reason.value for reason in StopReason if reason.broken)
_LARGEST_COUNT = 1 << 53  # of steps and episodes
_LARGEST = 1e30  # larger values, infinities and NaN cannot be drawn
STEP_FILE = re.compile(r"(?P<phase>[A-Za-z]+)-(?P<step>\d{3,15})")
"""The name of a file with a training step's episodes, without its suffix: ``train-000007``."""


@dataclass
class Run:
    """A training run or an evaluation."""

    name: str
    """The name of its folder or file."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The contents of `run.json`; empty if there is none."""
    curves: dict[str, dict[str, list[tuple[int, float]]]] = field(default_factory=dict)
    """Steps and values in order, by phase ("training" or "held-out") and measure."""
    trials: dict[int, int] = field(default_factory=dict)
    """Number of held-out episodes by step."""
    episodes: dict[str, list[float]] = field(default_factory=lambda: {measure.name: [] for measure in MEASURES})
    """The value of each episode by measure; episodes that ended in an error are left out."""
    tasks: list[str] = field(default_factory=list)
    """The task of each of these episodes; episodes of the same task are not independent."""
    in_tokens: bool = True
    """Whether lengths are in response tokens; otherwise they are in characters of the actions."""


def read_run(path: Path, *, episodes: bool = True) -> Run:
    """Read a run's folder, a file of metrics, or the episodes of an evaluation (a file or a folder).

    Raises:
        ConfigError: The path does not exist.
        DataError: A line is neither the metrics of a step nor an episode; the message names the file and the line.
    """
    log = path / "metrics.jsonl" if path.is_dir() else path
    if path.is_dir():
        run = Run(path.resolve().name, read_settings(path / "run.json") or {})
        if log.is_file():
            _read_metrics(log, run)
        if not log.is_file() or (episodes and any((path / "episodes").glob("*.jsonl"))):
            _read_episodes([path], run)
    elif not path.is_file():
        raise ConfigError(f"{path}: there is no such file or folder")
    else:
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
    if not run.curves and not run.tasks:
        raise DataError(f"{log}: there are no metrics yet")
    return run


def _read_metrics(path: Path, run: Run) -> None:
    for number, record in JSONLines(path).numbered():
        try:
            step = int(record["step"])
            trials = int((record.get("val/episodes") or 0) + (record.get("val/lost_episodes") or 0))
            if max(abs(step), abs(trials)) > _LARGEST_COUNT:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
            raise DataError(
                f"{path}, line {number}: expected the metrics of a step, with 'step': {shown(record)}"
            ) from e
        for measure in MEASURES:
            for phase, prefix in (("training", "env"), ("held-out", "val")):
                value = record.get(f"{prefix}/{measure.metric}")
                if isinstance(value, (int, float)) and abs(value) < _LARGEST:
                    curve = run.curves.setdefault(phase, {}).setdefault(measure.name, [])
                    curve.append((step, float(value)))
        if record.get("val/episodes"):
            run.trials[step] = trials


def _read_episodes(sources: Sequence[Path], run: Run) -> None:
    """Add the values of all episodes, and curves if the files are named by step and there are no metrics."""
    without_metrics = not run.curves
    tokens: list[float] = []
    for path in episode_paths(sources):
        named = STEP_FILE.fullmatch(path.stem)
        phase = "held-out" if named and not named["phase"].startswith("train") else "training"
        if phase == "held-out" and not without_metrics:
            continue  # correlations are over training episodes
        begin = len(run.tasks)
        for _, record in read_records(path):
            if record.get("stop_reason") in _BROKEN:
                continue  # it says nothing about the policy
            steps = record["steps"]
            try:
                values = {
                    "success": bool(steps[-1]["info"].get("success", False)) if steps else False,
                    "reward": total(step["reward"] for step in steps),
                    "turns": len(steps),
                    "calls": sum(calls_of(step["info"]) for step in steps),
                    "length": sum(len(step["action"]) for step in steps),
                }
                tokens.append(float(sum(len(step.get("response_ids") or ()) for step in steps)))
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as e:
                raise DataError(f"{path}: an episode lacks a field or has one of the wrong kind: {e!r}") from e
            for name, value in values.items():
                run.episodes[name].append(float(value))
            run.tasks.append(str(record.get("group_id") or f"episode {len(run.tasks)} of {path}"))
        if named and without_metrics and len(run.tasks) > begin:
            curves = run.curves.setdefault(phase, {})
            for name in ("success", "reward", "turns", "calls"):
                part = run.episodes[name][begin:]
                curves.setdefault(name, []).append((int(named["step"]), total(part) / len(part)))
    run.in_tokens = any(tokens)
    if run.in_tokens:
        run.episodes["length"] = tokens
    if without_metrics and not run.tasks:
        raise DataError(f"{', '.join(map(str, sources))}: there are no metrics and no episodes")


@dataclass
class Configuration:
    """Runs that differ only in their seed."""

    label: str
    """The settings in which it differs from the others, or a name."""
    runs: list[Run]
    """A run per seed."""

    def curve(self, phase: str, measure: str) -> dict[int, list[float]]:
        """Return the values of all runs by step, in order."""
        values: dict[int, list[float]] = {}
        for run in self.runs:
            for step, value in run.curves.get(phase, {}).get(measure, []):
                values.setdefault(step, []).append(value)
        return dict(sorted(values.items()))

    def over_steps(self, measure: str) -> list[float]:
        """Return the values of all runs at the steps that have a success: training steps if possible, else held-out."""
        values: list[float] = []
        for run in self.runs:
            phase = "training" if run.curves.get("training", {}).get("success") else "held-out"
            known = dict(run.curves.get(phase, {}).get(measure, []))
            values += [known.get(step, math.nan) for step, _ in run.curves.get(phase, {}).get("success", [])]
        return values

    def over_episodes(self, measure: str) -> list[float]:
        """Return the values of all episodes of all runs."""
        return [value for run in self.runs for value in run.episodes[measure]]

    def estimate(self, measure: str) -> Interval:
        """Return the mean over all episodes with the interval that `agentr1 eval` reports."""
        return estimate(grouped(self.over_episodes(measure), [task for run in self.runs for task in run.tasks]))


def group_runs(runs: Iterable[Run]) -> list[Configuration]:
    """Group runs that differ only in their seed, according to `run.json`, or to their names if there is none."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        same = {k: v for k, v in run.settings.items() if k not in _NOT_COMPARED}
        key = json.dumps(same, sort_keys=True) if same else _SEED.sub("", run.name)
        groups.setdefault(key, []).append(run)
    parts = [group[0].settings for group in groups.values()]
    compared = sorted({name for part in parts for name in part} - _NOT_COMPARED)
    varying = [name for name in compared if len({json.dumps(part.get(name), sort_keys=True) for part in parts}) > 1]
    labels, names = [], []
    for part, group in zip(parts, groups.values(), strict=True):
        name = _SEED.sub("", group[0].name) or group[0].name
        names.append("".join(c if c.isprintable() else " " for c in name))
        settings = ", ".join(f"{key} {_short(part.get(key))}" for key in varying)
        whole = f"{_short(part.get('env', '')).rpartition('/')[2]} {_short(part.get('algo', ''))}".strip()
        labels.append((settings or whole or names[-1]) if part else names[-1])
    return [
        Configuration(label if labels.count(label) == 1 else f"{label} ({name})", group)
        for label, name, group in zip(labels, names, groups.values(), strict=True)
    ]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False).strip('"')
    return text if len(text) <= 40 else f"...{text[-37:]}"


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of several seeds' values at one step, and their sample standard deviation, 0 for a single one.

    >>> spread([1.0, 3.0])[0]
    2.0
    """
    x = np.asarray(values, dtype=float)
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else 0.0


def correlation(x: Sequence[float], y: Sequence[float]) -> Interval | None:
    """Return Pearson's correlation with its 95 % interval by Fisher's transformation (1921).

    Pairs with a NaN or an absurdly large value are left out. Returns None if the result would say nothing: if one of
    the two is the same in all pairs but one, if one is the other in another unit (as a reward that is 1 for success),
    or if the interval is longer than 1 because there are few pairs (without any correlation, fewer than 16).

    >>> interval = correlation([1, 2, 3, 4, 5], [2, 4, 5, 6, 8])
    >>> [round(value, 2) for value in interval]
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
        return None
    half = 1.959964 / math.sqrt(len(a) - 3)
    low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    return Interval(r, low, high) if high - low <= 1 else None
