"""One environment's connection to an ALFWorld engine: the native one, or TextWorld with the native one beside it."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.alfworld.generate import game_document
from agent_envs.datasets.alfworld.generated.tasks import GeneratedGame
from agent_envs.datasets.alfworld.rows import Game, load_game, load_problem
from agent_envs.envs.alfworld.engine import GameState, begin, intro, play
from agent_envs.envs.alfworld.explore import explore_action
from agent_envs.envs.alfworld.game import GroundedGame
from agent_envs.envs.alfworld.oracle import oracle_action
from agent_envs.envs.alfworld.reward import condition_rate
from agent_envs.envs.alfworld.textworld import TextWorldEpisode, begin_episode, play_episode
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
        if current is None:
            raise TypeError("a session needs a state on the native engine or on TextWorld")
        return current


def grounded_game(task: Task) -> GroundedGame:
    """Return the grounded game of a task; DataError if its file cannot be played."""
    return _ground(task, _key(task))


@functools.lru_cache(maxsize=128)  # about 25 kB each
def _ground(task: Task, key: tuple[Any, ...]) -> GroundedGame:
    if isinstance(task, Game):
        return GroundedGame(load_problem(task.file), task.file)
    return GroundedGame(task.problem, task.task_id)


def _key(task: Task) -> tuple[Any, ...]:
    """Return what tells a task, and the state of its file, from all others."""
    if not isinstance(task, Game):
        return (task.task_id,)
    try:
        stat = os.stat(task.file)
    except OSError as e:
        raise DataError(f"{task.file} cannot be read: {e}") from e
    return task.file, stat.st_mtime_ns, stat.st_size


class EngineSession:
    """Plays the games of one environment on the engine "native" or "textworld"."""

    def __init__(self, engine: str) -> None:
        self._original = engine == "textworld"
        self._episode: TextWorldEpisode | None = None  # the last one on TextWorld
        self._task: Task | None = None
        self._game: GroundedGame | None = None

    def begin(self, task: Task) -> tuple[str, SessionState]:
        """Begin a game; return the first observation and the state."""
        if not self._original:
            game = self._grounded(task)
            assert game is not None  # the native engine's error was raised
            state = begin(game)
            return intro(game, state), SessionState(state)
        key = f"{task.task_id}\n{_key(task)}"
        self._episode = episode = begin_episode(key, lambda: _document(task), left=self._episode)
        game = self._grounded(task)
        return episode.text, SessionState(None if game is None else begin(game), episode)

    def play(self, task: Task, state: SessionState, command: str) -> str:
        """Carry out a command: change `state` and return the observation."""
        game = self._grounded(task)
        observation = "" if game is None or state.native is None else play(game, state.native, command)
        if state.textworld is None:
            return observation
        state.textworld = self._episode = play_episode(state.textworld, command, lambda: _document(task))
        return state.textworld.text

    def score(self, task: Task, state: SessionState) -> float:
        """Return the share of the task's conditions that hold."""
        game = self._grounded(task)
        return float(state.won) if game is None or state.native is None else condition_rate(game, state.native)

    def anchor(self, task: Task, state: SessionState) -> str:
        """Return the state in words, without history; for a game that only TextWorld plays, the admissible commands."""
        game = self._grounded(task)
        return "\n".join(state.commands) if game is None or state.native is None else anchor_text(game, state.native)

    def expert_action(self, expert: str, task: Task, state: SessionState, transcript: Sequence[str]) -> str | None:
        """Return the expert's next command, or None: the oracle has none for a game that only TextWorld plays."""
        if state.won:
            return None
        if expert != "oracle":
            return explore_action(transcript, state.commands)
        game = self._grounded(task)
        return None if game is None or state.native is None else oracle_action(game, state.native)

    def _grounded(self, task: Task) -> GroundedGame | None:
        """Return the task's grounded game, or None if only TextWorld can play it."""
        if self._task is not task:
            try:
                self._game = grounded_game(task)
            except DataError:
                if not self._original:
                    raise
                self._game = None
            self._task = task
        return self._game


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


def _document(task: Task) -> dict[str, Any]:
    return load_game(task.file) if isinstance(task, Game) else game_document(task.problem)
