"""An episode that a person plays: what can be done, and how each step is taken, taken back and kept.

`agentr1 play` shows it in the terminal (`play_session`) or in a browser (`play_web`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from agent_envs import branching
from agent_envs.cli.play_choices import Choice, choices
from agent_envs.episodes.builder import EpisodeBuilder
from agent_envs.episodes.plain import recorded, to_json_types
from agent_envs.episodes.record import Episode, Step, StopReason, append_episode
from agent_envs.errors import AgentEnvsError, BackendError, ConfigError

__all__ = ["OVER", "PlayGame", "Start", "StepFailedError", "Turn"]

OVER = "The episode is over: /undo, /restart, /new, /task N or /quit."
"""What an action is answered with after the end."""

Start = tuple[int | None, int | None]
"""Seed and index of a task."""


class StepFailedError(AgentEnvsError):
    """A step failed, or was interrupted; the episode is as it was before."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An action and the point at which it was chosen."""

    point: branching.EnvSnapshot | None
    """None if the environment has no snapshots: the episode is replayed instead."""
    info: dict[str, Any]
    step: Step


class PlayGame:
    """Episodes that a person plays.

    Args:
        env: The environment in its wrappers.
        index: The first task, or None to draw one.
        seed: Seed of the first drawn task; the following tasks are drawn with the following seeds.
        save: The file to which every episode with an action is appended, or None.
    """

    def __init__(self, env: gym.Env[Any, str], *, index: int | None, seed: int, save: Path | None = None) -> None:
        self.env = env
        self.start: Start = (seed, index)
        """Seed and index of the current task."""
        self.turns: list[Turn] = []
        self.observation: Any = ""
        self.info: dict[str, Any] = {}
        self.choices: list[Choice] = []
        self.played = self.solved = 0
        self._seed = seed
        self._save = save
        self._record = EpisodeBuilder()

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.turns) and (self.turns[-1].step.terminated or self.turns[-1].step.truncated)

    def begin(self, start: Start | None = None) -> None:
        """Start a task: the first one if none is given. The episode before is ended."""
        start = self.start if start is None else start
        observation, info = self._reset(start)
        self.end()
        self.start = start
        options = None if start[1] is None else {"index": start[1]}
        self._record = EpisodeBuilder(seed=start[0], options=options, keep=to_json_types)
        self._record.reset(self.env, observation, info)
        self._move_to(observation, info)

    def switch(self, start: Start) -> None:
        """Start another task, or this one again; if that fails, the episode is as it was.

        Raises:
            AgentEnvsError: There is no such task.
        """
        point = self._point()
        try:
            self.begin(start)
        except AgentEnvsError:
            self._return_to(point)
            raise

    def new(self) -> None:
        """Draw another task."""
        self._seed += 1
        self.switch((self._seed, None))

    def restart(self) -> None:
        """Start this task again."""
        self.switch(self.start)

    def task(self, index: int) -> None:
        """Start a task of the split."""
        self.switch((self.start[0], index))

    def act(self, action: str) -> None:
        """Take an action.

        Raises:
            StepFailedError: The environment failed; the step is taken back.
            ConfigError: The episode is over.
        """
        if self.over:
            raise ConfigError(OVER)
        point = self._point()
        try:
            result = self.env.step(action)
        except KeyboardInterrupt:
            self._return_to(point)
            raise StepFailedError("\nStopped; the step is taken back.") from None
        except Exception as e:
            self._return_to(point)
            raise StepFailedError(f"{type(e).__name__}: {e}\nThe step is taken back.") from e
        step = self._record.transition(self.env, action, result)
        self._record.add(step, result[0])
        self.turns.append(Turn(point, self.info, step))
        self._move_to(result[0], result[4])

    def undo(self, count: int = 1) -> None:
        """Take back the last actions, all of them if there are fewer."""
        kept = max(0, len(self.turns) - count)
        first = self.turns[kept]
        del self.turns[kept:], self._record.steps[kept:]
        self._record.observation = first.step.observation
        self._return_to(first.point)
        self._move_to(first.step.observation, first.info)

    def expert(self) -> str | None:
        """Return the expert's next action, None if there is none."""
        if self.over or not self.env.has_wrapper_attr("expert_action"):
            return None
        action: str | None = self.env.get_wrapper_attr("expert_action")()
        return action

    def replay(self, steps: Sequence[Step]) -> int:
        """Take the actions of recorded steps on the current task, as far as they go before it ends.

        Returns:
            How many observations before an action differ from the recorded ones.
        """
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
        """Count and save the current episode if it has an action.

        Raises:
            BackendError: The file cannot be written.
        """
        if not self.turns:
            return
        self.played += 1
        self.solved += bool(self.turns[-1].step.info.get("success", False))
        if self._save is not None:
            try:
                append_episode(self._save, self.episode())
            except OSError as e:
                raise BackendError(f"the episode cannot be added to {self._save}: {e}") from e
        self.turns = []

    def _reset(self, start: Start) -> tuple[Any, dict[str, Any]]:
        seed, index = start
        return self.env.reset(seed=seed, options=None if index is None else {"index": index})

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
        self._reset(self.start)
        for turn in self.turns:
            self.env.step(turn.step.action)
