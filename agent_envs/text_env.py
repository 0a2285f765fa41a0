"""TextEnv, the base class of all environments: it draws tasks, builds info, renders and takes snapshots."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded

from agent_envs.checks import CheckedArguments, choice, finite, integer, option_mapping, question_option, shown, string
from agent_envs.errors import ConfigError, TaskIndexError
from agent_envs.messages import ToolSpec
from agent_envs.pictures.picture import ImageObservation, Pictured
from agent_envs.spaces import ImageText, UnicodeText, kept_action
from agent_envs.tasks import TaskSource, checked_tasks, task_id_of, wrong_return
from agent_envs.text import check_action, clean_text, cut, transcript_text

MAX_ACTION_LENGTH = 1 << 18
"""Longest action in characters, if an environment is not given another limit: about 65,000 tokens of English."""


@dataclass(slots=True)  # not frozen, which makes building one three times as slow, and every step builds one
class Outcome:
    """The result of an action, which ``TextEnv.step`` turns into Gymnasium's five values."""

    observation: str | Pictured
    """What the environment says in reply."""
    reward: float = 0.0
    """The reward of this step."""
    terminated: bool = False
    """Whether the task ended."""
    invalid_action: bool = False
    """Whether the action could not be carried out as asked."""
    score: float = 0.0
    """How well the task is solved, by its own measure."""
    success: bool = False
    """Whether the task is solved."""
    components: Mapping[str, float] = field(default_factory=dict)
    """The parts of the reward by name."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Additional info keys."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point in an episode to which ``TextEnv.restore`` returns."""

    index: int
    state: Any
    rng_state: Mapping[str, Any]
    observation: str | ImageObservation
    over: bool
    transcript: tuple[str, ...]
    task: Any = None
    """The task, if it is the user's own question and so in no split."""


class TextEnv(gym.Env[Any, str], CheckedArguments):
    """A task whose observations and actions are text.

    Observations are strings; with ``max_images`` above 0 they are in `ImageText`, and ``begin`` and outcomes may have a
    `Pictured` in place of a string.

    A subclass defines where tasks come from (``open_tasks``), how an episode starts (``begin``) and what an action does
    (``act``). This class draws tasks, builds info, cleans text and records what ``render`` shows. Keep everything that
    changes during an episode in ``self.state``: a snapshot is a copy of it.

    Args:
        split: Name of the split to take tasks from.
        data: ``"generated"``, ``"official"``, or a path to files in the released format.
        render_mode: ``"ansi"`` (``render`` returns the episode as text), ``"human"`` (it prints it) or None.
        max_observation_length: Longest observation in characters; longer ones are cut, with a note at the end.
        max_action_length: Longest action in characters. A longer one is a bad action, and only its beginning is kept.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # type: ignore[misc]

    instructions: str = ""
    """How to act, for the system message."""

    reset_options: ClassVar[tuple[str, ...]] = ("index",)
    """Keys that ``reset(options=...)`` takes; "question" requires ``own_task``."""

    recorded_arguments: ClassVar[tuple[str, ...]] = ("data", "split", "max_observation_length", "max_action_length")
    max_images: int = 0
    """The most pictures in an observation, 0 for text alone; the constructor reads it."""
    max_image_side: int = 1024
    """The greatest height and width of a picture in pixels."""

    prompt_templates: ClassVar[Mapping[str, Any]] = {}
    """What `RebuildPrompt` shows by name, the default first: functions of a `PromptView`, or `PromptTexts`."""
    prompt_fields: ClassVar[Mapping[str, Callable[[Any], str]]] = {}
    """What texts of prompts can name with ``$``, each a function of a `PromptView`."""

    _spec: EnvSpec | None = None

    def __init__(
        self,
        *,
        split: str = "train",
        data: str | os.PathLike[str] = "generated",
        render_mode: str | None = None,
        max_observation_length: int = 65536,
        max_action_length: int = MAX_ACTION_LENGTH,
    ) -> None:
        if render_mode is not None:
            choice("render_mode", render_mode, self.metadata["render_modes"])
        if not isinstance(data, (str, os.PathLike)):
            raise ConfigError(f"data must be 'generated', 'official' or a path, got {shown(data)}")
        self.split = string("split", split)
        self.data = os.fspath(data)
        self.render_mode = render_mode
        length = integer("max_observation_length", max_observation_length, minimum=0)
        pictures = self.max_images, self.max_image_side
        self.observation_space = ImageText(length, *pictures) if self.max_images else UnicodeText(length)
        self.action_space = UnicodeText(integer("max_action_length", max_action_length, minimum=1))
        self.state: Any = None
        self._tasks: TaskSource | None = None
        self._task: Any = None
        self._task_info: dict[str, Any] = {}
        self._index = 0
        self._observation: Any = ""
        self._over = True
        self._transcript: list[str] = []

    # -- what a task implements ----------------------------------------------------------------------------------

    def open_tasks(self) -> TaskSource:
        """Return the tasks of ``self.split``. Called once, when they are first needed."""
        raise NotImplementedError

    def begin(self, task: Any) -> tuple[str | Pictured, Any]:
        """Return the first observation of a task and the state its episode starts in."""
        raise NotImplementedError

    def act(self, action: str) -> Outcome:
        """Carry out one action on ``self.state``."""
        raise NotImplementedError

    def own_task(self, question: str) -> Any:
        """Return a task for a question of the user's own, which has no known answer."""
        raise NotImplementedError

    def anchor(self) -> str:
        """Return the current state as text, without the history that led to it."""
        return self._transcript[0]

    def available_actions(self) -> list[str] | None:
        """Return the actions that can be taken now, as a policy would write them, or None if they cannot be listed.

        Three dots stand for free text: ``search[...]`` means ``search[`` followed by any words and ``]``.
        """
        return None

    def prompt_state(self) -> dict[str, Any]:
        """Return what a rebuilt prompt may show of the current state, as plain data: str, int, float, list and dict."""
        return {}

    def info(self, outcome: Outcome) -> dict[str, Any]:
        """Return the info of a reset or a step; extend it to add keys that every info has."""
        return {
            **self._task_info,
            "invalid_action": outcome.invalid_action,
            "score": finite("a score", outcome.score),
            "success": outcome.success,
            "reward_components": dict(outcome.components),
            "anchor": self.anchor(),
            **outcome.extra,
        }

    def expert_action(self) -> str | None:
        """Return the next action of a solver that wins from here, or None if there is no such solver."""
        return None

    def right_answer(self) -> str:
        """Return the right answer to the task for a person to read, "" if none is known or others are right too."""
        return ""

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """Return the next action of a demonstrator that makes mistakes, or None if there is no demonstrator.

        Args:
            rng: Source of the mistakes.
            noise: Probability of a well-formed but wrong action, if the task has such actions.
        """
        return self.expert_action()

    # -- what it has ---------------------------------------------------------------------------------------------

    @property
    def spec(self) -> EnvSpec | None:
        """The spec that the environment was made from, with paths as strings so that it can be written as JSON."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            paths = {name: os.fspath(path) for name, path in spec.kwargs.items() if isinstance(path, os.PathLike)}
            spec.kwargs.update(paths)
        self._spec = spec

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools on offer, as a chat template's ``tools=`` takes them; empty if actions are commands."""
        return []

    @property
    def tool_instructions(self) -> str:
        """The tools and how to call them in words, "" if there are none."""
        return ""

    @property
    def tasks(self) -> TaskSource:
        """The tasks of the split."""
        if self._tasks is None:
            self._tasks = checked_tasks(self, self.open_tasks())
        return self._tasks

    @property
    def num_tasks(self) -> int:
        """The number of tasks in the split."""
        return len(self.tasks)

    @property
    def task(self) -> Any:
        """The task being played.

        Raises:
            ResetNeeded: ``reset`` has not been called yet.
        """
        if self._task is None:
            raise ResetNeeded("there is no task yet: call reset() first")
        return self._task

    # -- Gymnasium -----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a task: row ``options["index"]`` of the split, or one drawn from ``self.np_random``.

        If ``reset_options`` has "question", ``options["question"]`` asks a question of your own instead: info then has
        index -1 and source "question", no answer to it counts as right, and it has no expert.

        Raises:
            TaskIndexError: The index is outside the split.
            ConfigError: ``options`` has an unknown key, an index that is not an integer, or an empty question.
        """
        options = option_mapping(options)
        super().reset(seed=seed)
        tasks = self.tasks
        for key in options:
            choice("a reset option", key, self.reset_options)
        if options.get("question") is None:
            index = self._chosen_index(options, len(tasks))
            index = int(self.np_random.integers(len(tasks))) if index is None else index
            self._play(index, tasks[index])
        else:
            self._play(-1, self.own_task(clean_text(question_option(options))))
        self._over, self._transcript = True, []  # should it not begin
        begun = self.begin(self._task)
        if not (isinstance(begun, (tuple, list)) and len(begun) == 2):
            raise wrong_return(self, "begin", "two values, the first observation and the state", begun)
        observation, self.state = begun
        self._over = False
        self._observation = self._fit(observation)
        self._transcript = [self._said()]
        info = self.info(Outcome(observation))
        if self.render_mode == "human":
            self.render()
        return self._observation, info

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out the policy's text.

        Returns:
            Observation, reward, terminated, truncated (always False: limits belong to the TimeLimit wrapper) and info.

        Raises:
            ResetNeeded: The episode is over, or ``reset`` has not been called yet.
            TypeError: The action is not a string.
        """
        check_action(action)
        if self._over:
            raise ResetNeeded("the episode is over: call reset() before step()")
        limit = self.action_space.max_length  # type: ignore[attr-defined]
        if len(action) > limit:
            outcome = Outcome(f"The text has {len(action)} characters; at most {limit} are read.", invalid_action=True)
        else:
            outcome = self.act(action if action.isascii() else clean_text(action))
            if not isinstance(outcome, Outcome):
                raise wrong_return(self, "act", "an Outcome", outcome)
        self._over = outcome.terminated
        observation, info = self._reply(action, outcome)
        return observation, finite("a reward", outcome.reward), outcome.terminated, False, info

    def render(self) -> str | None:
        """Return the episode so far as text, control characters escaped; "human" prints what is new instead."""
        if self.render_mode is None:
            gym.logger.warn("render() was called with render_mode=None; make the env with render_mode='ansi'")
            return None
        if self.render_mode == "human":
            sys.stdout.write(transcript_text(self._transcript, start=max(0, len(self._transcript) - 2)) + "\n")
            return None
        return transcript_text(self._transcript)

    # -- branching -----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return this point of the episode, including the state of the random generator.

        It leaves out the state of wrappers, such as step counts; ``agent_envs.snapshot(env)`` includes it.

        Raises:
            ResetNeeded: ``reset`` has not been called yet.
        """
        if not self._transcript:
            raise ResetNeeded("there is no episode yet: call reset() before snapshot()")
        return Snapshot(
            index=self._index,
            state=copy.deepcopy(self.state),
            rng_state=copy.deepcopy(self.np_random.bit_generator.state),
            observation=self._observation,
            over=self._over,
            transcript=tuple(self._transcript),
            task=self._task if self._index < 0 else None,
        )

    def restore(self, snapshot: Snapshot) -> tuple[Any, dict[str, Any]]:
        """Return to a snapshot of this environment, or of another one with the same arguments.

        Returns: The observation at that point, and info as after a reset.
        """
        if not isinstance(snapshot, Snapshot):
            raise ConfigError(f"restore needs what snapshot() returned, got {shown(snapshot)}")
        self._play(snapshot.index, self.tasks[snapshot.index] if snapshot.index >= 0 else snapshot.task)
        self.state = copy.deepcopy(snapshot.state)
        self.np_random.bit_generator.state = copy.deepcopy(snapshot.rng_state)
        self._observation = snapshot.observation
        self._over = snapshot.over
        self._transcript = list(snapshot.transcript)
        return self._observation, self.info(Outcome(self._said()))

    # -- inside --------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of a pickle what ``open_tasks`` opened; a subclass leaves out what else it opened there."""
        return {**vars(self), "_tasks": None, "_task": None if self._index >= 0 else self._task}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the tasks of an episode again."""
        vars(self).update(state)
        if self._task_info:
            self._play(self._index, self.tasks[self._index] if self._index >= 0 else self._task)

    def _play(self, index: int, task: Any) -> None:
        """Make a task the current one."""
        tasks = self.tasks
        self._index, self._task = index, task
        source = tasks.name if index >= 0 else "question"
        self._task_info = {"task_id": task_id_of(task), "split": tasks.split, "index": index, "source": source}

    def _chosen_index(self, options: dict[str, Any], count: int) -> int | None:
        """Return the index that the options ask for, or None to draw one; a subclass may read more options."""
        index = options.get("index")
        if index is not None and not 0 <= (index := integer("options['index']", index)) < count:
            raise TaskIndexError(f"split {self.tasks.split!r} has tasks 0 to {count - 1}, got index {index}")
        return index

    def _reply(self, action: str, outcome: Outcome) -> tuple[Any, dict[str, Any]]:
        self._observation = self._fit(outcome.observation)
        said = self._said() if self.max_images else self._observation
        self._transcript += (kept_action(action, self.action_space), said)
        info = self.info(outcome)
        if self.render_mode == "human":
            self.render()
        return self._observation, info

    def _said(self) -> str:
        """Return the words of the last observation."""
        return self._observation["text"] if self.max_images else self._observation

    def _fit(self, observation: str | Pictured) -> str | ImageObservation:
        limit = self.observation_space.max_length  # type: ignore[attr-defined]
        if self.max_images:
            return Pictured.of(observation).fitted(limit, self.max_images, self.max_image_side).observation()
        if not isinstance(observation, str):
            if not isinstance(observation, Pictured):
                raise ConfigError(f"an observation of {type(self).__name__} must be a string, got {shown(observation)}")
            if observation.images:
                raise ConfigError(f"{type(self).__name__} shows text alone, got pictures: set max_images")
            observation = observation.text
        plain = observation.isascii() and len(observation) <= limit
        return observation if plain else cut(clean_text(observation), limit)
