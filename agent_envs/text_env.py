"""The one base class of the text environments: tasks by split and index, the info contract, expert, snapshot, ansi."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded

from agent_envs.errors import ConfigError, TaskIndexError
from agent_envs.messages import ToolSpec
from agent_envs.spaces import UnicodeText
from agent_envs.tasks import TaskSource
from agent_envs.text import clean_text, plain

__all__ = ["MAX_ACTION_LENGTH", "Outcome", "Snapshot", "TextEnv"]

MAX_ACTION_LENGTH = 1 << 22
"""Characters an action may have. Longer ones are answered like any other bad action."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action led to; ``TextEnv.step`` makes Gymnasium's five values of it."""

    observation: str
    """The environment's new words."""
    reward: float = 0.0
    """The reward of this step."""
    terminated: bool = False
    """Whether the task ended."""
    invalid_action: bool = False
    """Whether the action could not be carried out as asked."""
    score: float = 0.0
    """The task's own measure of how well it is solved."""
    success: bool = False
    """Whether the task is solved."""
    components: Mapping[str, float] = field(default_factory=dict)
    """The reward's parts by name."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further info keys of this environment."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A point in an episode to which ``TextEnv.restore`` returns."""

    index: int
    state: Any
    rng_state: Mapping[str, Any]
    observation: str
    over: bool
    transcript: tuple[str, ...]
    task: Any = None
    """The task where it is of no split: a question of the user's own."""


class TextEnv(gym.Env[str, str]):
    """A task whose observations and actions are text.

    A subclass says where its tasks come from (``open_tasks``), how an episode starts (``begin``) and what an action
    does (``act``); this class draws tasks, keeps the info contract, cleans text and keeps what ``render`` shows.
    Everything that changes during an episode lives in ``self.state``, so that a snapshot is a copy of it.

    Args:
        split: Name of the split the tasks come from.
        data: ``"generated"``, ``"official"``, or a path to files in the released format.
        render_mode: ``"ansi"`` (``render`` returns the episode as text), ``"human"`` (it is printed) or None.
        max_observation_length: Characters of the longest observation; a longer one is cut, and says so.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # type: ignore[misc]

    instructions: str = ""
    """How to act, for the system message."""

    reset_options: ClassVar[tuple[str, ...]] = ("index",)
    """What ``reset(options=...)`` may hold; with "question" an environment says that it has ``own_task``."""

    prompt_templates: ClassVar[Mapping[str, Callable[[Any], str]]] = {}
    """Functions that turn a `PromptView` into a prompt, by name and the default first; `RebuildPrompt` uses them."""

    def __init__(
        self,
        *,
        split: str = "train",
        data: str | os.PathLike[str] = "generated",
        render_mode: str | None = None,
        max_observation_length: int = 65536,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            modes = self.metadata["render_modes"]
            raise ConfigError(f"render_mode must be one of {modes} or None, got {render_mode!r}")
        if not isinstance(split, str):
            raise ConfigError(f"split must be a name such as 'train', got {split!r}")
        if not isinstance(data, (str, os.PathLike)):
            raise ConfigError(f"data must be 'generated', 'official' or a path, got {data!r}")
        self.split = split
        self.data = os.fspath(data)
        self.render_mode = render_mode
        self.observation_space = UnicodeText(max_observation_length)
        self.action_space = UnicodeText(MAX_ACTION_LENGTH)
        self.state: Any = None
        self._tasks: TaskSource | None = None
        self._task: Any = None
        self._index = 0
        self._observation = ""
        self._over = True
        self._transcript: list[str] = []

    # -- what a task implements ----------------------------------------------------------------------------------

    def open_tasks(self) -> TaskSource:
        """The tasks of ``self.split``; called once, at the first reset or count."""
        raise NotImplementedError

    def begin(self, task: Any) -> tuple[str, Any]:
        """The first observation of a task and the state its episode starts in."""
        raise NotImplementedError

    def act(self, action: str) -> Outcome:
        """Carry out one action on ``self.state``."""
        raise NotImplementedError

    def own_task(self, question: str) -> Any:
        """A task that asks a question of the user's own, to which no gold answer is known."""
        raise NotImplementedError

    def anchor(self) -> str:
        """The state as text, without the history that led to it."""
        return self._transcript[0]

    def available_actions(self) -> list[str] | None:
        """Return the actions that can be taken now, as a policy would write them, or None if they cannot be listed.

        Three dots stand for free text: ``search[...]`` means ``search[`` followed by any words and ``]``.
        """
        return None

    def prompt_state(self) -> dict[str, Any]:
        """Return what a rebuilt prompt may show of the current state, as plain data: str, int, float, list and dict."""
        return {}

    def expert_action(self) -> str | None:
        """The next action of a solver that wins from here, or None where there is no such solver."""
        return None

    def demo_action(self, rng: np.random.Generator, noise: float) -> str | None:
        """The next action of a demonstrator that errs.

        Args:
            rng: Source of the errors.
            noise: Probability of an action that is well-formed and wrong, where the task has such actions.

        Returns:
            An action, or None where there is no demonstrator.
        """
        return self.expert_action()

    # -- what it has ---------------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools on offer, as a chat template's ``tools=`` takes them; empty where actions are commands."""
        return []

    @property
    def tool_instructions(self) -> str:
        """The tools and how to call them in words, "" where there are none."""
        return ""

    @property
    def tasks(self) -> TaskSource:
        """The tasks of the split."""
        if self._tasks is None:
            self._tasks = self.open_tasks()
        return self._tasks

    @property
    def num_tasks(self) -> int:
        """The number of tasks in the split."""
        return len(self.tasks)

    @property
    def task(self) -> Any:
        """The task being played.

        Raises:
            ResetNeeded: There is none before the first reset.
        """
        if self._task is None:
            raise ResetNeeded("there is no task yet: call reset() first")
        return self._task

    # -- Gymnasium -----------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin a task: row ``options["index"]`` of the split, or one drawn from ``self.np_random``.

        Where ``reset_options`` has "question", ``options["question"]`` is asked instead. Its info has index -1 and
        source "question"; it has no gold answer, so nothing said to it is right, and no expert.

        Raises:
            TaskIndexError: The index lies outside the split.
            ConfigError: ``options`` has other keys, an index that is no integer, or a question that is no text.
        """
        super().reset(seed=seed)
        tasks = self.tasks
        unknown = sorted(set(options or {}) - set(self.reset_options))
        if unknown:
            known = ", ".join(map(repr, self.reset_options))
            raise ConfigError(f"reset options may hold {known}, got {', '.join(map(repr, unknown))}")
        question = (options or {}).get("question")
        if question is None:
            index = self._chosen_index(options or {}, len(tasks))
            self._index = int(self.np_random.integers(len(tasks))) if index is None else index
            self._task = tasks[self._index]
        else:
            self._index, self._task = -1, self.own_task(_checked_question(question, options or {}))
        observation, self.state = self.begin(self._task)
        self._over = False
        self._observation = self._fit(observation)
        self._transcript = [self._observation]
        info = self._info(Outcome(observation))
        if self.render_mode == "human":
            self.render()
        return self._observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out the policy's text.

        Returns:
            Observation, reward, terminated, truncated (always False: limits are the step-limit wrapper's) and info.

        Raises:
            ResetNeeded: The episode is over or was never begun.
            TypeError: The action is not a string.
        """
        if not isinstance(action, str):
            raise TypeError(f"an action is a string, got {type(action).__name__}: {action!r:.80}")
        if self._over:
            raise ResetNeeded("the episode is over: call reset() before step()")
        if len(action) > MAX_ACTION_LENGTH:
            outcome = Outcome(
                f"The text has {len(action)} characters; at most {MAX_ACTION_LENGTH} are read.", invalid_action=True
            )
        else:
            outcome = self.act(clean_text(action))
        self._over = outcome.terminated
        self._observation = self._fit(outcome.observation)
        self._transcript += (action, self._observation)
        info = self._info(outcome)
        if self.render_mode == "human":
            self.render()
        return self._observation, float(outcome.reward), outcome.terminated, False, info

    def render(self) -> str | None:
        """The episode so far as text, with control characters shown as escapes.

        Returns:
            The text in mode ``"ansi"``; None in mode ``"human"``, which writes to standard output.
        """
        if self.render_mode is None:
            gym.logger.warn("render() was called with render_mode=None; make the env with render_mode='ansi'")
            return None
        if self.render_mode == "human":
            import sys

            # Only what is new since the last call: the last action and what came of it.
            sys.stdout.write(_render(self._transcript, start=max(0, len(self._transcript) - 2)) + "\n")
            return None
        return _render(self._transcript)

    # -- branching -----------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """This point of the episode, random state included.

        Wrappers keep state of their own (``TimeLimit`` counts steps) that this does not hold:
        ``agent_envs.snapshot(env)`` takes all of it.

        Raises:
            ResetNeeded: There is no episode before the first reset.
        """
        if self._task is None:
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

    def restore(self, snapshot: Snapshot) -> tuple[str, dict[str, Any]]:
        """Return to a snapshot of this environment, or of another with the same arguments.

        Returns:
            The observation at that point and a reset's info.
        """
        self._index = snapshot.index
        self._task = self.tasks[snapshot.index] if snapshot.index >= 0 else snapshot.task
        self.state = copy.deepcopy(snapshot.state)
        self.np_random.bit_generator.state = copy.deepcopy(snapshot.rng_state)
        self._observation = snapshot.observation
        self._over = snapshot.over
        self._transcript = list(snapshot.transcript)
        return self._observation, self._info(Outcome(self._observation))

    # -- inside --------------------------------------------------------------------------------------------------

    def _chosen_index(self, options: dict[str, Any], count: int) -> int | None:
        """The task that the options name, or None where one is to be drawn; a subclass may read more of them."""
        index = options.get("index")
        if index is None:
            return None
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise ConfigError(f"options['index'] must be an integer, got {index!r}")
        if not 0 <= index < count:
            raise TaskIndexError(f"split {self.tasks.split!r} has tasks 0 to {count - 1}, got index {index}")
        return int(index)

    def _info(self, outcome: Outcome) -> dict[str, Any]:
        tasks = self.tasks
        return {
            "task_id": self._task.task_id,
            "split": tasks.split,
            "index": self._index,
            "source": tasks.name if self._index >= 0 else "question",
            "invalid_action": outcome.invalid_action,
            "score": float(outcome.score),
            "success": outcome.success,
            "reward_components": dict(outcome.components),
            "anchor": self.anchor(),
            **outcome.extra,
        }

    def _fit(self, observation: str) -> str:
        observation = clean_text(observation)
        limit = self.observation_space.max_length  # type: ignore[attr-defined]
        if len(observation) <= limit:
            return observation
        note = f"\n[cut: {len(observation)} characters, at most {limit} are shown]"
        return observation[: max(0, limit - len(note))] + note[:limit]


def _checked_question(question: Any, options: Mapping[str, Any]) -> str:
    if not isinstance(question, str) or not question.strip():
        raise ConfigError(f"options['question'] must be a text, got {question!r:.80}")
    if options.get("index") is not None:
        raise ConfigError("options hold an index or a question, not both")
    return clean_text(question)


def _render(transcript: list[str], start: int = 0) -> str:
    """The transcript from entry ``start`` on: observations as they are, actions behind ``> ``."""
    lines = []
    for position, text in enumerate(transcript[start:], start=start):
        shown = plain(text)
        lines.append(shown if position % 2 == 0 else "> " + shown.replace("\n", "\n> "))
    return "\n".join(lines)
