"""Rewards beside the task's own, rewards brought to one size, and the end of an episode without valid actions."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym

from agent_envs import checks
from agent_envs.episodes.record import GIVEN_UP
from agent_envs.errors import ConfigError
from agent_envs.registration import env_name, offered_tools
from agent_envs.wrapping.order import Place, PlacedWrapper


class _StepReward(PlacedWrapper):
    """Add ``_part(info)`` to the reward of every step, and to ``info["reward_components"]`` under ``component``."""

    place = Place.REWARD
    component: ClassVar[str]

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        part = self._part(info)
        components = dict(info.get("reward_components", {}))
        components[self.component] = components.get(self.component, 0.0) + part
        info["reward_components"] = components
        return observation, float(reward) + part, terminated, truncated, info

    def _part(self, info: dict[str, Any]) -> float:
        raise NotImplementedError


class InvalidActionPenalty(_StepReward):
    """Subtract ``penalty`` from the reward of each step whose action is marked with ``info["invalid_action"]``.

    The part is ``info["reward_components"]["invalid_action"]``. GiGPO's reference code uses 0.1 (arXiv 2505.10978).

    Args:
        penalty: The cost of an invalid action, at least 0.

    >>> import agent_envs
    >>> env = InvalidActionPenalty(gym.make("AgentR1/GSM8KTool-v0"), penalty=0.1)
    >>> _ = env.reset(seed=0)
    >>> env.step("<tool_call>oops</tool_call>")[1]
    -0.1
    """

    component = "invalid_action"
    recorded_arguments = ("penalty",)

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.1) -> None:
        self.penalty = checks.number("penalty", penalty, minimum=0)
        super().__init__(env, penalty=penalty)

    def _part(self, info: dict[str, Any]) -> float:
        return -self.penalty if info["invalid_action"] else 0.0


class StepPenalty(_StepReward):
    """Subtract ``penalty`` from the reward of every step, so that shorter episodes earn more.

    The part is ``info["reward_components"]["step"]``.

    Args:
        penalty: The cost of a step, at least 0.

    >>> import agent_envs
    >>> env = StepPenalty(gym.make("AgentR1/GSM8KTool-v0"), penalty=0.01)
    >>> _ = env.reset(seed=0)
    >>> env.step("")[1]
    -0.01
    """

    component = "step"
    recorded_arguments = ("penalty",)

    def __init__(self, env: gym.Env[str, str], penalty: float = 0.01) -> None:
        self.penalty = checks.number("penalty", penalty, minimum=0)
        super().__init__(env, penalty=penalty)

    def _part(self, info: dict[str, Any]) -> float:
        return -self.penalty


class ToolCallReward(_StepReward):
    """Add ``success`` for each tool call of a step that returns a result, and ``error`` for each that fails.

    The part is ``info["reward_components"]["tool_call"]``. A reward for calling is easily farmed: keep it far below the
    task's reward, and let ``limit`` end it.

    Args:
        env: An environment with tools.
        success: Added for a call that returns a result.
        error: Added for a call that fails; at most 0, so that failing never pays.
        limit: Number of calls per episode that are rewarded.

    >>> import agent_envs
    >>> env = ToolCallReward(gym.make("AgentR1/GSM8KTool-v0"), success=0.05)
    >>> _ = env.reset(seed=0)
    >>> env.step(env.unwrapped.format_call("calculator", {"expression": "1+1"}))[1]
    0.05
    """

    component = "tool_call"
    recorded_arguments = ("success", "error", "limit")

    def __init__(self, env: gym.Env[str, str], success: float = 0.05, error: float = 0.0, limit: int = 10) -> None:
        self.success = checks.number("success", success)
        self.error = checks.number("error", error, maximum=0)
        self.limit = checks.integer("limit", limit)
        super().__init__(env, success=success, error=error, limit=limit)
        if not offered_tools(env):
            raise ConfigError("ToolCallReward is for environments with tools; this one has none")
        self._rewarded = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._rewarded = 0
        return self.env.reset(seed=seed, options=options)

    def _part(self, info: dict[str, Any]) -> float:
        part = 0.0
        for result in info["tool_results"]:
            if result["error"]:
                part += self.error
            elif self._rewarded < self.limit:
                self._rewarded += 1
                part += self.success
        return part


class FormatReward(PlacedWrapper):
    """Add ``weight`` times the share of well-formed actions to the reward of an episode's last step.

    An action is well-formed unless the environment marks it with ``info["invalid_action"]``. An episode that a step
    limit cuts off gets nothing. The part is ``info["reward_components"]["format"]``.

    Args:
        env: The environment, including its step limit.
        weight: The largest reward of an episode, at least 0. Keep it small beside the task's reward.

    >>> import agent_envs
    >>> env = FormatReward(gym.make("AgentR1/GSM8K-v0"), weight=0.1)
    >>> _ = env.reset(seed=0)
    >>> env.step("#### -1")[1]
    0.1
    """

    place = Place.REWARD
    recorded_arguments = ("weight",)

    def __init__(self, env: gym.Env[str, str], weight: float = 0.1) -> None:
        self.weight = checks.number("weight", weight, minimum=0)
        super().__init__(env, weight=weight)
        self._steps = self._well_formed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._steps = self._well_formed = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._well_formed += not info["invalid_action"]
        if terminated:
            bonus = self.weight * self._well_formed / self._steps
            info["reward_components"] = {**info["reward_components"], "format": bonus}
            reward = float(reward) + bonus
        return observation, reward, terminated, truncated, info


class LimitInvalidActions(PlacedWrapper):
    """Truncate an episode after ``limit`` actions in a row that are marked with ``info["invalid_action"]``.

    ``info["given_up"]`` is True at that step, and the episode's record has ``StopReason.INVALID_ACTIONS``: it is the
    policy's doing, so it is trained on, unlike an episode that broke.

    Args:
        limit: Invalid actions in a row, at least 1.

    >>> import agent_envs
    >>> env = LimitInvalidActions(gym.make("AgentR1/GSM8KTool-v0"), limit=2)
    >>> _ = env.reset(seed=0)
    >>> [env.step("<tool_call>oops</tool_call>")[3] for _ in range(2)]
    [False, True]
    """

    place = Place.REWARD
    recorded_arguments = ("limit",)

    def __init__(self, env: gym.Env[str, str], limit: int = 5) -> None:
        self.limit = checks.integer("limit", limit, minimum=1)
        super().__init__(env, limit=limit)
        self._in_a_row = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._in_a_row = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._in_a_row = self._in_a_row + 1 if info["invalid_action"] else 0
        info[GIVEN_UP] = self._in_a_row >= self.limit and not terminated and not truncated
        return observation, reward, terminated, truncated or info[GIVEN_UP], info


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
