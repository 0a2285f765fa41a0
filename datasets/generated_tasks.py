"""What generated tasks share: the sizes of their splits, the choice of families, one object in a process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from agent_envs.checks import choice, shown
from agent_envs.errors import ConfigError
from agent_envs.per_process import PerProcess
from agent_envs.tasks import IndexedTasks

__all__ = ["GeneratedTasks", "parse_families"]

T = TypeVar("T")
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
        found: Self = _shared.get((cls, *tasks._arguments), lambda: tasks)
        return found

    def __len__(self) -> int:
        return self.sizes[self.split]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).shared, self._arguments


def parse_families(families: str | Iterable[str] | None, known: Iterable[str]) -> tuple[str, ...]:
    """Return the names of families in the order of `known`; None and "all" mean all, and a text has commas in it.

    >>> parse_families("find, count", ("chart", "count", "find")), parse_families(None, ("chart", "count"))
    (('count', 'find'), ('chart', 'count'))
    """
    known = tuple(known)
    if families is None or families == "all":
        return known
    given = families.split(",") if isinstance(families, str) else families
    names = list(given) if isinstance(given, Iterable) else []
    if not names:
        raise ConfigError(f"families must be 'all' or names of {', '.join(known)}, got {shown(families)}")
    wanted = [choice("families", name.strip() if isinstance(name, str) else name, known) for name in names]
    return tuple(name for name in known if name in wanted)
