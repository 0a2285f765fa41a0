"""Packages import some of their names when they are first used, so that importing the package stays fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, public: Collection[str], homes: Mapping[str, str], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__getattr__`, which imports names on first use, and its `__dir__`, which lists public names.

    Args:
        package: The package's `__name__`.
        public: The package's `__all__`.
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
