"""Random choices of generated tasks: a stream of integers per name, the same on every platform and in every version."""

from __future__ import annotations

import hashlib
import re
import sys
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from itertools import count
from typing import TypeVar

from agent_envs.checks import shown
from agent_envs.errors import ConfigError

T = TypeVar("T")

_BLOCK_BYTES = 1024


class Impossible(Exception):  # noqa: N818  (a signal that the generator catches, not a failure)
    """Raised when a choice does not fit the state, so that the generator draws another one."""


class Draws:
    """Random choices from a stream of 64-bit integers.

    Args:
        more: Returns the next integers of the stream, each in 0 .. 2**64 - 1.
    """

    __slots__ = ("_buffer", "_more")

    def __init__(self, more: Callable[[], MutableSequence[int]]) -> None:
        self._more = more
        self._buffer: MutableSequence[int] = []

    def between(self, low: int, high: int) -> int:
        """Draw an integer from low to high, both included; raises Impossible if there is none."""
        if high < low:
            raise Impossible
        try:
            drawn = self._buffer.pop()
        except IndexError:
            self._buffer = self._more()
            drawn = self._buffer.pop()
        return low + (drawn * (high - low + 1) >> 64)

    def pick(self, choices: Sequence[T]) -> T:
        """Draw one of the choices."""
        try:
            drawn = self._buffer.pop()
        except IndexError:
            self._buffer = self._more()
            drawn = self._buffer.pop()
        return choices[drawn * len(choices) >> 64]


def stream(name: str) -> Draws:
    """Return the random choices of one task, which are the output of SHAKE-128 on its name."""
    blocks = count()

    def more() -> MutableSequence[int]:
        block = array("Q", hashlib.shake_128(f"{name}#{next(blocks)}".encode()).digest(_BLOCK_BYTES))
        if sys.byteorder == "big":
            block.byteswap()
        return block

    return Draws(more)


def shuffled(draws: Draws, items: Sequence[T]) -> list[T]:
    """Return the items in a drawn order."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = draws.between(0, last)
        order[last], order[other] = order[other], order[last]
    return order


def parse_range(name: str, value: int | str | Sequence[int], lowest: int, highest: int) -> tuple[int, int]:
    """Return both ends of a range of one-digit integers, from which a generator draws evenly.

    >>> parse_range("level", 2, 1, 8), parse_range("level", "3", 1, 8), parse_range("level", "1-8", 1, 8)
    ((2, 2), (3, 3), (1, 8))
    """
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    text = "-".join(map(str, value)) if pair else str(value)  # type: ignore[arg-type]
    match = re.fullmatch(rf"([{lowest}-{highest}])(?:-([{lowest}-{highest}]))?", text)
    if match is None or isinstance(value, bool) or int(match[1]) > int(match[2] or match[1]):
        example = f"{lowest}-{highest}"
        raise ConfigError(
            f"{name} must be an integer from {lowest} to {highest} or a range like {example!r}, got {shown(value)}"
        )
    return int(match[1]), int(match[2] or match[1])


def range_text(low: int, high: int) -> str:
    """Return a range as task ids write it: "1-8", or "2" if both ends are the same."""
    return f"{low}-{high}" if low != high else str(low)
