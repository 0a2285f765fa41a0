"""Rewards as pure functions, one module per task, and the sum of rewards."""

from collections.abc import Iterable

from agent_envs.rewards import math_answers, short_answers

__all__ = ["math_answers", "short_answers", "total"]


def total(values: Iterable[float]) -> float:
    """Return the sum of rewards, added one after another. The built-in `sum` rounds differently since Python 3.12.

    >>> total([0.1] * 10)
    0.9999999999999999
    """
    out = 0.0
    for value in values:
        out += value
    return float(out)


def __dir__() -> list[str]:
    return __all__
