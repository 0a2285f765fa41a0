"""Rewards of one size for tasks of many, with statistics that all instances of an environment share."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError
from agent_envs.wrapping.order import check_order

__all__ = ["ReturnStatistics", "RewardNormalisation", "return_statistics"]


@dataclass(slots=True)
class ReturnStatistics:
    """Returns of the episodes that ended so far, by group; shared between threads."""

    counts: dict[str, int] = field(default_factory=dict)
    """Episodes of each group."""
    squares: dict[str, float] = field(default_factory=dict)
    """The sum of their squared returns."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, group: str, episode_return: float) -> None:
        """Count an episode; a return that is no finite number would spoil all that follow, and is left out."""
        if not math.isfinite(episode_return):
            return
        with self._lock:
            self.counts[group] = self.counts.get(group, 0) + 1
            self.squares[group] = self.squares.get(group, 0.0) + episode_return**2

    def scale(self, group: str) -> float:
        """The root mean square of the group's returns, one episode with a return of 1 counted in.

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

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The numbers, to be stored with a checkpoint."""
        with self._lock:
            return {"counts": dict(self.counts), "squares": dict(self.squares)}

    def load(self, data: dict[str, dict[str, Any]]) -> None:
        """Take up the numbers that ``to_dict`` gave."""
        with self._lock:
            self.counts = {str(k): int(v) for k, v in data["counts"].items()}
            self.squares = {str(k): float(v) for k, v in data["squares"].items()}


_statistics: dict[str, ReturnStatistics] = {}
_making = threading.Lock()


def return_statistics(name: str) -> ReturnStatistics:
    """The statistics of a name, one per process."""
    with _making:
        return _statistics.setdefault(name, ReturnStatistics())


class RewardNormalisation(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Divides rewards by the root mean square of the returns seen so far, per environment or per kind of task.

    Gymnasium's ``NormalizeReward`` divides by the standard deviation of a discounted sum that runs on through one
    instance. That fits one long-lived environment with a reward at every step. Text tasks are played in many instances
    at once, of which each would have a scale of its own after a few episodes; their reward comes at the end, so that
    the running sum is mostly zeros and its deviation depends on how long episodes are; a deviation of 0 (every episode
    won) blows rewards up; and the scale changes within an episode. Here all instances of a process share the statistics
    of whole returns, an episode has one scale from its reset on, rewards keep their sign and zero, and a task that
    always pays the same pays 1. Estimators that normalise within groups of the same task (GRPO, RLOO) undo any scale:
    this is for learning several tasks, or several kinds of one, with a critic or a shared baseline.

    ``info["reward_scale"]`` is what rewards are divided by; ``reward_components`` and ``score`` stay as they are.

    Args:
        env: Any environment, its step limit included.
        by: A key of the reset's info that names the kind of task, such as ``"task_family"``; None for one scale.
        name: The statistics' name; None for the environment's id.
        update: False leaves the statistics as they are: for evaluation.
        clip: Greatest size of a normalised reward, None for no limit.

    The statistics are in ``return_statistics(name)``, which can be stored and loaded. They depend on which episodes
    have ended (one that is branched counts at each of its ends), so that rewards are only reproducible where episodes
    end in the same order, or with ``update=False``.

    >>> import agent_envs
    >>> env = RewardNormalisation(gym.make("AgentR1/GSM8K-v0"), name="doctest")
    >>> return_statistics("doctest").load({"counts": {"": 3}, "squares": {"": 15.0}})
    >>> _, info = env.reset(options={"index": 0})
    >>> info["reward_scale"], env.step(env.unwrapped.expert_action())[1]
    (2.0, 0.5)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        by: str | None = None,
        name: str | None = None,
        update: bool = True,
        clip: float | None = None,
    ) -> None:
        if not all(value is None or isinstance(value, str) for value in (by, name)):
            raise ConfigError(f"RewardNormalisation: by and name are texts or None, got {by!r} and {name!r}")
        if not isinstance(update, bool):
            raise ConfigError(f"RewardNormalisation: update must be True or False, got {update!r}")
        if clip is not None and (isinstance(clip, bool) or not isinstance(clip, (int, float)) or not clip > 0):
            raise ConfigError(f"RewardNormalisation: clip must be a number above 0 or None, got {clip!r}")
        check_order(env, "RewardNormalisation")
        RecordConstructorArgs.__init__(self, by=by, name=name, update=update, clip=clip)
        gym.Wrapper.__init__(self, env)
        self.by = by
        self.name = name or (type(env.unwrapped).__name__ if env.unwrapped.spec is None else env.unwrapped.spec.id)
        self.update = update
        self.clip = None if clip is None else float(clip)
        self._group, self._scale, self._return, self._over = "", 1.0, 0.0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, and settle the episode's scale."""
        observation, info = self.env.reset(seed=seed, options=options)
        if self.by is not None and self.by not in info:
            known = ", ".join(sorted(info))
            raise ConfigError(f"RewardNormalisation: the reset's info has no {self.by!r}; it has {known}")
        self._group = "" if self.by is None else str(info[self.by])
        self._scale, self._return, self._over = return_statistics(self.name).scale(self._group), 0.0, False
        return observation, {**info, "reward_scale": self._scale}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, with the reward divided by the episode's scale."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        if (terminated or truncated) and not self._over:
            self._over = True
            if self.update:
                return_statistics(self.name).add(self._group, self._return)
        normalised = float(reward) / self._scale
        if self.clip is not None:
            normalised = max(-self.clip, min(self.clip, normalised))
        return observation, normalised, terminated, truncated, {**info, "reward_scale": self._scale}
