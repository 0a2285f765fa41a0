"""Episodes of what cannot be copied: a server's, a game's, a rollout's. What was done is kept, and done again.

An environment keeps a `Trail` as its state, so that a snapshot is a copy of it. The live thing is somewhere on one
trail; where an episode goes on elsewhere, a new one is taken there by the same actions, and has to answer the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from agent_envs.checks import shown
from agent_envs.errors import BackendReplyError

__all__ = ["Live", "Replayed", "Trail"]


class Live(Protocol):
    """Something with an episode of its own."""

    @property
    def first(self) -> Any:
        """What it said at the start."""

    def act(self, action: Any) -> Any:
        """Carry out an action and return the reply, which can be compared with another."""

    def close(self) -> None:
        """Free what it holds."""


L = TypeVar("L", bound=Live)


@dataclass(slots=True)
class Trail:
    """Where an episode is."""

    start: Any
    """What it started from."""
    first: Any = None
    """What was said at the start."""
    done: list[tuple[Any, Any]] = field(default_factory=list)
    """Each action with its reply."""


class Replayed(Generic[L]):
    """The live thing of an environment, taken to wherever its episode is.

    Args:
        name: What it is, in errors.
        open_live: Opens one at a start.
    """

    def __init__(self, name: str, open_live: Callable[[Any], L]) -> None:
        self._name, self._open = name, open_live
        self._live: L | None = None
        self._trail, self._pid = Trail(None), os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_live": None, "_trail": Trail(None)}

    def begin(self, start: Any) -> Trail:
        """Open one at a start, unless the live thing is there and nothing was done, and return its trail."""
        live = self.at(self._trail) if self._untouched(start) else self._opened(start)
        return Trail(start, live.first)

    def act(self, trail: Trail, action: Any) -> Any:
        """Carry out an action where a trail ends, lengthen the trail by it, and return the reply.

        After an exception, the trail is as before, and whatever comes next is done on a new live thing.
        """
        live = self.at(trail)
        try:
            reply = live.act(action)
        except BaseException:
            self.close()
            raise
        trail.done.append((action, reply))
        self._trail.done.append((action, reply))
        return reply

    def at(self, trail: Trail) -> L:
        """Return the live thing where a trail ends; a BackendReplyError if it does not get there again."""
        if self._live is not None and self._pid == os.getpid() and self._trail == trail:
            return self._live
        live = self._opened(trail.start)
        try:
            self._same("start", trail.first, live.first)
            for action, reply in trail.done:
                self._same(action, reply, live.act(action))
                self._trail.done.append((action, reply))
        except BaseException:
            self.close()
            raise
        return live

    def close(self) -> None:
        """Close the live thing, if there is one."""
        live, self._live = self._live, None
        if live is not None and self._pid == os.getpid():
            live.close()

    def _untouched(self, start: Any) -> bool:
        here = self._live is not None and self._pid == os.getpid()
        return here and self._trail.start == start and not self._trail.done

    def _opened(self, start: Any) -> L:
        self.close()
        live = self._open(start)
        self._live, self._trail, self._pid = live, Trail(start, live.first), os.getpid()
        return live

    def _same(self, action: Any, before: Any, now: Any) -> None:
        if before != now:
            raise BackendReplyError(
                f"{self._name} does not answer the same way when an episode is played again, so it cannot go on "
                f"elsewhere: {shown(action)} was answered with {shown(now)}, before with "
                f"{shown(before)}"
            )
