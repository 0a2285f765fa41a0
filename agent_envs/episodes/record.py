"""The records of what was played: steps and episodes, and the `episodes.jsonl` files that hold them."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import NoneType
from typing import Any

from agent_envs.episodes.plain import shortened, to_json_types, whole
from agent_envs.errors import BackendError, DataError, MissingExtraError
from agent_envs.files import JSONLines
from agent_envs.messages import (
    Observation,
    ToolSpec,
    latest_words,
    observation_pictures,
    observation_text,
)
from agent_envs.pictures.folder import PictureFolder, stored_observation
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import data_url
from agent_envs.rewards import total
from agent_envs.text import count_of, plain

SCHEMA_VERSION = 1
"""Version of the dictionaries that `Episode.to_dict` makes; those of an agent's episodes have the next one."""
MAX_EPISODE_BYTES = 1 << 27
"""Most text and pictures in the steps of an episode, in bytes of memory; the step that goes beyond is its last."""
GIVEN_UP = "given_up"
"""Key in the info of a step: whether `LimitInvalidActions` ended the episode there."""
_LONGEST = 20_000  # characters of a text in `Episode.to_html`


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"
    """The task ended it."""
    TRUNCATED = "truncated"
    """The step limit ended it."""
    CONTEXT_LENGTH = "context_length"
    """The model's context left no room for a response, or cut it off."""
    CALL_LIMIT = "call_limit"
    """The agent used up the calls of an episode."""
    AGENT_ERROR = "agent_error"
    """The agent failed after at least one reply of the model; ``Episode.error`` holds the traceback."""
    EMPTY_GENERATION = "empty_generation"
    """The policy returned nothing."""
    TOKEN_LIMIT = "token_limit"
    """The policy used up the tokens of an episode."""
    RUN_BUDGET = "run_budget"
    """The policy used up the tokens of the whole run."""
    SIZE_LIMIT = "size_limit"
    """Its text and pictures reached `MAX_EPISODE_BYTES`."""
    INVALID_ACTIONS = "invalid_actions"
    """So many actions in a row were invalid that it was given up (`LimitInvalidActions`)."""
    STEP_TIMEOUT = "step_timeout"
    """One step took longer than allowed."""
    EPISODE_TIMEOUT = "episode_timeout"
    """The whole episode took longer than allowed."""
    CUT = "cut"
    """It was abandoned half-way: the policy left, or the environment was reset or closed."""
    ERROR = "error"
    """An exception ended it; ``Episode.error`` holds the traceback."""

    @classmethod
    def at_end(cls, terminated: bool, info: Mapping[str, Any]) -> StopReason:
        """Return why an environment ended an episode at a step that it terminated or truncated.

        >>> StopReason.at_end(False, {"given_up": True}).value
        'invalid_actions'
        """
        if terminated:
            return cls.TERMINATED
        return cls.INVALID_ACTIONS if info.get(GIVEN_UP) is True else cls.TRUNCATED

    @property
    def broken(self) -> bool:
        """Whether a failure ended it that the policy did not cause: nothing can be learned from the episode.

        >>> StopReason.ERROR.broken, StopReason.TRUNCATED.broken
        (True, False)
        """
        return self in (StopReason.ERROR, StopReason.STEP_TIMEOUT, StopReason.EPISODE_TIMEOUT)


_NUMBER = (int, float)
_OF_AGENTS = ("role", "trained", "time", "after")
_DEFAULTS: dict[str, Any] = {  # of fields that are not always there
    "prompt_pictures": [], "usage": None, "role": "", "trained": True, "time": None, "after": None
}  # fmt: skip
_NO_FOLDER = PictureFolder(os.devnull)  # pictures of an episode that was read without its folder


def _check(values: Mapping[str, Any], **kinds: type | tuple[type, ...]) -> None:
    for name, kind in kinds.items():
        if not isinstance(values[name], kind):
            raise TypeError(f"{name} is {values[name]!r:.80}")
        if kind in (_NUMBER, int):
            float(values[name])  # an integer of hundreds of digits


@dataclass(frozen=True, slots=True)
class Step:
    """One transition: what the policy saw, what it did, and what the environment made of it."""

    observation: Observation
    """What the policy saw before it acted: new text, text and pictures, or messages that are the whole prompt."""
    action: str
    """The policy's text, verbatim; the beginning of a text that is too long for the action space."""
    reward: float
    """The reward of this step."""
    terminated: bool
    """Whether the task ended here."""
    truncated: bool
    """Whether a limit ended the episode here."""
    info: dict[str, Any] = field(default_factory=dict)
    """The info that the environment returned for this action."""
    prompt_ids: tuple[int, ...] | None = None
    """Tokens of the prompt, shape [prompt tokens], or None if the policy does not report them."""
    response_ids: tuple[int, ...] | None = None
    """Tokens of the response as sampled, shape [response tokens], or None."""
    response_logprobs: tuple[float, ...] | None = None
    """Log-probability of each response token at sampling time (nats), shape [response tokens], or None."""
    usage: dict[str, int] | None = None
    """Tokens spent on this action: `prompt_tokens`, `completion_tokens`, `cached_tokens`; None if unknown."""
    prompt_pictures: tuple[Picture, ...] = ()
    """The pictures of the prompt in the order of their tokens, if `prompt_ids` has any."""
    role: str = ""
    """Who acted, where an episode has several who are paid on their own; what stands before a slash is the role."""
    trained: bool = True
    """Whether the step is trained."""
    time: int | None = None
    """Environment steps taken before the model was asked; None if each step is one."""
    after: int | None = None
    """Index of the step whose conversation the prompt continues, if an agent made the prompts."""

    def to_dict(self) -> dict[str, Any]:
        """Return the step as types that JSON has; a picture as a reference to its file."""
        data = {f.name: to_json_types(getattr(self, f.name)) for f in fields(self)}
        for name in ("prompt_pictures", *_OF_AGENTS):
            if data[name] == _DEFAULTS[name]:
                del data[name]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], pictures: PictureFolder | None = None) -> Step:
        """Return the step that `to_dict` wrote; see `Episode.from_dict`."""
        values = {f.name: data[f.name] for f in fields(cls) if f.name not in _DEFAULTS}
        values["observation"] = stored_observation(values["observation"], pictures or _NO_FOLDER)
        values["prompt_pictures"] = tuple(map((pictures or _NO_FOLDER).find, data.get("prompt_pictures", ())))
        values |= {name: data.get(name, _DEFAULTS[name]) for name in ("usage", *_OF_AGENTS)}  # older files have none
        _check(values, action=str, reward=_NUMBER, info=dict, usage=(dict, NoneType))
        _check(values, role=str, trained=bool, time=(int, NoneType), after=(int, NoneType))
        _check({"score": 0.0, **values["info"]}, score=_NUMBER)
        for name, count in (values["usage"] or {}).items():
            _check({name: count}, **{str(name): int})
        for name in ("prompt_ids", "response_ids", "response_logprobs"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)


@dataclass(frozen=True, slots=True, repr=False)
class Episode:
    """One episode, from reset to its end."""

    env_id: str
    """The id the environment was made with."""
    episode_id: str
    """The episode's unique name."""
    group_id: str
    """A name shared by the episodes that are compared with each other (the same task)."""
    seed: int | None
    """The seed given to `reset`."""
    index: int | None
    """The task's index within its split."""
    instructions: str
    """How to act, as shown in the system message."""
    tools: tuple[ToolSpec, ...]
    """The tools the policy could call."""
    reset_info: dict[str, Any]
    """The info that `reset` returned."""
    steps: tuple[Step, ...]
    """The transitions in order."""
    final_observation: Observation
    """The last observation."""
    stop_reason: StopReason
    """Why the episode ended."""
    error: str | None = None
    """The traceback if `stop_reason` is ERROR or AGENT_ERROR."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Group of each role that is not compared within the episode's: see `RecordedModel.role`."""

    @property
    def reward(self) -> float:
        """The sum of the steps' rewards (undiscounted return)."""
        return total(step.reward for step in self.steps)

    @property
    def success(self) -> bool:
        """Whether the task was solved, as the last step's info says."""
        return bool(self.steps and self.steps[-1].info.get("success", False))

    @property
    def calls(self) -> int:
        """Number of tool calls; where actions are commands, each is one."""
        return sum(calls_of(step.info) for step in self.steps)

    @property
    def score(self) -> float:
        """The task's score in the last step's info, 0 if there is none."""
        return float(self.steps[-1].info.get("score", 0.0)) if self.steps else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the episode as types that JSON has, with `schema_version`.

        A step that goes on from another one (`after`) has what is new in its prompt; `shared` counts the messages,
        tokens and pictures that it begins with.
        """
        rows = [step.to_dict() | ({"shared": n} if any(n) else {}) for step, n in shortened(self.steps)]
        values = {f.name: rows if f.name == "steps" else to_json_types(getattr(self, f.name)) for f in fields(self)}
        of_agent = bool(self.roles) or any(name in row for row in rows for name in _OF_AGENTS)
        if not self.roles:
            del values["roles"]
        return {"schema_version": SCHEMA_VERSION + of_agent, **values}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], pictures: PictureFolder | None = None) -> Episode:
        """Return the episode that `to_dict` wrote.

        Args:
            data: What `to_dict` returned.
            pictures: Where its pictures are. They are read when their pixels are first asked for.

        Raises:
            DataError: `schema_version` is not the one that this version reads, or a field is missing or wrong.
        """
        if not isinstance(data, Mapping):
            raise DataError(f"an episode must be a JSON object, got {data!r:.80}")
        version = data.get("schema_version")
        if version not in (SCHEMA_VERSION, SCHEMA_VERSION + 1):
            raise DataError(f"expected an episode with schema_version 2, or schema_version 1, got {version!r}")
        try:
            values = {f.name: data[f.name] for f in fields(cls) if f.name != "roles"} | {"roles": data.get("roles", {})}
            _check(values, env_id=str, episode_id=str, group_id=str, instructions=str, reset_info=dict, roles=dict)
            _check(values, seed=(int, NoneType), index=(int, NoneType), error=(str, NoneType))
            if (values["seed"] or 0) < 0:
                raise ValueError(f"seed is {values['seed']}")
            for tool in values["tools"]:
                _check({"tool": tool}, tool=dict)
            values["steps"] = tuple(Step.from_dict(step, pictures) for step in whole(values["steps"]))
            values["tools"] = tuple(values["tools"])
            values["final_observation"] = stored_observation(values["final_observation"], pictures or _NO_FOLDER)
            values["stop_reason"] = StopReason(values["stop_reason"])
        except KeyError as e:
            raise DataError(f"the episode lacks the field {e.args[0]!r}") from e
        except (OverflowError, TypeError, ValueError) as e:
            raise DataError(f"a field of the episode has the wrong type: {e}") from e
        return cls(**values)

    def to_html(self) -> str:
        """Return the episode as an HTML fragment for notebooks, without scripts and with all text escaped."""
        parts = [
            f"<b>{_inert(self.env_id)}</b> {_inert(self.group_id)}: {count_of(len(self.steps), 'step')}, "
            f"return {self.reward:.3f}, {'solved' if self.success else 'not solved'}, {self.stop_reason.value}"
        ]
        for number, step in enumerate(self.steps, start=1):
            title = f"<summary>step {number}, reward {step.reward:.3f}</summary>"
            observation = _seen("observation", step.observation)
            is_open = " open" if number == 1 else ""
            parts.append(f"<details{is_open}>{title}{observation}{_block('action', step.action)}</details>")
        parts.append(_seen("last observation", self.final_observation))
        if self.error:
            parts.append(_block("error", self.error))
        return f"<div>{''.join(parts)}</div>"

    _repr_html_ = to_html

    def __repr__(self) -> str:
        """Return a line about the episode and one per step: reward, and the beginnings of observation and action."""
        end = f"{self.stop_reason.value}, return {self.reward:.3f}, {'solved' if self.success else 'not solved'}"
        name = _beginning(f"{self.env_id} {self.group_id}", 100)
        lines = [f"Episode {name}: {count_of(len(self.steps), 'step')}, {end}"]
        if self.steps:
            lines.append(f"{'step':>4} {'reward':>8}  {'observation':<40}  action")
        for number, step in enumerate(self.steps, start=1):
            seen, done = _beginning(observation_text(latest_words(step.observation))), _beginning(step.action)
            lines.append(f"{number:>4} {step.reward:>8.3f}  {seen:<40}  {done}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return the episode as one line of an `episodes.jsonl` (ASCII, so that any text survives)."""
        return json.dumps(self.to_dict())


def _inert(text: str) -> str:
    return html.escape("".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text))


def _block(label: str, text: str) -> str:
    more = f"\n[{len(text) - _LONGEST} more characters]" if len(text) > _LONGEST else ""
    style = "white-space:pre-wrap;margin:0 0 6px"
    return f'<div style="color:#667382">{label}</div><pre style="{style}">{_inert(text[:_LONGEST])}{more}</pre>'


def _seen(label: str, observation: Observation) -> str:
    """Return the latest words of an observation and its pictures; one that cannot be read says why."""
    latest = latest_words(observation)
    parts = [_block(label, observation_text(latest))]
    for picture in observation_pictures(latest):
        try:
            parts.append(f'<img style="max-width:100%" src="{data_url(picture)}">')
        except (DataError, MissingExtraError) as e:
            parts.append(_block("a picture", str(e)))
    return "".join(parts)


def _beginning(text: Any, width: int = 40) -> str:
    """Return the first characters on one line, unprintable ones escaped."""
    flat = plain(" ".join(str(text)[: 4 * width].split()))
    return flat if len(flat) <= width else flat[: width - 3] + "..."


def calls_of(info: Mapping[str, Any]) -> int:
    """Return the number of calls that a step's info tells of; a step without any word of calls is a command, one call.

    Where calls are read from text and answered by text, there are no `tool_results`; `calls` counts them.
    """
    return int(info["calls"]) if "calls" in info else len(info.get("tool_results", [None]))


def episode_pictures(episode: Episode) -> Iterator[Picture]:
    """Yield the pictures of an episode's observations and prompts; a prompt that grows shows the same ones again."""
    for observation in (*(step.observation for step in episode.steps), episode.final_observation):
        yield from observation_pictures(observation)
    for step in episode.steps:
        yield from step.prompt_pictures


def write_episodes(path: str | os.PathLike[str], episodes: Iterable[Episode]) -> None:
    """Write one episode a line. The file appears whole or not at all; pictures are in ``pictures`` beside it."""
    JSONLines(path).replace(stored_row(PictureFolder(path), episode) for episode in episodes)


def append_episode(path: str | os.PathLike[str], episode: Episode) -> None:
    """Add an episode at the end of a file.

    Raises:
        BackendError: The file or a picture cannot be written.
    """
    try:
        JSONLines(path).append(stored_row(PictureFolder(path), episode))
    except OSError as e:
        raise BackendError(f"an episode cannot be added to {path}: {e}") from e


def stored_row(folder: PictureFolder, episode: Episode, **extra: Any) -> dict[str, Any]:
    """Write the pictures of an episode, and return its row in a file."""
    folder.add(episode_pictures(episode))
    return {**episode.to_dict(), **extra}


def read_episodes(path: str | os.PathLike[str]) -> Iterator[Episode]:
    """Yield the episodes of an `episodes.jsonl`, one at a time.

    An unfinished last line is left out: the process that wrote it was killed, or is still writing.

    Raises:
        DataError: A line is not an episode; names the file and the line.
    """
    return (episode for episode, _ in stored_episodes(path))


def stored_episodes(path: str | os.PathLike[str], line: int | None = None) -> Iterator[tuple[Episode, dict[str, Any]]]:
    """Yield the episodes of a file, or only that in `line`, from 1, each with its row, extra values included."""
    folder = PictureFolder(path)
    for number, row in JSONLines(path).numbered():
        if line not in (None, number):
            continue
        try:
            yield Episode.from_dict(row, folder), row
        except ValueError as e:
            raise DataError(f"{os.fspath(path)}, line {number}: not an episode: {e}") from e
