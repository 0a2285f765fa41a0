"""Functions by name, ``module:function``, so that arguments of environments and wrappers stay text."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from agent_envs.errors import ConfigError

__all__ = ["load_function"]


def load_function(name: str, *, what: str) -> Callable[..., Any]:
    """The function that ``module:function`` names.

    Args:
        name: The module and the function's name in it.
        what: What it is for, for the error text.

    Raises:
        ConfigError: The name has another form, or there is no such function.

    >>> load_function("textwrap:dedent", what="a template")("  a")
    'a'
    """
    module, separator, attribute = name.partition(":")
    if not (separator and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise ConfigError(f"{what} is named module:function, got {name!r:.100}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"{what}: there is no {name}: {e}") from e
    if not callable(found):
        raise ConfigError(f"{what}: {name} is no function, it is {type(found).__name__}")
    return found
