"""The folder of a run that can be resumed: one process at a time uses it, with the settings it began with."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, DataError
from agent_envs.files import FileLock, write_text

__all__ = ["keep_settings", "locked_folder"]


@contextmanager
def locked_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Create the folder if needed and keep other processes out of it until the block ends.

    Raises:
        ConfigError: The folder cannot be written to, or another process is using it.
    """
    path = Path(folder)
    try:
        lock = FileLock(path / ".lock", wait=False)
    except BlockingIOError as e:
        raise ConfigError(f"another process is using {path}; wait for it or choose another folder") from e
    except OSError as e:
        raise ConfigError(f"cannot write to the folder {path}: {e.strerror}") from e
    with lock:
        yield path


def keep_settings(path: Path, settings: Mapping[str, Any], *, may_change: Collection[str] = ()) -> None:
    """Write a run's settings to a file, or compare them with those already in it.

    Args:
        path: The file, directly in the run's folder.
        settings: Values that JSON can hold; others are written as text.
        may_change: Settings that may differ when the run is resumed, such as its length; the file gets the new values.

    Raises:
        ConfigError: The folder holds a run with other settings; the message lists the differences.
        DataError: The file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.json")
    ...     keep_settings(path, {"seed": 0, "steps": 10}, may_change={"steps"})
    ...     keep_settings(path, {"seed": 0, "steps": 20}, may_change={"steps"})
    ...     json.loads(path.read_text())
    {'seed': 0, 'steps': 20}
    """
    new = json.loads(json.dumps(dict(settings), default=str))
    if path.exists():
        try:
            old = dict(json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as e:
            raise DataError(f"{path} does not hold a run's settings: {e}") from e
        changed = [
            f"{name} was {old.get(name)!r}, now {new.get(name)!r}"
            for name in sorted({*old, *new} - set(may_change))
            if old.get(name) != new.get(name)
        ]
        if changed:
            raise ConfigError(
                f"{path.parent} holds a run with other settings ({'; '.join(changed)}); choose another folder, delete "
                f"this one, or edit {path} if the difference does not matter"
            )
        if old == new:
            return
    write_text(path, json.dumps(new, indent=1) + "\n")
