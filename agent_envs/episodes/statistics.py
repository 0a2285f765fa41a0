"""What episodes say in numbers: estimates with 95 % confidence intervals, pass@k, success by task family."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

_Z = 1.959964


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def shown(self, sign: str = "") -> str:
        """Return it as text; without ends that are infinite. `sign="+"` shows the sign of positive numbers too.

        >>> Interval(0.25, 0.0, 0.5).shown(), Interval(2.0, -math.inf, math.inf).shown("+")
        ('0.250 [0.000, 0.500]', '+2.000')
        """
        ends = f" [{self.low:{sign}.3f}, {self.high:{sign}.3f}]" if math.isfinite(self.high - self.low) else ""
        return f"{self.value:{sign}.3f}{ends}"


def share(successes: float, trials: float, z: float = _Z) -> Interval:
    """Return a share and its Wilson score interval (Wilson 1927), of 95 % or of another normal quantile `z`.

    >>> tuple(round(x, 3) for x in share(128, 256))
    (0.5, 0.439, 0.561)
    """
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0)
    p = successes / trials
    center = (p + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * math.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    return Interval(p, min(p, max(0.0, center - half)), max(p, min(1.0, center + half)))


def difference(before: float, trials_before: int, after: float, trials_after: int) -> Interval:
    """Return the difference of two shares, `after - before`, with the Agresti-Caffo interval (2000).

    The shares are taken as independent; if the same tasks are played before and after, the true interval is narrower.

    >>> tuple(round(x, 2) for x in difference(0.48, 256, 0.82, 256))
    (0.34, 0.26, 0.41)
    """
    if trials_before == 0 or trials_after == 0:
        return Interval(math.nan, -1.0, 1.0)
    p = (before * trials_before + 1) / (trials_before + 2)
    q = (after * trials_after + 1) / (trials_after + 2)
    half = _Z * math.sqrt(p * (1 - p) / (trials_before + 2) + q * (1 - q) / (trials_after + 2))
    return Interval(after - before, max(-1.0, q - p - half), min(1.0, q - p + half))


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t with `freedom` degrees of freedom, to three digits.

    Above two degrees of freedom it uses the expansion of Abramowitz and Stegun 26.7.5.

    >>> [round(t_quantile(n), 2) for n in (1, 2, 3, 4, 10, 1000)]
    [12.71, 4.3, 3.18, 2.78, 2.23, 1.96]
    """
    if freedom <= 2:
        return (12.7062, 4.30265)[freedom - 1]
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def grouped(values: Iterable[float], tasks: Iterable[Hashable]) -> list[list[float]]:
    """Group values by task, for `clustered_mean` and `clustered_share`.

    >>> grouped([1.0, 0.0, 0.5], ["a", "b", "a"])
    [[1.0, 0.5], [0.0]]
    """
    groups: dict[Hashable, list[float]] = {}
    for value, task in zip(values, tasks, strict=True):
        groups.setdefault(task, []).append(value)
    return list(groups.values())


def estimate(groups: Sequence[Sequence[float]]) -> Interval:
    """Return the mean of all values with the interval that fits them.

    Values that are all 0 or 1 are a share, `clustered_share`, whose interval stays within [0, 1]; of others it is
    `clustered_mean`.

    >>> estimate([[1.0], [0.0], [0.0]]) == share(1, 3)
    True

    Args:
        groups: The values of each task; at least one for each.
    """
    shares = all(value in (0.0, 1.0) for group in groups for value in group)
    return clustered_share(groups) if shares else clustered_mean(groups)


def clustered_mean(groups: Sequence[Sequence[float]], low: float = -math.inf, high: float = math.inf) -> Interval:
    """Return the mean of all values, where the values of one task are not independent of each other.

    The standard error is the cluster-robust one of a ratio, sqrt(T / (T - 1) * sum_t d_t^2) / n with
    d_t = sum_i (x_ti - mean) over the values of task t (Cameron and Miller 2015, A Practitioner's Guide to
    Cluster-Robust Inference). With one value per task this is the usual interval of a mean.

    >>> tuple(round(x, 2) for x in clustered_mean([[1.0], [2.0], [3.0], [4.0]]))
    (2.5, 0.45, 4.55)
    >>> clustered_mean([[1.0, 1.0], [0.0, 0.0]]) == clustered_mean([[1.0], [0.0]])
    True
    >>> tuple(round(x, 3) for x in clustered_mean([[0.0], [0.05], [0.1]], 0.0, 1.0))
    (0.05, 0.0, 0.174)

    Args:
        groups: The values of each task; at least one for each.
        low, high: Known bounds of the true mean. The interval is cut there: it covers the true mean just
            as often (Mandelkern 2002, Setting Confidence Intervals for Bounded Parameters).

    Returns:
        Mean and interval by Student's t over the tasks. A single task has no bounds, except for `low` and
        `high`; the mean is NaN if there are no values or some are not finite.
    """
    count, tasks = sum(map(len, groups)), len(groups)
    try:
        average = math.fsum(value for group in groups for value in group) / count
        squares = math.fsum(math.fsum(value - average for value in group) ** 2 for group in groups)
        half = t_quantile(tasks - 1) * math.sqrt(tasks / (tasks - 1) * squares) / count if tasks > 1 else math.inf
    except (ArithmeticError, ValueError):  # no values, infinities of both signs, or an overflow
        average, half = math.nan, math.inf
    if not half < math.inf:
        return Interval(average, low, high)
    return Interval(average, max(low, average - half), min(high, average + half))


def clustered_share(groups: Sequence[Sequence[float]], trials: int | None = None) -> Interval:
    """Return a share with Wilson's interval, computed for the effective number of independent values.

    That number is p (1 - p) / se^2 with the standard error of `clustered_mean`, kept between the number of tasks and
    `trials`; it is the number of tasks if all values are equal. Unlike a mean's interval, this one keeps its coverage
    when nearly all tasks are solved or almost none is.

    >>> clustered_share([[True], [False]]) == share(1, 2)
    True
    >>> clustered_share([[True, True], [False, False]]) == share(1, 2)  # the second values add nothing
    True
    >>> clustered_share([[0.5], [0.5], [0.0], [1.0]], 8) == clustered_share([[1, 0], [1, 0], [0, 0], [1, 1]])
    True

    Args:
        groups: The values of each task, in [0, 1]; at least one for each.
        trials: The most independent values that they can be worth; by default their number.
    """
    count = sum(map(len, groups))
    tasks = len(groups)
    trials = count if trials is None else trials
    if count == 0:
        return share(0, 0)
    average, low, _ = clustered_mean(groups)
    error = (average - low) / t_quantile(tasks - 1) if tasks > 1 else math.inf
    effective = average * (1 - average) / error**2 if 0 < error < math.inf else tasks
    effective = min(max(effective, tasks), trials)
    return share(average * effective, effective)


def pass_at_k(samples: int, solved: int, k: int) -> float:
    """Return the unbiased estimate of the probability that one of k samples is solved, 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021, Evaluating Large Language Models Trained on Code, equation 1.

    >>> pass_at_k(2, 1, 1), pass_at_k(2, 1, 2), pass_at_k(4, 1, 2)
    (0.5, 1.0, 0.5)

    Args:
        samples, solved: n, at least k, and c of them.
        k: Number of samples drawn.
    """
    if samples - solved < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(samples - solved + 1, samples + 1)))


def pass_hat_k(samples: int, solved: int, k: int) -> float:
    """Return the unbiased estimate of the probability that all of k samples are solved, C(c, k) / C(n, k).

    It is pass^k of Yao et al. 2024, tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains.

    >>> pass_hat_k(2, 1, 1), pass_hat_k(2, 1, 2), pass_hat_k(4, 3, 2)
    (0.5, 0.0, 0.5)
    """
    return math.comb(solved, k) / math.comb(samples, k)


def score_families(outcomes: Iterable[tuple[str, str, str, float]]) -> dict[str, list[float]]:
    """Return the success by environment, split and family.

    Args:
        outcomes: For each episode its environment's id, split, family, and 1 if it was solved, else 0. Episodes without
            a family ("") are left out.

    Returns:
        1 or 0 of each episode, by the name among metrics, sorted: ENV/FAMILY over all splits; if the environment has
        several splits, also ENV/SPLIT and ENV/SPLIT/FAMILY.

    >>> list(score_families([("A/X-v0", "seen", "put", 1), ("A/X-v0", "unseen", "put", 0)]).items())[:3]
    [('X-v0/put', [1.0, 0.0]), ('X-v0/seen', [1.0]), ('X-v0/seen/put', [1.0])]
    """
    played = [outcome for outcome in outcomes if outcome[2]]
    splits = {env_id: {split for other, split, *_ in played if other == env_id} for env_id, *_ in played}
    scores: dict[str, list[float]] = defaultdict(list)
    for env_id, split, family, success in played:
        parts = (family, split, f"{split}/{family}") if len(splits[env_id]) > 1 else (family,)
        for part in parts:
            scores[f"{env_id.rpartition('/')[2]}/{part}"].append(float(success))
    return dict(sorted(scores.items()))
