"""Files that appear whole or not at all, and files that are read line by line, packed or not."""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_envs.errors import DataError

__all__ = ["numbered_lines", "replacing", "write_text"]


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
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.partial")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` in UTF-8."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
