"""The host's side of a zygote: starting it, checking its walls, and opening lanes in it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from agent_envs.errors import BackendDownError, BackendError
from agent_envs.sandbox.inside import wire

__all__ = ["WALLS", "Prepared", "ZygoteProcess", "zygote_environment"]

WALLS = ("seccomp", "landlock", "namespaces", "user")
"""The walls: "user" is true if programs do not run as root."""

_START_SECONDS = 120.0
# The package's own modules by their full names, without `agent_envs` itself, which imports Gymnasium. What libraries do
# after a fork (new locks, new random numbers) is for processes with threads; programs are seeded, and cannot fork.
_BOOTSTRAP = """
import sys, types
for name in ("agent_envs", "agent_envs.sandbox", "agent_envs.sandbox.inside"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + name.removeprefix("agent_envs").replace(".", "/")]
import importlib, os
os.register_at_fork = lambda **hooks: None
importlib.import_module("agent_envs.sandbox.inside." + sys.argv[4]).main(int(sys.argv[2]), int(sys.argv[3]))
"""


class Prepared(Protocol):
    """An interpreter that a zygote prepares."""

    @property
    def main(self) -> str:
        """The module in `agent_envs.sandbox.inside` that is its process."""

    def settings(self) -> dict[str, Any]:
        """Return what its process is told: "path", "filter" and what it needs besides."""


class ZygoteProcess:
    """A running zygote.

    Args:
        interpreter: What it prepares.
        require: Walls without which it must not run.
        use: Walls to put up if the system has them.

    Raises:
        BackendError: It does not start, or lacks a required wall.
    """

    def __init__(self, interpreter: Prepared, *, require: Sequence[str], use: Sequence[str]) -> None:
        self._lock = threading.Lock()
        package = Path(__file__).parents[2]
        ours, theirs = socket.socketpair()
        host, self._life = _life()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  closed below
        command = [sys.executable, "-P", "-s", "-S", "-B", "-c", _BOOTSTRAP, str(package)]
        command += [str(theirs.fileno()), str(host), interpreter.main]
        try:
            self._process = subprocess.Popen(
                command,
                env=zygote_environment(),
                pass_fds=(theirs.fileno(), host),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as e:
            ours.close()
            errors.close()
            raise BackendDownError(f"the sandbox's interpreter cannot be started: {e}") from e
        finally:
            os.close(host)
            theirs.close()
        self._control = ours
        try:
            self.report = self._prepare(interpreter, use)
        except (OSError, EOFError, ValueError) as e:
            self.close()
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip()[-400:]
            raise BackendDownError(f"the sandbox's interpreter did not start: {said or e!r}") from e
        finally:
            errors.close()
        self.walls = _walls(self.report)
        missing = [wall for wall in require if not self.walls[wall]]
        if missing:
            self.close()
            raise BackendError(
                f"the sandbox refuses to run: {', '.join(missing)} is required and does not hold here "
                f"(found {self.walls}; the self-check: {self.report['probe']})"
            )

    def lane(self) -> socket.socket:
        """Return a connection to a new lane.

        Raises:
            BackendDownError: The zygote is gone.
        """
        ours, theirs = socket.socketpair()
        try:
            with self._lock:
                socket.send_fds(self._control, [b"l"], [theirs.fileno()])
        except OSError as e:
            ours.close()
            raise BackendDownError("the sandbox's zygote is gone") from e
        finally:
            theirs.close()
        return ours

    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close(self) -> None:
        """End it, and with it all lanes and children."""
        self._process.kill()
        self._process.wait()
        self._control.close()
        self._let_go()

    def abandon(self) -> None:
        """Forget it in a fork of the host, without ending it: it belongs to the parent."""
        self._control.close()
        self._let_go()
        self._process.returncode = 0  # not our child, so there is nothing to wait for

    def _let_go(self) -> None:
        if self._life is not None:
            os.close(self._life)
            self._life = None

    def _prepare(self, interpreter: Prepared, use: Sequence[str]) -> dict[str, Any]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            settings = {
                **interpreter.settings(),
                "namespaces": "namespaces" in use,
                "landlock": "landlock" in use,
                "host": os.getpid(),
                "port": listener.getsockname()[1],
            }
            message = json.dumps(settings).encode()
            self._control.sendall(wire.LENGTH.pack(len(message)) + message)
            deadline = time.monotonic() + _START_SECONDS
            (length,) = wire.LENGTH.unpack(self._read(wire.LENGTH.size, deadline))
            return json.loads(self._read(length, deadline))

    def _read(self, length: int, deadline: float) -> bytes:
        said = b""
        while len(said) < length:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._control], [], [], left)[0]:
                raise TimeoutError(f"no answer within {_START_SECONDS:g} s")
            part = self._control.recv(length - len(said))
            if not part:
                raise EOFError("it has ended")
            said += part
        return said


def _life() -> tuple[int, int | None]:
    """Return a descriptor that becomes readable when this process dies, and one that must stay open until then."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(os.getpid()), None
    return os.pipe()


def zygote_environment() -> dict[str, str]:
    """Return the whole environment of a zygote: nothing of the host's."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one_thread | {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "HOME": "/"}


def _walls(report: dict[str, Any]) -> dict[str, bool]:
    others, everything = report["probe"]["others"], report["probe"]["all"]
    return {
        "seccomp": "done" not in everything.values() and everything.get("fork") == "EPERM",
        "landlock": report["landlock"] > 0 and others.get("open") == "EACCES",
        "namespaces": bool(report["namespaces"]) and others.get("connect") != "done",
        "user": report["user"] != 0,
    }
