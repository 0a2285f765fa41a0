"""A game that a person plays: what can be chosen, and how each step is taken, taken back and kept.

`agentr1 play` shows it in the terminal (`play_terminal`) or in a browser (`play_web`). Both make the moves that are
here, and show the AgentEnvsError of a move that cannot be made; the episode is then as it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs import branching
from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.plain import recorded, to_json_types
from agent_envs.episodes.record import Episode, Step, StopReason, append_episode
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError
from agent_envs.registration import available_actions, offered_tools


@dataclass(frozen=True, slots=True)
class Argument:
    """A part of an action that the person is asked for."""

    name: str
    kind: str = "string"
    """Its JSON type; values of every type but "string" are written as JSON."""
    required: bool = True
    about: str = ""

    def read(self, text: str) -> Any:
        """Return the value that a person wrote; a ValueError if it has the wrong type.

        >>> Argument("n", "integer").read("3"), Argument("q").read("3")
        (3, '3')
        """
        if self.kind == "string":
            return text
        value = json.loads(text)
        types = {"integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
        expected: Any = types.get(self.kind, object)
        if not isinstance(value, expected) or (isinstance(value, bool) and self.kind != "boolean"):
            raise ValueError(f"expected a value of type {self.kind}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the actions that can be chosen."""

    label: str
    write: Callable[[dict[str, Any]], str]
    """Makes the action's text from the values of the arguments."""
    arguments: tuple[Argument, ...] = ()
    """What the person is asked for first."""


def choices(env: gym.Env[Any, str]) -> list[Choice]:
    """Return what an environment offers: its available actions, or calls of its tools if they cannot be listed."""
    actions = available_actions(env)
    if actions is None:
        return [_call(env, tool["function"]) for tool in offered_tools(env) if env.has_wrapper_attr("format_call")]
    write = env.get_wrapper_attr("format_command") if env.has_wrapper_attr("format_command") else str
    return [_command(action, write) for action in actions]


def _command(action: str, write: Callable[[str], str]) -> Choice:
    before, dots, after = action.partition("...")  # free text: TextEnv.available_actions
    if not dots:
        return Choice(action, lambda values: write(action))
    return Choice(action, lambda values: write(f"{before}{values['text']}{after}"), (Argument("text"),))


def _call(env: gym.Env[Any, str], function: Mapping[str, Any]) -> Choice:
    name, schema = function["name"], function.get("parameters", {})
    required = schema.get("required", [])
    arguments = []
    for key, entry in sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required):
        kind = entry.get("type", "string" if "enum" in entry else "value")
        about = " ".join(str(entry.get("description", "")).split())
        arguments.append(Argument(key, kind if isinstance(kind, str) else "value", key in required, about))
    label = f"{name}({', '.join(argument.name for argument in arguments)})"
    return Choice(label, lambda values: env.get_wrapper_attr("format_call")(name, values), tuple(arguments))


@dataclass(frozen=True, slots=True)
class Turn:
    """An action and the point at which it was chosen."""

    point: branching.EnvSnapshot | None
    """None if the environment has no snapshots: the episode is replayed instead."""
    info: dict[str, Any]
    step: Step


class PlayGame:
    """Episodes that a person plays, the first of which has begun: task `index`, or one that is drawn.

    The following tasks are drawn with the seeds that follow `seed`. Every episode with an action is appended to `save`.
    """

    def __init__(self, env: gym.Env[Any, str], *, index: int | None, seed: int | None, save: Path | None) -> None:
        self.env = env
        self.turns: list[Turn] = []
        self.observation: Any = ""
        self.info: dict[str, Any] = {}
        self.choices: list[Choice] = []
        self.played = self.solved = 0
        self._seed = seed or 0
        self._save = save
        self._begin(seed, None if index is None else {"index": index})

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.turns) and (self.turns[-1].step.terminated or self.turns[-1].step.truncated)

    def new(self) -> None:
        """Draw another task."""
        self._seed += 1
        self._switch(self._seed, None)

    def restart(self) -> None:
        """Start this task again."""
        self._switch(**self._start)

    def task(self, index: int) -> None:
        """Start a task of the split."""
        if type(index) is not int or index < 0:
            raise ConfigError("/task takes the number of a task, such as /task 3")
        self._switch(self._start["seed"], {"index": index})

    def choose(self, number: int, texts: Mapping[str, str]) -> None:
        """Take a choice, with its arguments as the person wrote them; an optional one may be empty or missing."""
        values = {}
        for argument in self.choices[number].arguments:
            text = texts.get(argument.name, "")
            if text.strip() or argument.required:
                try:
                    values[argument.name] = argument.read(text)
                except ValueError as e:
                    raise ConfigError(f"{argument.name}: {e}; nothing was done") from e
        self.act(self.choices[number].write(values))

    def act(self, action: str) -> None:
        """Take an action; a step that fails is taken back."""
        if self.over:
            raise ConfigError("The episode is over: /undo, /restart, /new, /task N or /quit.")
        point = self._point()
        try:
            result = self.env.step(action)
        except KeyboardInterrupt:
            self._return_to(point)
            raise BackendError("\nStopped; the step is taken back.") from None
        except Exception as e:
            self._return_to(point)
            raise BackendError(f"{type(e).__name__}: {e}\nThe step is taken back.") from e
        step = self._record.transition(self.env, action, result)
        self._record.add(step, result[0])
        self.turns.append(Turn(point, self.info, step))
        self._move_to(result[0], result[4])

    def undo(self, count: int = 1) -> None:
        """Take back the last actions, all of them if there are fewer."""
        if not self.turns:
            raise ConfigError("There is nothing to take back.")
        if type(count) is not int or count < 1:
            raise ConfigError("/undo takes the number of actions to take back.")
        left = max(0, len(self.turns) - count)
        first = self.turns[left]
        del self.turns[left:], self._record.steps[left:]
        self._record.observation = first.step.observation
        self._return_to(first.point)
        self._move_to(first.step.observation, first.info)

    def expert(self) -> str:
        """Return the expert's next action."""
        expert = self.env.has_wrapper_attr("expert_action") and not self.over
        action: str | None = self.env.get_wrapper_attr("expert_action")() if expert else None
        if action is None:
            raise ConfigError("There is no expert for this.")
        return action

    def replay(self, steps: Sequence[Step]) -> int:
        """Take recorded actions until the task ends; return how many observations differ from the record."""
        differing = 0
        for step in steps:
            if self.over:
                break
            differing += recorded(self.observation) != step.observation
            self.act(step.action)
        return differing

    def episode(self) -> Episode:
        """Return the episode as far as it has been played."""
        return self._record.episode((self._record.reason if self.over else None) or StopReason.CUT)

    def end(self) -> None:
        """Count and save the current episode if it has an action."""
        if not self.turns:
            return
        self.played += 1
        self.solved += bool(self.turns[-1].step.info.get("success", False))
        if self._save is not None:
            append_episode(self._save, self.episode())
        self.turns = []

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Start a task, as `reset` does. The episode before is ended."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.end()
        self._start: dict[str, Any] = {"seed": seed, "options": options}  # of the current task
        self._record = EpisodeBuilder(**self._start, keep=to_json_types)
        self._record.reset(self.env, observation, info)
        self._move_to(observation, info)

    def _switch(self, seed: int | None, options: dict[str, Any] | None) -> None:
        point = self._point()
        try:
            self._begin(seed, options)
        except AgentEnvsError:
            self._return_to(point)
            raise

    def _move_to(self, observation: Any, info: dict[str, Any]) -> None:
        self.observation, self.info = observation, info
        self.choices = [] if self.over else choices(self.env)

    def _point(self) -> branching.EnvSnapshot | None:
        try:
            return branching.snapshot(self.env)
        except ConfigError:  # not a TextEnv
            return None

    def _return_to(self, point: branching.EnvSnapshot | None) -> None:
        """Bring the environment back to an earlier point: by its snapshot, or by replaying the remaining turns."""
        if point is not None:
            branching.restore(self.env, point)
            return
        self.env.reset(**self._start)
        for turn in self.turns:
            self.env.step(turn.step.action)
