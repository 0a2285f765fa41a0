"""How a recorded episode ends: rewards, success and a stop reason, as posted by whoever judges it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_envs.episodes.record import Step, StopReason
from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["EpisodeEnd"]

_FIELDS = ("reward", "rewards", "success", "score", "info", "stop_reason", "error")
_LARGEST = sys.float_info.max


@dataclass(frozen=True, slots=True)
class EpisodeEnd:
    """What is said of an episode when it is over."""

    reward: float | None = None
    """Reward of the last step, or None."""
    rewards: list[float] | dict[str, float] | None = None
    """Rewards of all steps in order, or those of some calls by their numbers, or None."""
    success: bool | None = None
    """Whether the task was solved, or None for a reward above 0."""
    score: float | None = None
    """The task's own measure, or None for the sum of the rewards."""
    info: dict[str, Any] = field(default_factory=dict)
    """Further keys of the last step's info."""
    stop_reason: StopReason = StopReason.TERMINATED
    """Why the episode is over."""
    error: str | None = None
    """What went wrong, or None."""

    @classmethod
    def from_dict(cls, body: Any) -> EpisodeEnd:
        """The end that a request asks for.

        Raises:
            ConfigError: It is none; says what was expected.

        >>> EpisodeEnd.from_dict({"reward": 1, "success": True}).stop_reason.value
        'terminated'
        """
        if not isinstance(body, Mapping):
            raise ConfigError(f'expected an object such as {{"reward": 1.0}}, got {type(body).__name__}')
        for name in body:
            if name not in _FIELDS:
                raise ConfigError(f"unknown field {name!r}.{did_you_mean(name, _FIELDS)}")
        reward, rewards = body.get("reward"), body.get("rewards")
        if (reward is None) == (rewards is None) and body.get("stop_reason") in (None, "terminated", "truncated"):
            raise ConfigError("expected either 'reward' (of the last step) or 'rewards' (of every step)")
        if isinstance(rewards, Mapping):
            rewards = {str(call): _number(f"rewards[{call!r}]", value) for call, value in rewards.items()}
        elif isinstance(rewards, list):
            rewards = [_number(f"rewards[{i}]", value) for i, value in enumerate(rewards)]
        elif rewards is not None:
            raise ConfigError(f"'rewards' is a list, or an object by the calls' numbers, got {rewards!r:.80}")
        success, info = body.get("success"), body.get("info", {})
        if success is not None and not isinstance(success, bool):
            raise ConfigError(f"'success' is true or false, got {success!r:.80}")
        if not isinstance(info, Mapping):
            raise ConfigError(f"'info' is an object, got {type(info).__name__}")
        try:
            reason = StopReason(body.get("stop_reason") or StopReason.TERMINATED)
        except ValueError as e:
            known = [reason.value for reason in StopReason]
            raise ConfigError(
                f"unknown stop reason {body['stop_reason']!r}.{did_you_mean(body['stop_reason'], known)}"
            ) from e
        error = body.get("error")
        if error is not None and not isinstance(error, str):
            raise ConfigError(f"'error' is a text, got {type(error).__name__}")
        return cls(
            reward=None if reward is None else _number("reward", reward),
            rewards=rewards,
            success=success,
            score=None if body.get("score") is None else _number("score", body["score"]),
            info=dict(info),
            stop_reason=reason,
            error=error,
        )

    def to_dict(self) -> dict[str, Any]:
        """What ``from_dict`` takes."""
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def digest(self) -> str:
        """A short name of this end, equal for equal ones."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def apply(self, steps: list[Step]) -> tuple[Step, ...]:
        """The steps with their rewards; the last one ends the episode.

        Raises:
            ConfigError: The rewards are not those of these steps.
        """
        values = self._values(steps)
        if not steps:
            return ()
        steps = [dataclasses.replace(step, reward=value) for step, value in zip(steps, values, strict=True)]
        total = sum(values)
        judged = {
            "success": total > 0 if self.success is None else self.success,
            "score": total if self.score is None else self.score,
        }
        terminated = self.stop_reason is StopReason.TERMINATED
        last = steps[-1]
        info = {**last.info, **judged, **self.info}
        return (*steps[:-1], dataclasses.replace(last, terminated=terminated, truncated=not terminated, info=info))

    def _values(self, steps: list[Step]) -> list[float]:
        if isinstance(self.rewards, dict):
            values = [0.0] * len(steps)
            first = {str(step.info["call"]): i for i, step in reversed(list(enumerate(steps)))}
            for call, value in self.rewards.items():
                if call not in first:
                    raise ConfigError(f"there is no step of a call {call}; there are: {', '.join(sorted(first))}")
                values[first[call]] = value
            return values
        if self.rewards is not None:
            if len(self.rewards) != len(steps):
                raise ConfigError(f"the episode has {len(steps)} steps, got {len(self.rewards)} rewards")
            return self.rewards
        return [0.0] * (len(steps) - 1) + [self.reward or 0.0]


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:  # nor NaN, nor an int of 400 digits
        raise ConfigError(f"{name!r} is a finite number, got {value!r:.80}")
    return float(value)
