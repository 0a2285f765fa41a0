"""The wall time of a benchmark that is stopped and goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_envs.files import read_text, write_text

_COUNTED_EVERY = 5.0  # seconds between two writes of a time


@contextmanager
def counted_seconds(path: Path) -> Iterator[Callable[[], float]]:
    """Add the wall time of the block to the seconds in a file, and yield a function that returns their sum.

    The file is written every few seconds, so that the time of a call that is killed counts too. Without a file, the sum
    begins at 0.
    """
    earlier, began, over = float(read_text(path)) if path.exists() else 0.0, time.monotonic(), threading.Event()

    def seconds() -> float:
        return earlier + time.monotonic() - began

    def keep() -> None:
        done = False
        while not done:
            done = over.wait(_COUNTED_EVERY)
            write_text(path, f"{seconds()}\n")

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()
