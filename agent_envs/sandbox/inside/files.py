"""Files in memory: what `open` reads inside the sandbox, where no system call takes a path."""

from __future__ import annotations

import builtins
import io
import os
import stat
from typing import Any

_real_open = io.open
_real_stat = os.stat
_real_list = os.listdir


def install_files(files: dict[str, bytes]) -> None:
    """Have `open`, `os.stat` and `os.listdir` find these files; every other path goes to the kernel, which refuses."""

    def name_of(path: Any) -> str | None:
        if isinstance(path, int):
            return None
        name = os.fsdecode(path)
        name = name.removeprefix("/").removeprefix("./")
        return name if name in files else None

    def open_file(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        name = name_of(file)
        if name is None:
            return _real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if set(mode) - set("rbtU"):
            raise PermissionError(1, "files can only be read here", name)
        raw = _MemoryFile(files[name])
        raw.name = name
        if "b" in mode:
            return raw
        return io.TextIOWrapper(raw, encoding or "utf-8", errors, newline)

    def stat_file(path: Any, *args: Any, **kwargs: Any) -> Any:
        name = name_of(path)
        if name is not None:
            return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, len(files[name]), 0, 0, 0))
        return _real_stat(path, *args, **kwargs)

    def list_files(path: Any = ".") -> list[str]:
        return sorted(files) if path in (".", "./", None) else _real_list(path)

    builtins.open = open_file
    io.open = open_file
    os.stat = stat_file
    os.listdir = list_files  # type: ignore[assignment]


class _MemoryFile(io.BytesIO):
    name = ""
