"""What tests of several folders do: wait for something, and fill a disk."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Wait until a condition holds, at most some seconds; return whether it does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def full_disk(room: int = 1) -> Iterator[None]:
    """No file grows beyond some bytes, which fails in the same calls as a full disk does."""
    import resource  # on Linux and macOS alone

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
