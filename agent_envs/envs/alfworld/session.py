"""What an ALFWorld environment plays on: the native engine, or the original with the native one beside it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.alfworld.generated.tasks import GeneratedGame
from agent_envs.datasets.alfworld.rows import Game, load_game, load_problem
from agent_envs.datasets.alfworld.writer import game_document
from agent_envs.envs.alfworld.engine import GameState, begin, intro, play
from agent_envs.envs.alfworld.explore import explore_action
from agent_envs.envs.alfworld.game import House
from agent_envs.envs.alfworld.oracle import oracle_action
from agent_envs.envs.alfworld.progress import anchor, condition_rate
from agent_envs.envs.alfworld.textworld import EngineHold, Episode, begin_episode, play_episode
from agent_envs.errors import DataError

__all__ = ["Seat", "State", "house_of"]

Task = Game | GeneratedGame

_HOUSES = 16  # kept per process: about 100 kB each
_houses: OrderedDict[tuple[Any, ...], House] = OrderedDict()
_lock = threading.Lock()


@dataclass(slots=True)
class State:
    """Where an episode is. Copied and pickled without house and engine."""

    game: GameState | None
    """On the native engine; None where only TextWorld can play the game."""
    episode: Episode | None = None
    """On TextWorld; None on the native engine."""

    @property
    def commands(self) -> list[str]:
        """The admissible commands. Not to be changed in place."""
        return self.episode.commands if self.episode is not None else self._native.commands

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return self.episode.won if self.episode is not None else self._native.won

    @property
    def _native(self) -> GameState:
        if self.game is None:
            raise TypeError("an episode is played on the native engine or on TextWorld, this one on neither")
        return self.game


def house_of(task: Task) -> House:
    """The house of a game, made once and kept while it is among those last used.

    Raises:
        DataError: The game file cannot be played.
    """
    key = _key(task)
    with _lock:
        house = _houses.get(key)
        if house is not None:
            _houses.move_to_end(key)
            return house
    problem, where = (load_problem(task.file), task.file) if isinstance(task, Game) else (task.problem, task.task_id)
    house = House(problem, where)
    with _lock:
        _houses[key] = house
        while len(_houses) > _HOUSES:
            _houses.popitem(last=False)
    return house


def _key(task: Task) -> tuple[Any, ...]:
    if not isinstance(task, Game):
        return (task.task_id,)
    try:
        stat = os.stat(task.file)
    except OSError as e:
        raise DataError(f"{task.file}: cannot be read: {e}") from e
    return task.file, stat.st_mtime_ns, stat.st_size


class Seat:
    """One environment's place at an engine.

    Args:
        engine: "native" or "textworld".
    """

    def __init__(self, engine: str) -> None:
        self._hold = EngineHold() if engine == "textworld" else None
        self._task: Task | None = None
        self._house: House | None = None

    def begin(self, task: Task) -> tuple[str, State]:
        """Begin a game: its first words and where it starts."""
        if self._hold is None:
            house = self._its_house(task)
            if house is None:
                raise DataError(f"{task.task_id} cannot be played")
            game = begin(house)
            return intro(house, game), State(game)
        text, episode = begin_episode(self._hold, task.task_id, lambda: _document(task))
        house = self._its_house(task)
        return text, State(None if house is None else begin(house), episode)

    def play(self, task: Task, state: State, command: str) -> str:
        """Give a command: the answer; `state` moves on."""
        house = self._its_house(task)
        answer = ""
        if house is not None and state.game is not None:
            answer = play(house, state.game, command)
        if self._hold is not None and state.episode is not None:
            answer, state.episode = play_episode(self._hold, state.episode, command, lambda: _document(task))
        return answer

    def rate(self, task: Task, state: State) -> float:
        """The share of the task's conditions that hold."""
        house = self._its_house(task)
        return float(state.won) if house is None or state.game is None else condition_rate(house, state.game)

    def anchor(self, task: Task, state: State) -> str:
        """The state in words, without history; for a game that only TextWorld plays, what can be done."""
        house = self._its_house(task)
        return "\n".join(state.commands) if house is None or state.game is None else anchor(house, state.game)

    def advise(self, expert: str, task: Task, state: State, transcript: Sequence[str]) -> str | None:
        """The next command of an expert, None where it has none; the oracle has none where only TextWorld can play."""
        if state.won:
            return None
        if expert != "oracle":
            return explore_action(transcript, state.commands)
        house = self._its_house(task)
        return None if house is None or state.game is None else oracle_action(house, state.game)

    def leave(self) -> None:
        """Give back what the engine holds."""
        if self._hold is not None:
            self._hold.leave()

    def _its_house(self, task: Task) -> House | None:
        """The task's house; None where only TextWorld can play it."""
        if self._task is not task:
            try:
                self._house = house_of(task)
            except DataError:
                if self._hold is None:
                    raise
                self._house = None
            self._task = task
        return self._house


def _document(task: Task) -> dict[str, Any]:
    return load_game(task.file) if isinstance(task, Game) else game_document(task.problem)
