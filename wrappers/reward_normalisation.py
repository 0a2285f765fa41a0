"""Brings the rewards of different tasks to one size, with statistics that all instances of an environment share."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.errors import ConfigError
from agent_envs.registration import env_name
from agent_envs.wrapping.order import Place, PlacedWrapper


@dataclass(slots=True)
class ReturnStatistics:
    """The returns of the episodes that have ended, by group; shared between threads."""

    counts: dict[str, int] = field(default_factory=dict)
    squares: dict[str, float] = field(default_factory=dict)
    """The sum of the squared returns of each group's episodes."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, group: str, episode_return: float) -> None:
        """Count an episode; a return that is not finite is left out, since it would spoil all later ones."""
        if not math.isfinite(episode_return):
            return
        with self._lock:
            self.counts[group] = self.counts.get(group, 0) + 1
            self.squares[group] = self.squares.get(group, 0.0) + episode_return**2

    def scale(self, group: str) -> float:
        """Return the root mean square of the group's returns and one extra return of 1.

        >>> statistics = ReturnStatistics()
        >>> statistics.scale("a")
        1.0
        >>> for _ in range(99):
        ...     statistics.add("a", 10.0)
        >>> round(statistics.scale("a"), 2)
        9.95
        """
        with self._lock:
            return math.sqrt((1.0 + self.squares.get(group, 0.0)) / (1 + self.counts.get(group, 0)))


_statistics: dict[str, ReturnStatistics] = {}


def return_statistics(name: str) -> ReturnStatistics:
    """Return the statistics of a name, one object per process."""
    return _statistics.setdefault(name, ReturnStatistics())


class RewardNormalisation(PlacedWrapper):
    """Divide rewards by the root mean square of the returns so far, per environment or per kind of task.

    Gymnasium's ``NormalizeReward`` divides by the standard deviation of a discounted sum that runs through one
    instance. That fits a long-lived environment with a reward at every step. Text tasks run in many instances at once,
    each of which would get its own scale from a few episodes; their reward comes at the end, so that the running sum is
    mostly zeros and its deviation depends on the length of episodes; a deviation of 0 (every episode won) blows rewards
    up; and the scale changes within an episode. Here all instances of a process share statistics of whole returns, an
    episode has one scale from its reset on, rewards keep their sign and zero, and a task that always pays the same pays
    1. Estimators that normalise within groups of one task (GRPO, RLOO) undo any scale: this wrapper is for learning
    several tasks, or several kinds of one, with a critic or a shared baseline.

    ``info["reward_scale"]`` is the divisor; ``reward_components`` and ``score`` do not change.

    Args:
        env: Any environment, including its step limit.
        by: A key of the reset's info that names the kind of task, such as ``"kind"``; None for one scale.
        name: The name of the statistics; None for the environment's id.
        update: False leaves the statistics unchanged, for evaluation.

    ``return_statistics(name)`` holds the statistics. They depend on which episodes have ended (a branched episode
    counts at each of its ends), so rewards are reproducible only if episodes end in the same order, or with
    ``update=False``.

    >>> import agent_envs
    >>> env = RewardNormalisation(gym.make("AgentR1/GSM8K-v0"), name="doctest")
    >>> return_statistics("doctest").add("", 7.0 ** 0.5)
    >>> _, info = env.reset(options={"index": 0})
    >>> round(info["reward_scale"], 3), round(env.step(env.unwrapped.expert_action())[1], 3)
    (2.0, 0.5)
    """

    place = Place.REWARD
    recorded_arguments = ("by", "name", "update")

    def __init__(
        self, env: gym.Env[Any, Any], by: str | None = None, name: str | None = None, update: bool = True
    ) -> None:
        self.by = None if by is None else checks.string("by", by)
        self.update = checks.boolean("update", update)
        super().__init__(env, by=by, name=name, update=update)
        self.name = env_name(env) if name is None else checks.string("name", name, empty=False)
        self._group, self._scale, self._return, self._over = "", 1.0, 0.0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if self.by is not None and self.by not in info:
            raise ConfigError(f"by={self.by!r}: the reset's info has no such key; it has {', '.join(sorted(info))}")
        self._group = "" if self.by is None else str(info[self.by])
        self._scale, self._return, self._over = return_statistics(self.name).scale(self._group), 0.0, False
        return observation, {**info, "reward_scale": self._scale}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        if (terminated or truncated) and not self._over:
            self._over = True
            if self.update:
                return_statistics(self.name).add(self._group, self._return)
        return observation, float(reward) / self._scale, terminated, truncated, {**info, "reward_scale": self._scale}
