"""Files that appear whole or not at all, lines that do, and files that are read line by line, packed or not."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_envs.errors import DataError

__all__ = ["append_line", "end_of_whole_lines", "numbered_lines", "replacing", "write_text"]


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its number; what ends in .gz is unpacked.

    Raises:
        DataError: The file cannot be read; the message names it.
    """
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as e:
        raise DataError(f"{path} cannot be read: {e}") from e


def append_line(path: str | os.PathLike[str], line: str) -> None:
    """Add a line to a file, whole or not at all; any number of threads and processes may do so at once.

    The half line that a killed process left at the end is cut off first. Folders on the way are made.

    Raises:
        OSError: It cannot be written; the file is as it was.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.jsonl")
    ...     _ = path.write_text('{"a": 1}\\n{"a"')
    ...     append_line(path, '{"a": 2}')
    ...     path.read_text().split()
    ['{"a":', '1}', '{"a":', '2}']
    """
    data = f"{line}\n".encode()
    file = _open_locked(Path(path))
    try:
        size = os.fstat(file).st_size
        end = end_of_whole_lines(file, size)
        if end < size:
            os.ftruncate(file, end)
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(file, data[written:], end + written)
        except BaseException:
            os.ftruncate(file, end)
            raise
    finally:
        os.close(file)  # and with it goes the lock


def _open_locked(path: Path) -> int:
    """The file, open and locked against other writers; made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # somebody put another file in its place meanwhile


def end_of_whole_lines(file: int, size: int) -> int:
    """Where the last line that ends, ends (bytes)."""
    end, block = size, 1
    while end:
        start = max(0, end - block)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end, block = start, 1 << 16
    return 0


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside ``path`` to write to, which takes its place at the end and is removed after an error.

    Folders on the way are made. Readers see the file as it was or as it will be; of two writers the last one wins.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a", "b.txt")) as partial:
    ...         _ = partial.write_text("whole")
    ...     Path(folder, "a", "b.txt").read_text()
    'whole'

    Raises:
        OSError: The path is a folder, or there is no writing to it; names ``path``.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        yield partial
        partial.replace(target)
    except OSError as e:
        if e.filename == str(partial):
            e.filename = str(target)
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` in UTF-8."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
