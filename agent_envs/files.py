"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_text"]


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
