"""What a server knows of one client's session, and the limits of all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from agent_envs.errors import AgentEnvsError
from agent_envs.serving.workers.process import WorkerProcess

__all__ = ["Answered", "ClientSession", "Limits"]

Answered = Callable[[str, int], None]
"""Gets the text of an answer and its flags."""


@dataclass(frozen=True)
class Limits:
    """The limits of a server, as in `EnvServer`; memory and messages in bytes, the rest in seconds or numbers."""

    workers: int
    max_episodes: int
    max_waiting: int
    max_message: int
    step_timeout: float
    stall_timeout: float
    idle_timeout: float
    worker_memory: float
    episode_bytes: float

    @property
    def max_clients(self) -> int:
        """Most clients at once, with or without an episode."""
        return 2 * self.max_episodes + 64


@dataclass(eq=False)
class ClientSession:
    """One client's session."""

    env: str
    """The environment's name."""
    number: int
    """What the worker knows it by."""
    worker: WorkerProcess
    """Plays it."""
    on_end: Callable[[AgentEnvsError, str], None]
    """Called with the reason and its code when the server ends the session."""
    idle_timeout: float
    """Seconds without a message that end it."""
    since: float
    """When the running call began or the last one ended (seconds of the loop's clock)."""
    answered: Answered | None = field(default=None, init=False)
    """Gets the answer to the running call."""
    running: bool = field(default=False, init=False)
    """Whether the worker has not answered yet; it may go on after the session's end."""
    limit: float = field(default=math.inf, init=False)
    """Seconds that the running call may take."""
    holds: bool = field(default=False, init=False)
    """Whether it has an environment, or may make one now."""
    playing: bool = field(default=False, init=False)
    """Whether its episode has begun and has not ended."""
    bytes: int = field(default=0, init=False)
    """Of its messages and answers since its episode began."""
