"""Compares evaluations on the tasks that they share: paired differences with bootstrap intervals.

The interval of a difference is the percentile interval of a cluster bootstrap over two crossed levels (Davison and
Hinkley 1997, section 3.8; Owen 2007, The pigeonhole bootstrap): tasks are resampled, the same ones for both sides, and
so are the runs of a side, the same ones for all tasks. A task's samples go with it: its mean already varies with them,
and to resample them as well would count their noise twice. Weights are stretched by sqrt(n / (n - 1)), which makes the
variance that one level adds to a mean unbiased; what varies by task and run at once is counted by both, so that the
interval of runs that do not differ is too wide. That of two or three runs that differ much is too narrow
(docs/evaluation.md has figures). If a share changes by the same on every task, its interval reaches as far as Wilson's
for none of as many. The generator is seeded by the data: the same episodes give the same interval.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.checks import shown
from agent_envs.episodes.record import read_episodes
from agent_envs.episodes.statistics import Interval, share
from agent_envs.errors import ConfigError, DataError
from agent_envs.rollout.panel import Panel, read_panel

MEASURES = ("success", "score", "reward", "steps")
"""What is compared, each a mean over episodes."""

_DRAWS = 10_000
_SAME = 1e-12
_DIGITS = 9
_LARGEST = 1e100  # what a mean of squares still holds
_CHUNK = 500  # draws at a time, to bound the memory


@dataclass(frozen=True, slots=True)
class EvaluatedRun:
    """An evaluation that was played."""

    name: str
    panel: Panel
    scores: Mapping[int, Sequence[Sequence[float]]]
    """For each task, the measures of every sample, in the order of `MEASURES`."""
    errors: int
    """Number of broken episodes, which do not count."""


def read_evaluated(folder: Path) -> EvaluatedRun:
    """Read the panel and the episodes in a folder of `agentr1 eval`.

    Raises:
        ConfigError: There is no evaluation in the folder.
        DataError: A file in it cannot be read, or an episode's score or reward is not a number.
    """
    panel, path = read_panel(folder), folder / "episodes.jsonl"
    scores: dict[int, list[list[float]]] = {}
    errors = 0
    seen: set[str] = set()
    for episode in read_episodes(path):
        if episode.index is None or episode.index not in panel.tasks or episode.episode_id in seen:
            continue  # a line may be there twice
        seen.add(episode.episode_id)
        if episode.stop_reason.broken:
            errors += 1
            continue
        values = [float(episode.success), episode.score, episode.reward, float(len(episode.steps))]
        if not all(abs(value) < _LARGEST for value in values):
            raise DataError(
                f"{path}: episode {shown(episode.episode_id)} has the score {episode.score} and the reward "
                f"{episode.reward}; both must be finite and below {_LARGEST:g} to be compared"
            )
        scores.setdefault(episode.index, []).append(values)
    return EvaluatedRun(str(folder), panel, scores, errors)


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure on both sides, and how much larger it is on the second."""

    first: float
    second: float
    difference: Interval


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """The second side against the first."""

    first: Sequence[EvaluatedRun]
    second: Sequence[EvaluatedRun]
    tasks: int
    """Number of tasks that every run has played."""
    left_out: int
    """Number of the panel's other tasks (of those in all panels)."""
    measures: Mapping[str, Difference]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as types that JSON has; an interval without a bound has None."""

        measures = {
            name: {
                "first": row.first,
                "second": row.second,
                "difference": row.difference.value,
                "low": row.difference.low if math.isfinite(row.difference.low) else None,
                "high": row.difference.high if math.isfinite(row.difference.high) else None,
            }
            for name, row in self.measures.items()
        }
        return {
            "first": [run.name for run in self.first],
            "second": [run.name for run in self.second],
            "tasks": self.tasks,
            "left_out": self.left_out,
            "errors": [sum(run.errors for run in side) for side in (self.first, self.second)],
            "measures": measures,
        }


def compare_runs(
    first: Sequence[EvaluatedRun], second: Sequence[EvaluatedRun], *, common: bool = False
) -> PairedComparison:
    """Compare two sides, each one run or several that differ in their seed.

    Args:
        common: Whether the panels may have other tasks besides the common ones, which alone are compared.

    Raises:
        ConfigError: The panels differ, or no task was played by all runs.
    """
    runs = [*first, *second]
    for run in runs[1:]:
        if differences := runs[0].panel.differences(run.panel, f"in {runs[0].name}", f"in {run.name}", common=common):
            message = f"{runs[0].name} (panel {runs[0].panel.name}) and {run.name} (panel {run.panel.name}) played "
            message += f"different panels: {'; '.join(differences)}"
            if not runs[0].panel.differences(run.panel, "", "", common=True):
                message += f"; --common compares on the tasks that both have, and agentr1 eval --panel {runs[0].name} "
                message += "plays the same tasks again"
            raise ConfigError(message)
    shared = [index for index in sorted(runs[0].panel.tasks) if all(index in run.panel.tasks for run in runs)]
    played = [index for index in shared if all(index in run.scores for run in runs)]
    if not played:
        raise ConfigError(f"no task was played by all of {', '.join(run.name for run in runs)}")
    sides: list[list[np.ndarray]]  # the mean over the samples of each task, of each run [tasks, measures]
    sides = [[np.array([np.mean(run.scores[i], axis=0) for i in played]) for run in side] for side in (first, second)]
    for side in sides:  # the order of the runs given does not matter
        side.sort(key=lambda cells: cells.tobytes())
    means = [np.stack(side, axis=1) for side in sides]
    draws = _bootstrap(means[0], means[1])
    raw = np.concatenate([np.asarray(run.scores[index], dtype=float) for run in runs for index in played])
    shares = ((raw == 0.0) | (raw == 1.0)).all(axis=0)
    rows = {}
    for number, name in enumerate(MEASURES):
        before, after = (float(side[:, :, number].mean()) for side in means)
        low, high = map(float, np.percentile(draws[:, number], [2.5, 97.5]))
        if shares[number] and name != "steps":
            if high - low < _SAME:  # no two tasks differ, which is no proof that none does
                low, high = low - share(0, len(played)).high, high + share(0, len(played)).high
            low, high = max(low, -1.0), min(high, 1.0)
        elif len(played) == 1:
            low, high = -math.inf, math.inf
        rows[name] = Difference(before, after, Interval(after - before, low, high))
    return PairedComparison(first, second, len(played), len(shared) - len(played), rows)


def _bootstrap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return draws of the difference of means, shape [draws, measures]."""
    data = [(side.round(_DIGITS) + 0.0).astype("<f8").tobytes() for side in (first, second)]  # no -0.0, no last bits
    seed = hashlib.sha256(b"".join(data)).digest()
    rng = np.random.default_rng(int.from_bytes(seed[:8], "little"))
    drawn = []
    for _ in range(_DRAWS // _CHUNK):
        tasks = _weights(rng, len(first))
        one, two = (
            np.einsum("bt,br,trm->bm", tasks, _weights(rng, side.shape[1]), side, optimize=True)
            for side in (first, second)
        )
        drawn.append(two - one)
    return np.concatenate(drawn)


def _weights(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return resampling weights that add up to 1, shape [draws, count]."""
    if count == 1:
        return np.ones((_CHUNK, 1))
    times = rng.multinomial(count, np.full(count, 1 / count), size=_CHUNK)
    return (1 + (times - 1) * math.sqrt(count / (count - 1))) / count
