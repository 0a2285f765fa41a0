"""The state of an ALFWorld episode on its engines: the native one, or TextWorld with the native one beside it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.alfworld.generate import game_document
from agent_envs.datasets.alfworld.generated.tasks import GeneratedGame
from agent_envs.datasets.alfworld.rows import Game, load_game, load_problem
from agent_envs.envs.alfworld.engine import GameState, play
from agent_envs.envs.alfworld.game import GroundedGame
from agent_envs.envs.alfworld.textworld import TextWorldEpisode
from agent_envs.errors import DataError

Task = Game | GeneratedGame

_MARKS = {"isclean": "Clean", "iscool": "Cool", "ishot": "Hot", "issliced": "Sliced", "istoggled": "Used"}


@dataclass(slots=True)
class SessionState:
    """The state of an episode. Copies and pickles hold neither the grounded game nor the engine."""

    native: GameState | None
    """The state on the native engine; None if only TextWorld can play the game."""
    textworld: TextWorldEpisode | None = None
    """The state on TextWorld; None on the native engine."""

    @property
    def commands(self) -> list[str]:
        """The admissible commands. Do not change the list in place."""
        return self._current.commands

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return self._current.won

    @property
    def _current(self) -> GameState | TextWorldEpisode:
        current = self.textworld or self.native
        assert current is not None  # one of the engines plays
        return current


def grounded_game(task: Task) -> GroundedGame:
    """Return the grounded game of a task; DataError if its file cannot be played."""
    return _ground(task, game_key(task))


@functools.lru_cache(maxsize=128)  # about 25 kB each
def _ground(task: Task, key: tuple[Any, ...]) -> GroundedGame:
    if isinstance(task, Game):
        return GroundedGame(load_problem(task.file), task.file)
    return GroundedGame(task.problem, task.task_id)


def game_key(task: Task) -> tuple[Any, ...]:
    """Return what tells a task, and the state of its file, from all others."""
    if not isinstance(task, Game):
        return (task.task_id,)
    try:
        stat = os.stat(task.file)
    except OSError as e:
        raise DataError(f"{task.file} cannot be read: {e}") from e
    return task.file, stat.st_mtime_ns, stat.st_size


def anchor_text(game: GroundedGame, state: GameState) -> str:
    """Return the state in words: the task, the view, the hands, and all that differs from the start of the game.

    Equal states have equal texts, whatever commands led to them.
    """
    lines = [
        f"Your task is to: {game.task}.",
        play(game, state, "look"),
        *(play(game, state, f"examine {receptacle}") for receptacle in game.here.get(state.place, ())),
        play(game, state, "inventory"),
    ]
    if state.opened:
        lines.append(f"Open: {', '.join(sorted(state.opened))}.")
    if state.moved:
        lines.append("Moved: " + ", ".join(f"{o} to {r}" for o, r in sorted(state.moved.items())) + ".")
    marks = sorted(state.marks)
    for mark, word in _MARKS.items():
        if things := [thing for own_mark, thing in marks if own_mark == mark]:
            lines.append(f"{word}: {', '.join(things)}.")
    return "\n".join(lines)


def document(task: Task) -> dict[str, Any]:
    """Return the content of a task's game file."""
    return load_game(task.file) if isinstance(task, Game) else game_document(task.problem)
