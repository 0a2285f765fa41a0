"""Episodes of what cannot be copied: a server's, a game's, a rollout's. What was done is kept, and done again.

An environment keeps a `Trail` as its state, so that a snapshot is a copy of it. The live thing is somewhere on one
trail; where an episode goes on elsewhere, a new one is taken there by the same actions, and has to answer the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import BackendError, BackendReplyError, ConfigError
from agent_envs.per_process import PerProcess
from agent_envs.text_env import Outcome, TextEnv


@dataclass(slots=True)
class Trail:
    """Where an episode is."""

    start: Any
    """What it started from."""
    first: Any = None
    """What was said at the start."""
    done: list[tuple[Any, Any]] = field(default_factory=list)
    """Each action with its reply."""

    @property
    def last(self) -> Any:
        """What was said last."""
        return self.done[-1][1] if self.done else self.first


class Replayed:
    """The live thing of an environment, taken to wherever its episode is.

    Args:
        name: What it is, in errors.
        open_live: Opens one at a start. It has what was said ``first``, ``act(action)``, whose replies can be compared
            with each other, and ``close()``.
    """

    def __init__(self, name: str, open_live: Callable[[Any], Any]) -> None:
        self._name, self._open = name, open_live
        self._process: PerProcess[tuple[Any, Trail | None]] = PerProcess()

    @property
    def _here(self) -> tuple[Any, Trail | None]:
        """The live thing of this process, and where it is."""
        return self._process.get(None, lambda: (None, None))

    def begin(self, start: Any) -> Trail:
        """Open one at a start, unless the live thing is there and nothing was done, and return its trail."""
        live, trail = self._here
        if trail is None or trail.start != start or trail.done:
            live = self._opened(start)
        return Trail(start, live.first)

    def act(self, trail: Trail, action: Any) -> Any:
        """Carry out an action where a trail ends, lengthen the trail by it, and return the reply.

        After an exception, the trail is as before, and whatever comes next is done on a new live thing.
        """
        self.at(trail)
        reply = self._acted(action)
        trail.done.append((action, reply))
        return reply

    def at(self, trail: Trail) -> Any:
        """Return the live thing where a trail ends; a BackendReplyError if it does not get there again."""
        if self._here[1] != trail:
            self._same("start", trail.first, self._opened(trail.start).first)
            for action, reply in trail.done:
                self._same(action, reply, self._acted(action))
        return self._here[0]

    def close(self) -> None:
        """Close the live thing, if there is one."""
        live, _ = self._process.pop(None) or (None, None)
        if live is not None:
            live.close()

    def _opened(self, start: Any) -> Any:
        self.close()
        live = self._open(start)
        self._process.get(None, lambda: (live, Trail(start, live.first)))
        return live

    def _acted(self, action: Any) -> Any:
        live, trail = self._here
        try:
            reply = live.act(action)
        except BaseException:
            self.close()
            raise
        if trail is not None:
            trail.done.append((action, reply))
        return reply

    def _same(self, action: Any, before: Any, now: Any) -> None:
        if before != now:
            self.close()
            raise BackendReplyError(
                f"{self._name} does not answer the same way when an episode is played again, so it cannot go on "
                f"elsewhere: {shown(action)} was answered with {shown(now)}, before with {shown(before)}"
            )


@dataclass(frozen=True, slots=True)
class Reply:
    """What another package's environment replies."""

    said: str
    reward: float = 0.0
    done: bool = False
    invalid: bool = False
    """Whether it could not carry the action out."""
    truncated: bool = False
    """Whether a limit ended the episode."""


class ReplayedEnv(TextEnv):
    """An environment whose episodes are those of something live; a subclass opens it (`open_live`) and names it.

    Replies are `Reply`, unless the subclass has its own ``begin`` and ``act``.
    """

    component = "game"
    """Name of the reward in info."""
    live_name: str
    """What the live thing is called in errors."""

    def open_live(self, start: Any) -> Any:
        """Open a live thing at a start, as `Replayed` takes it."""
        raise NotImplementedError

    def start_of(self, task: Any) -> Any:
        """Return what a task's episode starts from."""
        return task.seed

    @functools.cached_property
    def replayed(self) -> Replayed:
        """The live thing."""
        return Replayed(self.live_name, self.open_live)

    def begin(self, task: Any) -> tuple[Any, Trail]:
        trail = self.replayed.begin(self.start_of(task))
        return trail.first.said, trail

    def act(self, action: str) -> Outcome:
        try:
            return self.outcome(self.replayed.act(self.state, action))
        except (ConfigError, BackendError):
            raise
        except Exception as e:  # noqa: BLE001  it is another package's, and some raise at what they cannot read
            said = f"The environment cannot read the text ({type(e).__name__}). Write it as the rules say."
            return Outcome(said, invalid_action=True)

    def outcome(self, reply: Any) -> Outcome:
        """Return the outcome of a reply."""
        return Outcome(
            reply.said,
            reward=reply.reward,
            terminated=reply.done,
            invalid_action=reply.invalid,
            score=reply.reward,
            success=reply.done and reply.reward >= 1.0,
            components={self.component: reply.reward},
        )

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        truncated = terminated and self.state.last.truncated
        return observation, reward, terminated and not truncated, truncated, info

    def anchor(self) -> str:
        return str(self.state.last.said)

    def close(self) -> None:
        """End the live thing."""
        self.replayed.close()
        super().close()
