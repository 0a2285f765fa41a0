"""The zygote: a fresh interpreter that imports what programs need, takes the walls, and forks a lane per connection."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import warnings
from typing import Any

from agent_envs.sandbox.inside import walls, wire
from agent_envs.sandbox.inside.lane import Lane
from agent_envs.sandbox.inside.probe import probe

__all__ = ["main", "prepare"]


def main(control: int, host: int) -> None:
    """Prepare the interpreter that the host asks for, then serve it until it goes away.

    Args:
        control: A connected stream socket's descriptor. The host sends the length and the JSON of the settings, this
            process answers with the length and the JSON of what it has; then every message is one byte with a
            connection's descriptor, for which a lane is forked.
        host: A pidfd of the host.
    """
    connection = socket.socket(fileno=control)
    (length,) = wire.LENGTH.unpack(wire.read_exactly(control, wire.LENGTH.size))
    settings = json.loads(wire.read_exactly(control, length))
    report: dict[str, Any] = {}
    sys.path[:] = settings["path"]
    _raise_oom_score()
    report["modules"] = prepare(settings["modules"], settings["warm_up"])
    with open("/proc/self/statm") as file:
        base = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    report["user"] = walls.leave_root()
    report["namespaces"] = walls.namespaces() if settings["namespaces"] else []
    report["landlock"] = walls.landlock() if settings["landlock"] else 0
    walls.drop_capabilities()
    program = bytes.fromhex(settings["filter"])
    report["probe"] = probe(program, settings["host"], settings["port"])
    gc.collect()
    gc.freeze()
    gc.disable()
    answer = json.dumps(report).encode()
    connection.sendall(wire.LENGTH.pack(len(answer)) + answer)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _serve(connection, host, program, base)


def _serve(connection: socket.socket, host: int, program: bytes, base: int) -> None:
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    waiting.register(host, select.POLLIN)
    zygote = os.getpid()
    while True:
        if any(descriptor == host for descriptor, _ in waiting.poll()):
            os._exit(0)
        message, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if not message:
            os._exit(0)
        if not os.fork():
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                walls.die_with_parent(zygote)
                connection.close()
                Lane(descriptors[0], host, program, base).serve()
            except (EOFError, OSError):
                pass  # the host has closed the connection
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def prepare(modules: list[str], warm_up: list[str]) -> list[str]:
    """Import the modules and run the programs that make them import the rest; return the top modules there are."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with contextlib.suppress(Exception):  # an optional module that does not work here
                package = importlib.import_module(name.removesuffix(".*"))
                if name.endswith(".*"):
                    modules += [f"{package.__name__}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]
        for program in warm_up:
            with contextlib.suppress(Exception):
                exec(program, {"__name__": "__main__"})
    return sorted({name for name in sys.modules if "." not in name})


def _raise_oom_score() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
