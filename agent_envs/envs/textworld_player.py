"""TextWorld's games in a process of their own, which a damaged file may end: its interpreter exits where it is lost.

One process plays the games of all environments, one command after another, since TextWorld keeps parsers and data in
module globals. A request has the whole way to a point, so that a new process goes on where another has ended:

    ask     ["/games/a.z8", ["open chest", "take key"]]
    reply   {"text": "You take the key.", "commands": ["look", ...], ...}, or a text: why it cannot be played
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

from agent_envs.errors import DataError
from agent_envs.per_process import PerProcess

__all__ = ["State", "state_at"]

_GAMES = 64  # that stand somewhere; another is played again from its beginning
_SECONDS = 120.0  # that an answer may take; milliseconds are usual
_player: PerProcess[_Player] = PerProcess()


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
    answer = None
    while answer is None:
        answer = _player.get(None, _Player).answer(json.dumps([file, history]).encode())
    if not answer:
        raise DataError(f"{file}: TextWorld's interpreter ended or stopped at this game: the file is damaged")
    found: Any = json.loads(answer)
    if isinstance(found, str):
        raise DataError(f"{file}: TextWorld cannot play this game: {found}")
    lists: Any = {name: tuple(found[name]) for name in ("history", "commands", "plan")}
    return State(**{**found, **lists})


class _Player:
    """The process, as the one that asks it sees it."""

    def __init__(self) -> None:
        self._owner, self._lock = os.getpid(), threading.Lock()
        self._link, its = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())], pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        its.close()
        atexit.register(self.close)

    def answer(self, request: bytes) -> bytes | None:
        """Return the answer to a request; nothing if that ends the process or takes too long; None if it had ended."""
        with self._lock:
            if self._link.closed:
                return None
            try:
                self._link.send_bytes(request)
                if self._link.poll(_SECONDS):
                    return self._link.recv_bytes()
            except (EOFError, OSError):
                pass
            _player.pop(None)
            self.close()
            return b""

    def close(self) -> None:
        self._link.close()
        if self._owner == os.getpid():  # a fork of it has its own
            self._process.kill()
            self._process.wait()


class _Game:
    """A running game, in the process of its own."""

    def __init__(self, file: str) -> None:
        import textworld

        asked = ["admissible_commands", "policy_commands", "description", "inventory", "score", "max_score", "won"]
        self._env: Any = textworld.start(file, textworld.EnvInfos(**dict.fromkeys(asked, True)))
        self.state = self._state(file, (), self._env.reset(), over=False)

    def play(self, command: str) -> None:
        before = self.state
        reply, _, over = self._env.step(command)
        self.state = self._state(before.file, (*before.history, command), reply, over=over)

    def close(self) -> None:
        self._env.close()

    def _state(self, file: str, history: tuple[str, ...], reply: Any, *, over: bool) -> State:
        return State(
            file=file,
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


def _moved(games: list[_Game], file: str, history: tuple[str, ...]) -> State:
    """Bring a game to a point: one that stands there or a command before, or a new one."""
    standing = {game.state.history: game for game in games if game.state.file == file}
    game = standing.get(history) or standing.get(history[:-1])
    if game is None:
        game = _Game(file)
    else:
        games.remove(game)
    for command in history[len(game.state.history) :]:
        game.play(command)
    games.append(game)  # one that fails is not kept
    if len(games) > _GAMES:
        games.pop(0).close()
    return game.state


def _serve(link: Connection) -> None:
    """Answer requests until nobody can ask any more."""
    warnings.simplefilter("ignore")  # that Jericho knows the games of TextWorld in part only
    games: list[_Game] = []
    while True:
        try:
            file, history = json.loads(link.recv_bytes())
        except EOFError:
            return
        try:
            answer: Any = asdict(_moved(games, file, tuple(history)))
        except Exception as e:  # noqa: BLE001  whatever a damaged file makes TextWorld raise
            answer = f"{type(e).__name__}: {e}"
        link.send_bytes(json.dumps(answer).encode())


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
