"""A process of its own for TextWorld, which a damaged game file may end: its interpreter exits where it is lost.

One process plays the games of all environments, one command after another, since TextWorld keeps parsers and data in
module globals. A request has the whole way to a point, so that a new process goes on where another has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

from agent_envs.errors import DataError
from agent_envs.per_process import PerProcess

_SECONDS = 120.0  # that an answer may take; milliseconds are usual
_MOST_GAMES = 64  # that stand somewhere; another is played again from its beginning


class RunningGames:
    """The games of a process, where they were left.

    A game is any object with a `key`, the `history` of commands that led where it stands, `play(command)` and
    `close()`.
    """

    def __init__(self) -> None:
        self._games: list[Any] = []

    def at(self, key: str, history: Sequence[str], begin: Callable[[], Any]) -> Any:
        """Return a game at a point: one that stands there or a command before, or a new one."""
        game = self._taken(key, tuple(history)) or self._taken(key, tuple(history[:-1]))
        if game is None:
            if len(self._games) == _MOST_GAMES:
                self._games.pop(0).close()
            game = begin()
        for command in history[len(game.history) :]:
            game.play(command)
        self._games.append(game)  # one that fails is not kept
        return game

    def leave(self, key: str, history: Sequence[str]) -> None:
        """End the game that stands at a point, if there is one."""
        if (game := self._taken(key, tuple(history))) is not None:
            game.close()

    def _taken(self, key: str, point: tuple[str, ...]) -> Any:
        game = next((game for game in self._games if (game.key, game.history) == (key, point)), None)
        if game is not None:
            self._games.remove(game)
        return game


def ask(module: str, name: str, *arguments: Any) -> Any:
    """Return what the function `answer` of a module, in a process of its own, returns for some arguments, as JSON.

    One call is made after the other.

    Args:
        module: The module's name.
        name: The game, as errors name it.
        *arguments: The arguments.

    Raises:
        DataError: The function raised something, or the process ended or stopped.
    """
    request, reply = json.dumps(arguments).encode(), None
    while reply is None:
        reply = _processes.get(module, lambda: _Process(module)).answer(request)
    if not reply:
        raise DataError(f"{name}: TextWorld's interpreter ended or stopped at this game: the file is damaged")
    result, error = json.loads(reply)
    if error is not None:
        raise DataError(f"{name}: TextWorld cannot play this game: {error}")
    return result


class _Process:
    """The process, as the one that asks it sees it."""

    def __init__(self, module: str) -> None:
        self._module, self._owner, self._lock = module, os.getpid(), threading.Lock()
        self._link, its = Pipe()
        self._folder = tempfile.mkdtemp(prefix="agent_envs-")  # a damaged game may save itself
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module, str(its.fileno())],
            pass_fds=[its.fileno()],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )
        its.close()
        atexit.register(self._close)

    def answer(self, request: bytes) -> bytes | None:
        """Return the reply to a request; nothing if that ends the process or takes too long; None if it had ended."""
        with self._lock:
            if self._link.closed:
                return None
            with contextlib.suppress(EOFError, OSError):
                self._link.send_bytes(request)
                if self._link.poll(_SECONDS):
                    return self._link.recv_bytes()
            _processes.pop(self._module)
            self._close()
            return b""

    def _close(self) -> None:
        self._link.close()
        if self._owner == os.getpid():  # a fork of it has its own
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)


_processes: PerProcess[_Process] = PerProcess()


def _serve(answer: Callable[..., Any], link: Connection) -> None:
    """Answer requests until nobody can ask any more."""
    warnings.simplefilter("ignore")  # such as that Jericho knows the games of TextWorld in part only
    while True:
        try:
            arguments = json.loads(link.recv_bytes())
        except EOFError:
            return
        try:
            result, error = answer(*arguments), None
        except DataError as e:
            result, error = None, str(e)
        except (Exception, SystemExit) as e:  # noqa: BLE001  whatever a damaged file makes TextWorld raise
            result, error = None, f"{type(e).__name__}: {str(e)[:300]}"
        link.send_bytes(json.dumps([result, error]).encode())


if __name__ == "__main__":
    _serve(importlib.import_module(sys.argv[1]).answer, Connection(int(sys.argv[2])))
