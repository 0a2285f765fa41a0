"""Servers with many connections need many open files, more than a process may have by default."""

from __future__ import annotations

import contextlib

__all__ = ["allow_open_files"]


def allow_open_files() -> None:
    """Raise the soft limit on open files, often 1024, to the hard limit.

    >>> allow_open_files()
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
