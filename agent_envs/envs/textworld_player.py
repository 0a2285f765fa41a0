"""TextWorld's games, as points that a process of TextWorld's own plays (`agent_envs.envs.textworld_process`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agent_envs.envs.textworld_process import RunningGames, ask

__all__ = ["State", "answer", "state_at"]


@dataclass(frozen=True, slots=True)
class State:
    """A point in a game."""

    file: str
    history: tuple[str, ...]
    """The commands that lead there."""
    text: str
    commands: tuple[str, ...]
    """What is admissible."""
    plan: tuple[str, ...]
    """TextWorld's own commands from there to the end."""
    place: str
    score: int
    highest: int
    won: bool
    over: bool

    def share(self) -> float:
        """Return the share of the game's points."""
        return self.score / self.highest if self.highest else float(self.won)


def state_at(file: str, history: tuple[str, ...]) -> State:
    """Return where a game is after some commands.

    Raises:
        DataError: TextWorld cannot play the file, or ends or stops at it.
    """
    found = ask(__name__, file, file, history)
    lists: Any = {name: tuple(found[name]) for name in ("history", "commands", "plan")}
    return State(**{**found, **lists})


class _Game:
    """A running game."""

    def __init__(self, file: str) -> None:
        import textworld

        self.key = file
        asked = ["admissible_commands", "policy_commands", "description", "inventory", "score", "max_score", "won"]
        self._env: Any = textworld.start(file, textworld.EnvInfos(**dict.fromkeys(asked, True)))
        self.state = self._state((), self._env.reset(), over=False)

    @property
    def history(self) -> tuple[str, ...]:
        return self.state.history

    def play(self, command: str) -> None:
        reply, _, over = self._env.step(command)
        self.state = self._state((*self.history, command), reply, over=over)

    def close(self) -> None:
        self._env.close()

    def _state(self, history: tuple[str, ...], reply: Any, *, over: bool) -> State:
        return State(
            file=self.key,
            history=history,
            text=reply.feedback,
            commands=tuple(reply.admissible_commands),
            plan=tuple(reply.policy_commands),
            place=f"{reply.description}\n{reply.inventory}",
            score=int(reply.score),
            highest=int(reply.max_score),
            won=bool(reply.won),
            over=bool(over),
        )


_games = RunningGames()


def answer(file: str, history: Sequence[str]) -> dict[str, Any]:
    """Return the state at a point, as a dictionary. It is called in the process of TextWorld's own."""
    return asdict(_games.at(file, history, lambda: _Game(file)).state)
