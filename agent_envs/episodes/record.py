"""What an episode leaves behind: frozen records, and the lines of an ``episodes.jsonl``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from typing import Any

import numpy as np

from agent_envs.errors import DataError
from agent_envs.files import JSONLines
from agent_envs.messages import Observation, ToolSpec, latest_words, observation_text

__all__ = ["SCHEMA_VERSION", "Episode", "Step", "StopReason", "read_episodes", "to_json_types", "write_episodes"]

SCHEMA_VERSION = 1
"""Version of the dictionaries that ``Episode.to_dict`` makes."""


class StopReason(StrEnum):
    """Every way in which an episode can end."""

    TERMINATED = "terminated"
    """The task ended it."""
    TRUNCATED = "truncated"
    """The step limit ended it."""
    CONTEXT_LENGTH = "context_length"
    """The next prompt left no room for a response."""
    EMPTY_GENERATION = "empty_generation"
    """The policy returned nothing."""
    TOKEN_LIMIT = "token_limit"
    """The policy had used all the tokens an episode may use."""
    RUN_BUDGET = "run_budget"
    """The policy had used all the tokens it may use in all its episodes."""
    STEP_TIMEOUT = "step_timeout"
    """One step took longer than allowed."""
    EPISODE_TIMEOUT = "episode_timeout"
    """The whole episode took longer than allowed."""
    CUT = "cut"
    """It was given up half-way: the environment was reset or closed."""
    ERROR = "error"
    """An exception ended it; ``Episode.error`` holds the traceback."""

    @property
    def broken(self) -> bool:
        """Whether the end is not the policy's doing: nothing is learned from such an episode.

        >>> StopReason.ERROR.broken, StopReason.TRUNCATED.broken
        (True, False)
        """
        return self in (StopReason.ERROR, StopReason.STEP_TIMEOUT, StopReason.EPISODE_TIMEOUT)


def _check(values: Mapping[str, Any], **kinds: type | tuple[type, ...]) -> None:
    for name, kind in kinds.items():
        if not isinstance(values[name], kind):
            raise TypeError(f"{name} is {values[name]!r:.80}")


@dataclass(frozen=True, slots=True)
class Step:
    """One transition: what the policy saw, what it did, what came of it."""

    observation: Observation
    """What the policy saw before it acted: new words, or messages that are the whole prompt."""
    action: str
    """The policy's text, verbatim."""
    reward: float
    """The reward of this step."""
    terminated: bool
    """Whether the task ended here."""
    truncated: bool
    """Whether a limit ended the episode here."""
    info: dict[str, Any] = field(default_factory=dict)
    """The info that the environment returned for this action."""
    prompt_ids: tuple[int, ...] | None = None
    """Tokens of the prompt, shape [prompt tokens], or None where the policy does not report them."""
    response_ids: tuple[int, ...] | None = None
    """Tokens of the response as sampled, shape [response tokens], or None."""
    response_logprobs: tuple[float, ...] | None = None
    """Log-probability of each response token when it was sampled (nats), shape [response tokens], or None."""
    usage: dict[str, int] | None = None
    """What the policy spent on this action: `prompt_tokens`, `completion_tokens`, `cached_tokens`; None if unknown."""

    def to_dict(self) -> dict[str, Any]:
        """The step as JSON-able types."""
        return {f.name: to_json_types(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Step:
        """The step that ``to_dict`` wrote."""
        values = {f.name: data[f.name] for f in fields(cls) if f.name != "usage"}
        values["usage"] = data.get("usage")  # records of before have none
        _check(values, action=str, reward=(int, float), info=dict)
        for name in ("prompt_ids", "response_ids", "response_logprobs"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True, repr=False)
class Episode:
    """One episode, from reset to its end."""

    env_id: str
    """The id the environment was made with."""
    episode_id: str
    """Unique name of this episode."""
    group_id: str
    """Name shared by the episodes that are compared with each other (the same task)."""
    seed: int | None
    """The seed given to ``reset``."""
    index: int | None
    """The task's index within its split."""
    instructions: str
    """How to act, as shown in the system message."""
    tools: tuple[ToolSpec, ...]
    """The tools on offer."""
    reset_info: dict[str, Any]
    """The info that ``reset`` returned."""
    steps: tuple[Step, ...]
    """The transitions in order."""
    final_observation: Observation
    """What the environment said last."""
    stop_reason: StopReason
    """Why the episode ended."""
    error: str | None = None
    """The traceback, where ``stop_reason`` is ERROR."""

    @property
    def reward(self) -> float:
        """The sum of the steps' rewards (undiscounted return)."""
        return float(sum(step.reward for step in self.steps))

    @property
    def success(self) -> bool:
        """Whether the last step's info says that the task was solved."""
        return bool(self.steps and self.steps[-1].info.get("success", False))

    @property
    def score(self) -> float:
        """The task's score in the last step's info, 0 where there is none."""
        return float(self.steps[-1].info.get("score", 0.0)) if self.steps else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The episode as JSON-able types, with ``schema_version``."""
        data: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
        for f in fields(self):
            if f.name == "steps":
                data["steps"] = [step.to_dict() for step in self.steps]
            elif f.name == "stop_reason":
                data["stop_reason"] = self.stop_reason.value
            else:
                data[f.name] = to_json_types(getattr(self, f.name))
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Episode:
        """The episode that ``to_dict`` wrote.

        Raises:
            DataError: ``schema_version`` is not the one this version reads, or a field is missing.
        """
        if not isinstance(data, Mapping):
            raise DataError(f"expected an episode as an object, got {data!r:.80}")
        version = data.get("schema_version")
        if version != SCHEMA_VERSION:
            raise DataError(f"expected an episode with schema_version {SCHEMA_VERSION}, got {version!r}")
        try:
            values = {f.name: data[f.name] for f in fields(cls)}
            _check(values, env_id=str, episode_id=str, group_id=str, reset_info=dict)
            values["steps"] = tuple(Step.from_dict(step) for step in values["steps"])
            values["tools"] = tuple(values["tools"])
            values["stop_reason"] = StopReason(values["stop_reason"])
        except KeyError as e:
            raise DataError(f"an episode record lacks the field {e.args[0]!r}") from e
        except (TypeError, ValueError) as e:
            raise DataError(f"an episode record has a field of the wrong kind: {e}") from e
        return cls(**values)

    def to_html(self) -> str:
        """The episode as an HTML fragment for notebooks, without scripts and with all text escaped."""
        from agent_envs.episodes.html import episode_page

        return episode_page(self)

    _repr_html_ = to_html

    def __repr__(self) -> str:
        """A line about the episode and one per step: its reward, and the beginnings of what was seen and done."""
        end = f"{self.stop_reason.value}, return {self.reward:.3f}, {'solved' if self.success else 'not solved'}"
        name = _beginning(f"{self.env_id} {self.group_id}", 100)
        lines = [f"Episode {name}: {len(self.steps)} steps, {end}"]
        if self.steps:
            lines.append(f"{'step':>4} {'reward':>8}  {'observation':<40}  action")
        for number, step in enumerate(self.steps, start=1):
            seen, done = _beginning(observation_text(latest_words(step.observation))), _beginning(step.action)
            lines.append(f"{number:>4} {step.reward:>8.3f}  {seen:<40}  {done}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """The episode as one line of an ``episodes.jsonl`` (ASCII, so that any text survives)."""
        return json.dumps(self.to_dict())


def _beginning(text: Any, width: int = 40) -> str:
    """The first characters on one line, with what is no printable character as an escape."""
    flat = " ".join(str(text)[: 4 * width].split())
    flat = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)
    return flat if len(flat) <= width else flat[: width - 3] + "..."


def to_json_types(value: Any) -> Any:
    """``value`` with NumPy scalars and arrays, tuples, sets and enums as the types JSON has.

    Raises:
        DataError: A value has no JSON form; names the keys that lead to it.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Mapping):
        types: dict[str, Any] = {}
        for key, entry in value.items():
            try:
                types[str(key)] = to_json_types(entry)
            except DataError as e:
                raise DataError(f"{key!r}: {e}") from None
        return types
    if isinstance(value, (list, tuple)):
        return [to_json_types(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_json_types(v) for v in value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Enum):
        return to_json_types(value.value)
    if isinstance(value, (str, int, float)):
        return value
    raise DataError(
        f"a value of type {type(value).__name__} has no JSON form and cannot be kept with an episode; leave it out, "
        "or make it text, a number, a list or a mapping"
    )


def write_episodes(path: str | os.PathLike[str], episodes: Iterable[Episode]) -> None:
    """Write one episode a line. The file appears whole or not at all."""
    JSONLines(path).replace(episode.to_dict() for episode in episodes)


def read_episodes(path: str | os.PathLike[str]) -> Iterator[Episode]:
    """The episodes of an ``episodes.jsonl``, one at a time.

    The last line is left out where it breaks off: the process that wrote it was killed, or is still at it.

    Raises:
        DataError: A line is not an episode; names the file and the line.
    """
    for number, row in JSONLines(path).numbered():
        try:
            yield Episode.from_dict(row)
        except ValueError as e:
            raise DataError(f"{os.fspath(path)}, line {number}: not an episode: {e}") from e
