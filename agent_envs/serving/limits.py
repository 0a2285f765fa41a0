"""What a server of environments allows: the keyword arguments of `EnvServer` and the options of `agentr1 serve`."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from agent_envs.checks import integer, number
from agent_envs.serving.protocol import MAX_MESSAGE

_MOST_WORKERS = 0 if os.name == "nt" else 1024  # Windows inherits no sockets


def _cores() -> int:
    pinned = hasattr(os, "sched_getaffinity")  # not on macOS
    return min(len(os.sched_getaffinity(0)) if pinned else os.cpu_count() or 1, _MOST_WORKERS)


@dataclass(kw_only=True)
class Limits:
    """The limits of a server; a ConfigError says which is out of range."""

    workers: int = field(default_factory=_cores)
    """Processes that play the episodes; by default one for each core. With 0 they are played in threads of this
    process, which knows environments that are registered here alone, and cannot end a step that hangs."""
    max_episodes: int = 256
    """Most clients at once, each with an episode; further ones are refused."""
    max_waiting: int = 1024
    """Most messages of all clients that may wait for an answer; further ones are refused."""
    step_timeout: float = 120.0
    """Seconds a step may take; then the client gets an error and its episode ends. If the step has not returned after
    as long again, its worker is replaced, and the worker's other episodes end too."""
    stall_timeout: float = 30.0
    """Seconds a step may hold the interpreter, so that nothing else runs in its worker, which is replaced then."""
    idle_timeout: float = 1800.0
    """Seconds without a message after which an episode ends."""
    ping: float = 20.0
    """Seconds between pings; a client that answers none for half as long is gone."""
    max_message: int = MAX_MESSAGE
    """Bytes of the longest message."""
    worker_memory: float = 0.0
    """Megabytes that a worker may take before it is replaced; with 0 they share four fifths of the machine's."""
    episode_bytes: int = 512 << 20
    """Bytes of the messages and answers of an episode."""

    def __post_init__(self) -> None:
        integer("workers", self.workers, minimum=0, maximum=_MOST_WORKERS)
        for name in ("max_episodes", "max_waiting", "max_message", "episode_bytes"):
            integer(name, getattr(self, name), minimum=1)
        if not self.worker_memory:
            self.worker_memory = 0.8 * _machine_memory() / max(1, self.workers) / (1 << 20) or math.inf
        for name in ("step_timeout", "stall_timeout", "idle_timeout", "ping", "worker_memory"):
            if getattr(self, name) != math.inf:
                number(name, getattr(self, name), above=0)


def _machine_memory() -> int:
    """Return the bytes of memory of this machine or container, or 0 if that is not known."""
    known = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known, default=0)
