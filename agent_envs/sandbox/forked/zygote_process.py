"""The host's side of a zygote: starting it, checking its walls, and asking it for children."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_envs.errors import BackendDownError, BackendError
from agent_envs.sandbox.forked.filters import filter_programs
from agent_envs.sandbox.inside import wire

WALLS = ("seccomp", "landlock", "namespaces", "user")
"""The walls: "user" is true if programs do not run as root."""

_START_SECONDS = 120.0
_MOST_REPORT = 1 << 18
# The package's own modules by their full names, without `agent_envs` itself, which imports Gymnasium. What libraries do
# after a fork (new locks, new random numbers) is for processes with threads; programs are seeded, and cannot fork.
_BOOTSTRAP = """
import sys, types
for name in ("agent_envs", "agent_envs.sandbox", "agent_envs.sandbox.inside"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + name.removeprefix("agent_envs").replace(".", "/")]
import os
os.register_at_fork = lambda **hooks: None
from agent_envs.sandbox.inside.zygote import main
main(int(sys.argv[2]), int(sys.argv[3]))
"""


class ZygoteProcess:
    """A running zygote, with the arguments of `ForkedSandbox`.

    Raises BackendError if it does not start or lacks a required wall.
    """

    def __init__(
        self, *, modules: Sequence[str], warm_up: Sequence[str], require: Sequence[str], use: Sequence[str]
    ) -> None:
        package = Path(__file__).parents[2]
        settings = {
            "path": import_path(),
            "modules": modules,
            "warm_up": warm_up,
            "filters": {name: program.hex() for name, program in filter_programs().items()},
            "namespaces": "namespaces" in use,
            "landlock": "landlock" in use,
            "host": os.getpid(),
        }
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._own = -1
        host = os.pidfd_open(os.getpid())
        with tempfile.TemporaryFile() as errors:
            command = [sys.executable, "-P", "-s", "-S", "-B", "-c", _BOOTSTRAP, str(package)]
            try:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), str(host)],
                    env=zygote_environment(),
                    pass_fds=(theirs.fileno(), host),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as e:
                self._control.close()
                raise BackendDownError(f"the sandbox's interpreter cannot be started: {e}") from e
            finally:
                os.close(host)
                theirs.close()
            try:
                self.report = self._prepare(settings)
            except (OSError, ValueError) as e:
                self.close()
                errors.seek(0)
                said = errors.read().decode("utf-8", "replace").strip()[-400:]
                raise BackendDownError(f"the sandbox's interpreter did not start: {said or e!r}") from e
        self.pid = process_id(self._own)
        """Its process id."""
        others, everything = self.report["probe"]["others"], self.report["probe"]["all"]
        self.walls = {
            "seccomp": "done" not in everything.values() and everything.get("fork") == "EPERM",
            "landlock": self.report["landlock"] > 0 and others.get("open") == "EACCES",
            "namespaces": bool(self.report["namespaces"]) and others.get("connect") != "done",
            "user": self.report["user"] != 0,
        }
        missing = [wall for wall in require if not self.walls[wall]]
        if missing:
            self.close()
            raise BackendError(
                f"the sandbox refuses to run: {', '.join(missing)} is required and does not hold here "
                f"(found {self.walls}; the self-check: {self.report['probe']})"
            )

    def ask(self, memory: int, *descriptors: int) -> None:
        """Send a `wire.FORK`; a BackendDownError if the zygote is gone."""
        try:
            socket.send_fds(self._control, [wire.FORK.pack(memory)], descriptors)
        except OSError as e:
            raise BackendDownError(f"the sandbox's zygote is gone: {e}") from e

    def alive(self, seconds: float = 0.0) -> bool:
        """Return whether it runs, after so many seconds if it does not end before."""
        waiting = select.poll()
        if self._own >= 0:
            waiting.register(self._own, select.POLLIN)
        return self._own >= 0 and not waiting.poll(seconds * 1000)

    def close(self) -> None:
        """End it, and with it all children."""
        if self.alive():
            signal.pidfd_send_signal(self._own, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self.abandon()

    def abandon(self) -> None:
        """Forget it without ending it: in a fork of the host it belongs to the parent."""
        self._control.close()
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
        self._process.returncode = 0  # nobody waits for it

    def _prepare(self, settings: dict[str, Any]) -> dict[str, Any]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._control.settimeout(_START_SECONDS)
            self._control.send(json.dumps(settings | {"port": listener.getsockname()[1]}).encode())
            said, descriptors, _, _ = socket.recv_fds(self._control, _MOST_REPORT, 1)
        if not descriptors:
            raise OSError("it has ended")
        self._own = descriptors[0]
        return json.loads(said)


def process_id(pidfd: int) -> int:
    """Return the number of a process; -1 if it has ended."""
    return int(Path(f"/proc/self/fdinfo/{pidfd}").read_text().partition("Pid:")[2].split()[0])


def import_path() -> list[str]:
    """Return where a zygote imports from: the standard library and the folders of installed packages."""
    standard = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    shared = [str(Path(folder, "lib-dynload")) for folder in standard]
    zipped = [entry for entry in sys.path if entry.endswith(".zip")]
    packages = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    return list(dict.fromkeys([*zipped, *standard, *shared, *packages]))


def zygote_environment() -> dict[str, str]:
    """Return the whole environment of a zygote: nothing of the host's."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return one_thread | {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "HOME": "/"}
