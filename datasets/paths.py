"""Names and paths of data as a user gives them, and the folders that `agentr1 prepare` fills."""

from __future__ import annotations

import os
from pathlib import Path

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import data_dir, table


def official_dir(task: str, get: str = "") -> Path:
    """Return the folder in which `agentr1 prepare TASK` put the data that `data="official"` reads.

    `get` says how it is had, if not with that command alone.

    Raises:
        ConfigError: The task has no official data.
        DataError: It has not been prepared.
    """
    if task not in table(__package__, "released.json"):
        raise ConfigError(f"{task} has no official data set, or several: give the path of its files")
    path = data_dir() / task
    if not path.is_dir():
        get = get or f"fetch it with: agentr1 prepare {task}"
        raise DataError(f"the official data of {task!r} is not at {path}; {get}")
    return path


def data_name(data: str | os.PathLike[str]) -> str:
    """Return the argument `data` of an environment as a string; ConfigError if it is no path or empty."""
    name = os.fspath(data) if isinstance(data, os.PathLike) else data
    if not isinstance(name, str) or not name:
        raise ConfigError(f"data must be 'generated', 'official' or a path, got {shown(data)}")
    return name


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded; DataError if it is the home of an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as e:
        raise DataError(f"{os.fspath(path)[:100]!r} is not a usable path: {e}") from e


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of data to read, with `~` expanded.

    Raises:
        DataError: The system refuses the path: it is too long, or the home of an unknown user.
    """
    usable = expanded(path)
    try:
        usable.exists()  # raises if the system refuses the name itself
    except (OSError, ValueError) as e:
        raise DataError(f"{os.fspath(path)[:100]!r} is not a usable path: {getattr(e, 'strerror', e)}") from e
    return usable
