"""What a process has once: what is made when first used, what copies share, and the names of a package."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Shared:
    """Something that all copies of an environment share, because it never changes or is only a cache."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Self:
        return self


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

    def get(self, key: Hashable, make: Callable[[], T], *, instead_of: T | None = None) -> T:
        """Return the value of a key, which `make` makes if there is none; threads that wait for it get the same.

        If the value is `instead_of`, it is made anew.
        """
        with self._lock:
            if key not in self._values or (instead_of is not None and self._values[key] is instead_of):
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


def lazy_names(
    package: str, public: Collection[str], homes: Mapping[str, str], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__`, which imports names on first use, and its `__dir__`, which lists public names.

    Args:
        package, public: The package's `__name__` and `__all__`.
        homes: The names to import on first use, each with the module that defines it, relative to `package`.
        submodules: Modules of the package that are attributes of it without being imported by the user.

    >>> load, names = lazy_names("agent_envs.policies", ["OpenAIPolicy"], {"OpenAIPolicy": "openai.policy"})
    >>> load("OpenAIPolicy").__name__, names()
    ('OpenAIPolicy', ['OpenAIPolicy'])
    """

    def load(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*public, *submodules})

    return load, names
