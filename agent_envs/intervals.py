"""Estimates with their 95 % confidence intervals: shares, differences of shares, means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Interval", "difference", "mean", "share", "t_quantile"]

_Z = 1.959964


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def share(successes: float, trials: int) -> Interval:
    """A share and its Wilson score interval (Wilson 1927).

    >>> tuple(round(x, 3) for x in share(128, 256))
    (0.5, 0.439, 0.561)
    """
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0)
    p = successes / trials
    center = (p + _Z**2 / (2 * trials)) / (1 + _Z**2 / trials)
    half = _Z * math.sqrt(p * (1 - p) / trials + _Z**2 / (4 * trials**2)) / (1 + _Z**2 / trials)
    return Interval(p, max(0.0, center - half), min(1.0, center + half))


def difference(before: float, trials_before: int, after: float, trials_after: int) -> Interval:
    """The difference of two independent shares, `after - before`, with the Agresti-Caffo interval (2000).

    It takes the two shares as independent; the same tasks played before and after make the true interval narrower.

    >>> tuple(round(x, 2) for x in difference(0.48, 256, 0.82, 256))
    (0.34, 0.26, 0.41)
    """
    if trials_before == 0 or trials_after == 0:
        return Interval(math.nan, -1.0, 1.0)
    p = (before * trials_before + 1) / (trials_before + 2)
    q = (after * trials_after + 1) / (trials_after + 2)
    half = _Z * math.sqrt(p * (1 - p) / (trials_before + 2) + q * (1 - q) / (trials_after + 2))
    return Interval(after - before, max(-1.0, q - p - half), min(1.0, q - p + half))


def mean(values: Sequence[float]) -> Interval:
    """A mean and its interval by Student's t. One value says nothing of its spread: its interval is unbounded.

    >>> tuple(round(x, 2) for x in mean([1.0, 2.0, 3.0, 4.0]))
    (2.5, 0.45, 4.55)
    """
    x = np.asarray(values, dtype=float)
    if len(x) == 0:
        return Interval(math.nan, -math.inf, math.inf)
    value = float(x.mean())
    if len(x) == 1:
        return Interval(value, -math.inf, math.inf)
    half = t_quantile(len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(value, value - half, value + half)


def t_quantile(freedom: int) -> float:
    """The 97.5 % point of Student's t with `freedom` degrees of freedom, to three digits.

    Above two degrees by the expansion of Abramowitz and Stegun 26.7.5.

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
