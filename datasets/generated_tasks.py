"""What generated tasks share: their random choices, the sizes of their splits, the choice of families and of levels.

The choices of a task are a stream of integers per name, the same on every platform and in every version.
"""

from __future__ import annotations

import hashlib
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from itertools import count
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from agent_envs.checks import choice, shown
from agent_envs.errors import ConfigError
from agent_envs.per_process import PerProcess
from agent_envs.tasks import IndexedTasks

T = TypeVar("T")

_BLOCK_BYTES = 1024


class Impossible(Exception):  # noqa: N818  (a signal that the generator catches, not a failure)
    """Raised when a choice does not fit the state, so that the generator draws another one."""


class Draws:
    """Random choices from a stream of integers in 0 .. 2**64 - 1, of which `more` returns the next ones."""

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
        """Draw one of the choices; raises Impossible if there is none."""
        return choices[self.between(0, len(choices) - 1)]


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


class Range(NamedTuple):
    """Both ends of a range of integers; its text is "1-8", or "2" if both ends are the same."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}" if self.low != self.high else str(self.low)


def parse_range(name: str, value: int | str | Sequence[int], lowest: int, highest: int) -> Range:
    """Return a range of one-digit integers, from which a generator draws evenly.

    >>> print(parse_range("level", 2, 1, 8), parse_range("level", "3", 1, 8), parse_range("level", (1, 8), 1, 8))
    2 3 1-8
    """
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    text = "-".join(map(str, value)) if pair else str(value)  # type: ignore[arg-type]
    match = re.fullmatch(rf"([{lowest}-{highest}])(?:-([{lowest}-{highest}]))?", text)
    if match is None or isinstance(value, bool) or int(match[1]) > int(match[2] or match[1]):
        example = f"{lowest}-{highest}"
        raise ConfigError(
            f"{name} must be an integer from {lowest} to {highest} or a range like {example!r}, got {shown(value)}"
        )
    return Range(int(match[1]), int(match[2] or match[1]))


_shared: PerProcess[Any] = PerProcess(keep=64)


class GeneratedTasks(IndexedTasks[T]):
    """The generated tasks of one split: task i is a function of the split's name, i and the arguments alone.

    Args:
        split: A key of `sizes`.
        *arguments: All that a subclass takes, as its constructor takes them again; equal ones give the same tasks.
        cache: As for `IndexedTasks`.
    """

    sizes: ClassVar[Mapping[str, int]] = {"train": 100_000, "validation": 1_000, "test": 1_000}
    """How many tasks each split has."""

    def __init__(self, split: str, *arguments: Any, cache: int = 0) -> None:
        super().__init__("generated", choice("split", split, self.sizes), cache=cache)
        self._arguments = arguments

    @classmethod
    def shared(cls, *arguments: Any) -> Self:
        """Return the tasks of some arguments, one object in a process, so that environments share what it keeps."""
        tasks = cls(*arguments)
        return _shared.get((cls, *tasks._arguments), lambda: tasks)

    def __len__(self) -> int:
        return self.sizes[self.split]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).shared, self._arguments


def parse_families(families: object, known: Iterable[str], argument: str = "families") -> tuple[str, ...]:
    """Return the names of families in the order of `known`; None and "all" mean all, and a text has commas in it.

    >>> parse_families("find, count", ("chart", "count", "find")), parse_families(None, ("chart", "count"))
    (('count', 'find'), ('chart', 'count'))
    """
    known = tuple(known)
    if families is None or families == "all":
        return known
    asked = families.split(",") if isinstance(families, str) else families
    names = list(asked) if isinstance(asked, Iterable) else []
    if not names:
        raise ConfigError(f"{argument} must be 'all' or names of {', '.join(known)}, got {shown(families)}")
    wanted = [choice(argument, name.strip() if isinstance(name, str) else name, known) for name in names]
    return tuple(name for name in known if name in wanted)
