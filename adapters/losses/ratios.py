"""Log-ratios of steps against their lengths: how wide a loss with one ratio per step lets short and long actions be.

An update records of every step its length L, its log-ratio $S = sum_k (lp_k - old_k)$ over tokens, and its advantage.
Centred within the update, $C = S - L (sum S) / (sum L)$. If Var(C) grows as $L^slope$ with a slope near 1, then $S/L$
(``gspo``) makes the ratios of long actions too narrow, and $(S - L mu) / sqrt(L)$ (``capo``) makes all equally wide.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from agent_envs.errors import DataError
from agent_envs.files import JSONLines

EDGES = (1, 9, 17, 33, 65, 129, 257)
"""First length of each bin."""
_STILL = 1e-5  # largest |S| of an update whose policy has not moved yet: round-off
_ROWS = 30  # of a bin that the slope is fitted to


class LengthBin(NamedTuple):
    """Steps of about the same length."""

    shortest: int
    """First length of the bin."""
    steps: int
    mean_length: float
    variance: float
    """Of their centred log-ratios, unbiased."""


class LengthFit(NamedTuple):
    """How the variance of the log-ratio grows with the length."""

    bins: list[LengthBin]
    """Those with at least two steps."""
    slope: float
    """Of log variance over log mean length, of bins with at least 30 steps; NaN with fewer than two of these."""


def record_ratios(
    folder: str, step: int, update: int, log_ratio: torch.Tensor, advantages: torch.Tensor, steps: torch.Tensor
) -> None:
    """Add the steps of a micro-batch to this process's file; all tensors are over its trained tokens, shape [tokens].

    ``steps`` numbers the step of each token from 0. A file has a line for each micro-batch, and is of one start of a
    run.
    """
    count = int(steps.max()) + 1 if len(steps) else 0
    lengths = torch.bincount(steps, minlength=count)

    def total(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.float64, device=x.device).index_add_(0, steps, x.double())

    line = {
        "step": int(step),
        "update": update,
        "length": lengths.tolist(),
        "log_ratio_sum": total(log_ratio).tolist(),
        "advantage": (total(advantages) / lengths).tolist(),
    }
    JSONLines(Path(folder) / f"{os.getpid()}.jsonl").append(line)


def read_ratios(folder: str | os.PathLike[str]) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded lines of all processes."""
    for path in sorted(Path(folder).glob("*.jsonl")):
        yield from (line for _, line in JSONLines(path).after(0))


def fit_lengths(lines: Iterable[Mapping[str, Any]]) -> LengthFit:
    """Return the variance of the steps' centred log-ratios by length, and its slope.

    Updates in which nothing has moved, the first of each batch, are left out.

    Raises:
        DataError: A line without lengths and as many sums.

    >>> lengths = [4, 16] * 60
    >>> signs = [1, 1, -1, -1] * 30
    >>> sums = [sign * length**0.5 for sign, length in zip(signs, lengths)]
    >>> round(fit_lengths([{"step": 1, "update": 2, "length": lengths, "log_ratio_sum": sums}]).slope, 6)
    1.0
    """
    updates: dict[tuple[Any, Any], list[np.ndarray]] = defaultdict(list)
    for line in lines:
        try:
            rows = np.array([line["length"], line["log_ratio_sum"]], dtype=float).reshape(2, -1)
        except (KeyError, TypeError, ValueError) as e:
            raise DataError("a record of ratios must have as many of 'length' as of 'log_ratio_sum'") from e
        updates[line.get("step"), line.get("update")].append(rows)
    moved = [np.concatenate(parts, axis=1) for parts in updates.values()]
    moved = [rows for rows in moved if rows.size and np.abs(rows[1]).max() > _STILL]
    if not moved:
        return LengthFit([], float("nan"))
    lengths = np.concatenate([rows[0] for rows in moved])
    centred = np.concatenate([rows[1] - rows[0] * rows[1].sum() / rows[0].sum() for rows in moved])
    number = np.searchsorted(EDGES, lengths, side="right") - 1
    bins = [
        LengthBin(edge, int(chosen.sum()), float(lengths[chosen].mean()), float(centred[chosen].var(ddof=1)))
        for i, edge in enumerate(EDGES)
        if (chosen := number == i).sum() > 1
    ]
    fitted = [each for each in bins if each.steps >= _ROWS and each.variance > 0]
    slope = float("nan")
    if len(fitted) > 1:
        widths, variances = np.log([b.mean_length for b in fitted]), np.log([b.variance for b in fitted])
        slope = float(np.polyfit(widths, variances, 1)[0])
    return LengthFit(bins, slope)
