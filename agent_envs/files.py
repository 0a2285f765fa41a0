"""Reading and writing files so that neither a killed process nor another writer leaves them broken, on any platform."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gzip
import json
import os
import shutil
import stat
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import DataError, first_line

MAX_ROW_BYTES = 1 << 26
"""Longest row of a data file, in bytes: a longer one means that the file is something else."""
_MAX_RECORD_BYTES = 1 << 28  # what a `JSONLines` file may hold in a line, such as a long episode
_MAX_PACKED_GROWTH = 100  # how many times its size a packed file may grow, from 16 MiB on: texts take about a tenth
_NONBLOCKING = 0 if os.name == "nt" else os.O_NONBLOCK  # opening a pipe that nobody writes to does not wait
_LOCKED_BYTE = 0x7FFFFFFE  # Windows locks bytes, and keeps others from reading them: one that hardly any file has


@functools.cache
def table(package: str, name: str) -> Any:
    """Return the contents of a JSON file that is shipped with a package, arrays as tuples. It is read only once.

    Args:
        package: The package that holds the file: `__package__` for a module next to it.
        name: The file's name.
    """
    return _immutable(json.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8")))


def data_dir() -> Path:
    """Return the folder of prepared data and fetched models: `$AGENT_ENVS_DATA`, or `~/.cache/agent_envs`."""
    return Path(os.environ.get("AGENT_ENVS_DATA") or "~/.cache/agent_envs").expanduser()


def _immutable(value: Any) -> Any:
    """Turn lists, in objects too, into tuples."""
    if isinstance(value, dict):
        return {key: _immutable(item) for key, item in value.items()}
    return tuple(map(_immutable, value)) if isinstance(value, list) else value


def open_data(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file to read bytes: a regular one, since a pipe or a device may never answer and never end.

    Raises:
        OSError: It is not one, or cannot be opened.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NONBLOCKING))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return file


def read_text(path: str | os.PathLike[str], longest: int = MAX_ROW_BYTES) -> str:
    """Return the UTF-8 text of a regular file, with "\\n" as line breaks.

    Raises:
        OSError: It is something else, cannot be read, or has more than `longest` bytes.
        UnicodeDecodeError: It holds other bytes.
    """
    with open_data(path) as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise OSError(errno.EINVAL, f"larger than {longest >> 20} MiB", os.fspath(path))
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_object(
    path: str | os.PathLike[str], expected: str = "a JSON object", longest: int = MAX_ROW_BYTES
) -> dict[str, Any]:
    """Return the JSON object in a file; a DataError where it is not what is `expected`, or has over `longest` bytes."""
    try:
        value = json.loads(read_text(path, longest))
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{os.fspath(path)}: cannot be read as {expected}: {first_line(e)}") from e
    if not isinstance(value, dict):
        raise DataError(f"{os.fspath(path)}: expected {expected}, got {type(value).__name__} {shown(value)}")
    return value


def unpacked_limit(file: BufferedReader) -> int:
    """Return how many bytes an open packed file may unpack to."""
    return max(1 << 24, _MAX_PACKED_GROWTH * os.fstat(file.fileno()).st_size)


def numbered_lines(path: Path, longest: int = MAX_ROW_BYTES) -> Iterator[tuple[int, bytes]]:
    """Read the lines of a file that are not blank, each with its number; a name that ends in .gz is decompressed.

    A DataError names a file that cannot be read, has a line of more than `longest` bytes, or unpacks beyond measure.
    """
    try:
        with open_data(path) as opened, gzip.open(opened) if path.name.endswith(".gz") else opened as file:
            left, number = sys.maxsize if file is opened else unpacked_limit(opened), 0
            while line := file.readline(min(longest, left) + 1):
                number += 1
                if len(line) > longest:
                    raise DataError(f"{path}, line {number}: longer than {longest >> 20} MiB; expected one row a line")
                left -= len(line)
                if left < 0:
                    raise DataError(f"{path}, line {number}: unpacks to more than {_MAX_PACKED_GROWTH} times its size")
                if not line.isspace():
                    yield number, line
    except (OSError, EOFError, zlib.error) as e:
        raise DataError(f"{path} cannot be read: {e}") from e


class JSONLines:
    """A file of JSON objects, one a line, that threads and processes may add to and read at the same time.

    Use it wherever a program keeps a file of records (episodes, metrics, calls), so that all of them survive in the
    same way: rows are written whole or not at all, under a lock on the file, and a process killed while it writes
    leaves at most a half line at the end, which readers skip and the next writer removes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = JSONLines(Path(folder, "run", "metrics.jsonl"))
    ...     rows.append({"step": 1}, {"step": 2})
    ...     with rows.path.open("a") as file:
    ...         _ = file.write('{"st')
    ...     rows.append({"step": 3})
    ...     list(rows)
    [{'step': 1}, {'step': 2}, {'step': 3}]

    Args:
        path: The file. Writers create it and its folders; readers also take a packed one (``.gz``).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Add rows at the end, all of them or none: after an OSError the file is as it was. No rows remove a half line.

        A DataError says that its last line is not a row's beginning, so that the file holds something else.
        """
        data = memoryview("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        with FileLock(self.path) as lock:
            file = lock.file
            end = _end_of_whole_lines(file)
            file.seek(end)
            if file.read(1) not in (b"", b"{"):
                raise DataError(f"{self.path} ends in a line that no record begins like; rows cannot be added to it")
            file.truncate(end)
            try:
                while data:
                    data = data[file.write(data) :]
            except BaseException:
                file.truncate(end)
                raise

    def replace(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rewrite the whole file; until that is done, and after an OSError, readers see the old rows."""
        with replacing(self.path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read the rows one at a time; raises what `numbered` raises."""
        return (row for _, row in self.numbered())

    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows one at a time, each with its line number for error messages.

        Raises:
            DataError: The file cannot be read, or a line is not a JSON object; names the file and the line.
        """
        for number, line in numbered_lines(self.path, _MAX_RECORD_BYTES):
            row = _row(line, f"{self.path}, line {number}")
            if row is not None:  # else a writer was killed here, or is still writing
                yield number, row

    def after(self, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read the rows that begin at a byte offset or later, each with the offset of the next one.

        A last line without its line break is left for a later call.

        Raises:
            OSError: The file cannot be opened.
            DataError: A line is not a JSON object; names the file and the offset.
        """
        with open_data(self.path) as file:
            file.seek(offset)
            for line in iter(lambda: file.readline(_MAX_RECORD_BYTES + 1), b""):
                where = f"{self.path}, the line at byte {offset}"
                if len(line) > _MAX_RECORD_BYTES:
                    raise DataError(f"{where}: longer than {_MAX_RECORD_BYTES >> 20} MiB; expected one row a line")
                if not line.endswith(b"\n"):
                    return
                offset += len(line)
                yield offset, _row(line, where) or {}


def _row(line: bytes, where: str) -> dict[str, Any] | None:
    """Return the object that a line holds; None if it is the beginning of one, without its line break."""
    try:
        row = json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as e:
        if not line.endswith(b"\n"):
            return None
        raise DataError(f"{where}: not valid JSON: {e}") from e
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected a JSON object, got {shown(row)}")
    return row


def _end_of_whole_lines(file: FileIO) -> int:
    """Return the offset after a file's last line break."""
    end, block = file.seek(0, os.SEEK_END), 1  # a file that ends as it should takes one read of one byte
    while end:
        start = max(0, end - block)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end, block = start, 1 << 16
    return 0


class FileLock(contextlib.AbstractContextManager["FileLock", None]):
    """A file that is locked against other threads and processes until it is closed or the process ends.

    Args:
        path: The file; it is created, with its folders, where it is missing. Once locked it is open in ``file``, for
            reading and appending.
        wait: Whether to wait while another process holds the lock.

    Raises:
        BlockingIOError: Another process holds the lock, and ``wait`` is false.
        OSError: The file cannot be opened for writing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, FileLock(Path(folder, "lock")):
    ...     try:
    ...         FileLock(Path(folder, "lock"), wait=False)
    ...     except BlockingIOError:
    ...         "held by another"
    'held by another'
    """

    def __init__(self, path: str | os.PathLike[str], *, wait: bool = True) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            if path.exists() and not path.is_file():  # to open a pipe may wait for ever
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            self.file: FileIO = path.open("a+b", buffering=0)
            try:
                _lock(self.file.fileno(), wait)
                if path.exists() and os.path.samestat(os.fstat(self.file.fileno()), path.stat()):
                    return
            except BaseException:
                self.file.close()
                raise
            self.close()  # another file has taken the path meanwhile: lock that one

    def close(self) -> None:
        """Release the lock."""
        if not self.file.closed:
            _unlock(self.file.fileno())
            self.file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    def _lock(file: int, wait: bool) -> None:
        while True:
            os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
                return
            except OSError as e:
                if not wait:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from e
            time.sleep(0.01)

    def _unlock(file: int) -> None:
        os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]

else:

    def _lock(file: int, wait: bool) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a child forked meanwhile has the file open as well


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Replace a file in one step: yields a temporary path beside it, which is moved to ``path`` at the end.

    Readers see the old file or the new one, never a part. After an error the old one stays. Of two writers at once the
    last one wins. Missing folders are created.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a", "b.txt")) as partial:
    ...         _ = partial.write_text("whole")
    ...     Path(folder, "a", "b.txt").read_text()
    'whole'

    Raises:
        OSError: ``path`` is a folder or a device, or cannot be written.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not target.is_file():  # a device: /dev/null must stay what it is
        raise OSError(errno.EINVAL, "not a regular file", str(target))
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


def move_folder(folder: Path, target: Path) -> None:
    """Rename a folder to ``target``, and remove what was there: a kill at any time leaves the old one or the new one.

    Where a file system cannot exchange folders, a kill may leave the old one beside it as ``.NAME.old``, which the next
    call puts back.

    Raises:
        OSError: It cannot be renamed; both are as they were.
    """
    aside = target.with_name(f".{target.name[:100]}.old")
    if aside.exists() and not target.exists():
        os.replace(aside, target)
    if not os.path.lexists(target):
        os.replace(folder, target)
    elif not target.is_symlink() and _exchange(folder, target):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(target, aside)
        try:
            os.replace(folder, target)
        except OSError:
            os.replace(aside, target)
            raise
        aside.unlink() if aside.is_symlink() else shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, two: Path) -> bool:
    """Exchange two folders in one step; False if they stay, as where the system cannot do that."""
    if sys.platform != "linux":
        return False
    try:
        exchange = ctypes.CDLL(None).renameat2
    except AttributeError:  # a C library without it
        return False
    return exchange(-100, os.fsencode(one), -100, os.fsencode(two), 2) == 0  # AT_FDCWD, RENAME_EXCHANGE


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` in UTF-8; the file appears whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def allow_open_files() -> None:
    """Raise the soft limit on open files, often 1024, to the hard limit: a server's connections count as files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
