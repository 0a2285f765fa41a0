"""Which releases of a package this one is written against: another one is refused, with what to install."""

from __future__ import annotations

import re
from importlib import metadata

from agent_envs.errors import ConfigError, MissingExtraError

__all__ = ["check_release"]

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def check_release(package: str, first: str, below: str | None, extra: str) -> None:
    """Make sure that a release is installed with which this package works.

    Args:
        package: The distribution's name.
        first: The oldest release that will do.
        below: The oldest release after it that will not do, or None where only ``first`` will.
        extra: The extra of this project that brings one.

    Raises:
        MissingExtraError: It is not installed.
        ConfigError: Another release is installed.
    """
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError as e:
        raise MissingExtraError(package, extra=extra) from e
    if found == first or (below is not None and _numbers(first) <= _numbers(found) < _numbers(below)):
        return
    good = first if below is None else f"{first} and later releases before {below}"
    wanted = f"{package}=={first}" if below is None else f"{package}>={first},<{below}"
    age = "old" if _numbers(found) < _numbers(first) else "new"
    raise ConfigError(
        f"agent_envs works with {package} {good}, found {package} {found}, which is too {age}; install it "
        f"with: pip install '{wanted}' "
        f"(or 'agent-envs[{extra}]' with the project's constraints file)"
    )


def _numbers(version: str) -> list[int]:
    """A version's numbers without zeros at the end; pre-releases count as the release that they lead to.

    >>> _numbers("1.20.0rc1")
    [1, 20]
    """
    match = _NUMBERS.match(version)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
