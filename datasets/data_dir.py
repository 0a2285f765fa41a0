"""Where prepared data lives. A module of its own, so that everything that reads or writes such data can import it."""

from __future__ import annotations

import os
from pathlib import Path

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, DataError

__all__ = ["data_dir", "data_name", "official_dir", "user_path"]


def data_dir() -> Path:
    """Return the folder of prepared data: `$AGENT_ENVS_DATA`, or `~/.cache/agent_envs`."""
    return Path(os.environ.get("AGENT_ENVS_DATA") or "~/.cache/agent_envs").expanduser()


def official_dir(task: str) -> Path:
    """Return the folder in which `agentr1 prepare TASK` put the data that `data="official"` reads.

    Raises:
        DataError: It has not been prepared.
    """
    path = data_dir() / task
    if not path.is_dir():
        raise DataError(f"the official data of {task!r} is not at {path}; fetch it with: agentr1 prepare {task}")
    return path


def data_name(data: str | os.PathLike[str]) -> str:
    """Return the argument `data` of an environment as a string.

    Raises:
        ConfigError: It is neither a non-empty string nor a path.

    >>> data_name(Path("rows.jsonl"))
    'rows.jsonl'
    """
    name = os.fspath(data) if isinstance(data, os.PathLike) else data
    if not isinstance(name, str) or not name:
        raise ConfigError(f"data must be 'generated', 'official' or a path, got {shown(data)}")
    return name


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that a user wrote, with `~` expanded.

    Raises:
        DataError: The system refuses it: too long, or the home of a user who does not exist.
    """
    try:
        expanded = Path(path).expanduser()
        expanded.exists()  # raises where the system refuses the name itself
    except (OSError, RuntimeError, ValueError) as e:
        raise DataError(f"{os.fspath(path)[:100]!r} is not a usable path: {getattr(e, 'strerror', None) or e}") from e
    return expanded
