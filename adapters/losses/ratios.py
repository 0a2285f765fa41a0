"""Log-ratios of steps against their lengths: how wide a loss with one ratio per step lets short and long actions be.

An update records of every step its length L, its log-ratio $S = sum_k (lp_k - old_k)$ over tokens, and its advantage.
Centred within the update, $C = S - L (sum S) / (sum L)$. If Var(C) grows as $L^slope$ with a slope near 1, then $S/L$
(``gspo``) makes the ratios of long actions too narrow, and $(S - L mu) / sqrt(L)$ (``capo``) makes all equally wide.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_envs.errors import DataError
from agent_envs.files import JSONLines

EDGES = (1, 9, 17, 33, 65, 129, 257)
"""First length of each bin."""
_STILL = 1e-5  # largest |S| of an update whose policy has not moved yet: round-off
_ROWS = 30  # of a bin that the slope is fitted to
_LONG = 17  # mean length of the bins that the slope of long steps is fitted to


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

    sums = {"log_ratio_sum": total(log_ratio).tolist(), "advantage": (total(advantages) / lengths).tolist()}
    line = {"step": int(step), "update": update, "length": lengths.tolist(), **sums}
    JSONLines(Path(folder) / f"{os.getpid()}.jsonl").append(line)


def ratios_report(folder: str | os.PathLike[str]) -> str:
    """Return a run's fit as text: bins, slope, and the slope from length 17 on with its 95 % bootstrap interval."""
    files = sorted(Path(folder).glob("*.jsonl"))  # one of each process
    lengths, centred = _centred(line for path in files for _, line in JSONLines(path).after())
    if not lengths.size:
        raise DataError(f"no update that moved the policy is recorded in {os.fspath(folder)}: see ratios_dir")
    rng, (bins, slope) = np.random.default_rng(0), _fit(lengths, centred)
    draws = (rng.integers(len(lengths), size=len(lengths)) for _ in range(500))
    slopes = [_fit(lengths[drawn], centred[drawn], _LONG)[1] for drawn in draws]
    low, high = np.quantile([s for s in slopes if s == s] or [np.nan], [0.025, 0.975])  # a draw may have few of a bin
    table = ["length from    steps  mean length  variance  variance / mean length"]
    table += [f"{edge:11}  {n:7}  {mean:11.1f}  {var:8.3g}  {var / mean:22.3g}" for edge, n, mean, var in bins]
    long = _fit(lengths, centred, _LONG)[1]
    why = f" (nan: fewer than two bins have {_ROWS} steps)" if np.isnan(slope + long) else ""
    return "\n".join([*table, f"slope {slope:.3f}; from {_LONG} on {long:.3f} [{low:.3f}, {high:.3f}]{why}"])


def _centred(lines: Iterable[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths and the centred log-ratios of the steps of updates in which something has moved."""
    updates: dict[tuple[Any, Any], list[np.ndarray]] = defaultdict(list)
    for line in lines:
        try:
            rows = np.array([line["length"], line["log_ratio_sum"]], dtype=float).reshape(2, -1)
        except (KeyError, TypeError, ValueError) as e:
            raise DataError("a record of ratios must have as many of 'length' as of 'log_ratio_sum'") from e
        updates[line.get("step"), line.get("update")].append(rows)
    moved = [rows for rows in map(np.hstack, updates.values()) if rows.size and np.abs(rows[1]).max() > _STILL]
    centred = [rows[1] - rows[0] * rows[1].sum() / rows[0].sum() for rows in moved]
    return np.concatenate([np.empty(0), *(rows[0] for rows in moved)]), np.concatenate([np.empty(0), *centred])


def _fit(
    lengths: np.ndarray, centred: np.ndarray, shortest: int = 0
) -> tuple[list[tuple[int, int, float, float]], float]:
    """Return how the variance of steps' centred log-ratios, shape [steps], grows with their lengths.

    Returns:
        Of each bin with at least two steps its first length, their number, mean length and unbiased variance; and the
        slope of log variance over log mean length in bins of 30 steps or more and a mean length of at least
        ``shortest``, NaN with fewer than two of these.
    """
    number = np.searchsorted(EDGES, lengths, side="right") - 1
    bins = [
        (edge, int(chosen.sum()), float(lengths[chosen].mean()), float(centred[chosen].var(ddof=1)))
        for i, edge in enumerate(EDGES)
        if (chosen := number == i).sum() > 1
    ]
    fitted = [(m, v) for _, steps, m, v in bins if steps >= _ROWS and v > 0 and m >= shortest]
    if len(fitted) < 2:
        return bins, float("nan")
    means, variances = np.log(fitted).T
    return bins, float(np.polyfit(means, variances, 1)[0])
