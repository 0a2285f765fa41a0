"""What a process makes once and shares: clients, engines, locks."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["PerProcess"]

T = TypeVar("T")

_everywhere: weakref.WeakSet[PerProcess] = weakref.WeakSet()


class PerProcess(Generic[T]):
    """Values that a process makes when they are first asked for. A fork makes its own, and a pickle takes none along.

    Args:
        keep: How many values stay; the one that was made first goes.
    """

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self.clear()
        _everywhere.add(self)

    def clear(self) -> None:
        """Forget all values."""
        self._lock = threading.RLock()  # making one may need another
        self._values: dict[Hashable, T] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, which `make` makes if there is none; threads that wait for it get the same."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
                for oldest in list(self._values)[: -self._keep] if self._keep else ():
                    del self._values[oldest]
            return self._values[key]

    def pop(self, key: Hashable) -> T | None:
        """Forget the value of a key and return it; None if there is none."""
        with self._lock:
            return self._values.pop(key, None)

    def __reduce__(self) -> tuple[type[PerProcess[T]], tuple[int | None]]:
        return PerProcess, (self._keep,)


def _clear_all() -> None:
    for each in list(_everywhere):
        each.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_clear_all)
