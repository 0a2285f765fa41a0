"""Random choices of generated tasks: a stream of integers per name, the same on every platform and for ever."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from itertools import count
from typing import TypeVar

__all__ = ["Draws", "Impossible", "stream"]

T = TypeVar("T")

_BLOCK_BYTES = 1024


class Impossible(Exception):  # noqa: N818  (caught by the generator: this event does not fit here)
    """An event cannot happen in this state: it would leave a fraction, nothing or too much."""


class Draws:
    """Random choices from a stream of 64-bit integers, the same on every platform and version.

    Args:
        more: Gives the next integers of the stream, each in 0 .. 2**64 - 1.
    """

    __slots__ = ("_buffer", "_more")

    def __init__(self, more: Callable[[], MutableSequence[int]]) -> None:
        self._more = more
        self._buffer: MutableSequence[int] = []

    def between(self, low: int, high: int) -> int:
        """An integer from low to high, both included; Impossible where there is none."""
        if high < low:
            raise Impossible
        try:
            drawn = self._buffer.pop()
        except IndexError:
            self._buffer = self._more()
            drawn = self._buffer.pop()
        return low + (drawn * (high - low + 1) >> 64)

    def pick(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        try:
            drawn = self._buffer.pop()
        except IndexError:
            self._buffer = self._more()
            drawn = self._buffer.pop()
        return choices[drawn * len(choices) >> 64]


def stream(name: str) -> Draws:
    """The random choices of one task: the output of SHAKE-128 on its name."""
    blocks = count()

    def more() -> MutableSequence[int]:
        block = array("Q", hashlib.shake_128(f"{name}#{next(blocks)}".encode()).digest(_BLOCK_BYTES))
        if sys.byteorder == "big":
            block.byteswap()
        return block

    return Draws(more)
