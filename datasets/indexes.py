"""Indexes over the data of tasks: kept in `data_dir() / "indexes"`, built once and opened by every process."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from agent_envs.errors import BackendBusyError, ConfigError, DataError
from agent_envs.files import data_dir
from agent_envs.per_process import PerProcess
from agent_envs.tasks import FileStamp

T = TypeVar("T")

opened: PerProcess[Any] = PerProcess(keep=32)
"""The indexes of this process."""
BYTES_IN_MEMORY = 32 << 20
"""Size of the files up to which their index is built in memory, in about a second, and not kept."""
_LONGEST_WAIT = 3600.0  # seconds for another process that builds the same index


def cached_index(name: str, build: Callable[[Path], T], open_index: Callable[[Path], T]) -> T:
    """Return the index of a name, which must change with its contents, building it in a folder if it is missing.

    On disk it appears only when it is complete. A damaged one is built again; if it stays, it is a ConfigError.
    """
    folder = data_dir() / "indexes" / name
    until = time.monotonic() + _LONGEST_WAIT
    while True:
        if folder.exists():
            try:
                return open_index(folder)
            except DataError as e:
                shutil.rmtree(folder, ignore_errors=True)
                if folder.exists():
                    raise ConfigError(f"{folder} is damaged and could not be removed; delete it ({e})") from e
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            return build(folder)
        except ConfigError:
            if not folder.exists():  # otherwise another process was faster
                raise
        except BackendBusyError:  # another process is building it
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def shared_index(
    name: str, rows: Callable[[], Any], build: Callable[..., T], open_index: Callable[[Path], T], *, small: bool
) -> T:
    """Return the index of some rows, one object in a process: in memory if it is `small`, else that of `cached_index`.

    `build` takes the rows and, of an index on disk, its folder and `progress`.
    """

    def make() -> T:
        if small:
            return build(rows())
        return cached_index(name, lambda folder: build(rows(), folder, progress=True), open_index)

    return opened.get(name, make)


def stamps_digest(stamps: tuple[FileStamp, ...]) -> str:
    """Return a digest of the state of some files, for the name of an index made from them."""
    return hashlib.blake2b(repr(stamps).encode(), digest_size=12).hexdigest()
