"""The verdict on an episode of an agent, as its judge gives it: rewards, success and a stop reason."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.checks import boolean, number, string
from agent_envs.episodes.record import Step, StopReason
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.rewards import total

_FIELDS = ("reward", "rewards", "success", "score", "info", "stop_reason", "error")


@dataclass(frozen=True, slots=True)
class EpisodeVerdict:
    """The rewards and the end of an episode."""

    reward: float | None = None
    """Reward of the last step, or None."""
    rewards: list[float] | dict[str, float] | None = None
    """Rewards of all steps in order, or of some calls by number, or None."""
    success: bool | None = None
    """Whether the task was solved; by default whether the total reward is above 0."""
    score: float | None = None
    """The task's own measure; by default the sum of the rewards."""
    info: dict[str, Any] = field(default_factory=dict)
    """More keys for the last step's info."""
    stop_reason: StopReason = StopReason.TERMINATED
    error: str | None = None

    @classmethod
    def from_dict(cls, body: Any) -> EpisodeVerdict:
        """Read a verdict from a request; a ConfigError says what was expected.

        >>> EpisodeVerdict.from_dict({"reward": 1, "success": True}).stop_reason.value
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
            rewards = {str(call): number(f"rewards[{call!r}]", value) for call, value in rewards.items()}
        elif isinstance(rewards, list):
            rewards = [number(f"rewards[{i}]", value) for i, value in enumerate(rewards)]
        elif rewards is not None:
            raise ConfigError(f"'rewards' must be a list, or an object by call number, got {rewards!r:.80}")
        info = body.get("info", {})
        if not isinstance(info, Mapping):
            raise ConfigError(f"'info' must be an object, got {type(info).__name__}")
        for name in info.keys() & {"score", "success"}:
            raise ConfigError(f"{name!r} is a field of its own, beside 'info'")
        try:
            reason = StopReason(body.get("stop_reason") or StopReason.TERMINATED)
        except ValueError as e:
            hint = did_you_mean(body["stop_reason"], [reason.value for reason in StopReason])
            raise ConfigError(f"unknown stop reason {body['stop_reason']!r}.{hint}") from e
        checked: dict[str, Any] = {
            name: check(name, body[name])
            for name, check in (("reward", number), ("score", number), ("success", boolean), ("error", string))
            if body.get(name) is not None
        }
        return cls(rewards=rewards, info=dict(info), stop_reason=reason, **checked)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` reads."""
        return {name: getattr(self, name) for name in _FIELDS}

    @property
    def digest(self) -> str:
        """A short hash, equal for equal verdicts."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def apply(self, steps: list[Step]) -> tuple[Step, ...]:
        """Return the steps with their rewards, the last of which ends the episode; a ConfigError if they do not fit."""
        values = self.values(steps)
        if not steps:
            return ()
        steps = [dataclasses.replace(step, reward=value) for step, value in zip(steps, values, strict=True)]
        earned = total(values)
        success = earned > 0 if self.success is None else self.success
        score = earned if self.score is None else self.score
        terminated = self.stop_reason is StopReason.TERMINATED
        info = {**steps[-1].info, "success": success, "score": score, **self.info}
        last = dataclasses.replace(steps[-1], terminated=terminated, truncated=not terminated, info=info)
        return (*steps[:-1], last)

    def values(self, steps: Sequence[Step]) -> list[float]:
        """Return the reward of each step; a ConfigError if they do not fit."""
        if isinstance(self.rewards, dict):
            values = [0.0] * len(steps)
            first = {str(step.info["call"]): i for i, step in reversed(list(enumerate(steps)))}
            for call, value in self.rewards.items():
                if call not in first:
                    raise ConfigError(f"there is no step of call {call}; the calls are {', '.join(sorted(first))}")
                values[first[call]] = value
            return values
        if self.rewards is not None:
            if len(self.rewards) != len(steps):
                raise ConfigError(f"the episode has {len(steps)} steps, got {len(self.rewards)} rewards")
            return self.rewards
        return [0.0] * (len(steps) - 1) + [self.reward or 0.0]
