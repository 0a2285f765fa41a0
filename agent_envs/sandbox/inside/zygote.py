"""The zygote: a fresh interpreter that imports what programs need, takes the walls, and forks a lane per connection."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from agent_envs.sandbox.inside import walls, wire
from agent_envs.sandbox.inside.child import enter
from agent_envs.sandbox.inside.lane import Lane
from agent_envs.sandbox.inside.prepare import prepare
from agent_envs.sandbox.inside.probe import probe
from agent_envs.sandbox.inside.programs import Programs

__all__ = ["main", "put_up_walls", "receive_settings", "send_report", "serve_lanes"]


def main(control: int, host: int) -> None:
    """Prepare the interpreter that the host asks for, then serve it until it goes away.

    Args:
        control: A connected stream socket's descriptor. The host sends the length and the JSON of the settings, this
            process answers with the length and the JSON of what it has; then every message is one byte with a
            connection's descriptor, for which a lane is forked.
        host: A descriptor that becomes readable when the host dies.
    """
    connection, settings = receive_settings(control)
    report: dict[str, Any] = {}
    sys.path[:] = settings["path"]
    _raise_oom_score()
    report["modules"] = prepare(settings["modules"], settings["warm_up"])
    with open("/proc/self/statm") as file:
        base = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    program = bytes.fromhex(settings["filter"])
    report |= put_up_walls(settings, program)
    programs = Programs()
    gc.collect()
    gc.freeze()
    gc.disable()
    send_report(connection, report)
    serve_lanes(connection, host, lambda descriptors: enter(descriptors, program), base)
    try:
        programs.serve(wire.PROGRAMS, wire.STATUS)
    except BaseException:  # noqa: BLE001  the lane sees the end, and nothing may run on
        pass
    finally:
        os._exit(86)


def receive_settings(control: int) -> tuple[socket.socket, dict[str, Any]]:
    """Return the connection to the host and the settings that it sends first."""
    connection = socket.socket(fileno=control)
    (length,) = wire.LENGTH.unpack(wire.read_exactly(control, wire.LENGTH.size))
    return connection, json.loads(wire.read_exactly(control, length))


def send_report(connection: socket.socket, report: dict[str, Any]) -> None:
    """Tell the host what there is, which says that lanes may be asked for."""
    answer = json.dumps(report).encode()
    connection.sendall(wire.LENGTH.pack(len(answer)) + answer)


def serve_lanes(
    connection: socket.socket, host: int, enter: Callable[[tuple[int, ...]], None], base: int | None
) -> None:
    """Fork a lane for every connection that the host sends. It returns in the lanes' children alone.

    Args:
        connection: To the host.
        host: A descriptor that becomes readable when the host dies.
        enter: As for `Lane`.
        base: As for `Lane`.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
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
                Lane(descriptors[0], host, enter, base).serve()
                return
            except BaseException:  # noqa: BLE001  the host has closed the connection, or sees that it ends
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


def put_up_walls(settings: dict[str, Any], program: bytes) -> dict[str, Any]:
    """Put up the kernel's walls around this process and all that it forks; return which there are, and the self-check.

    Args:
        settings: Which walls are wanted, and what the self-check tries to reach.
        program: The children's seccomp filter.
    """
    report: dict[str, Any] = {"user": walls.leave_root()}
    report["namespaces"] = walls.namespaces() if settings["namespaces"] else []
    report["landlock"] = walls.landlock() if settings["landlock"] else 0
    walls.drop_capabilities()
    report["probe"] = probe(program, settings["host"], settings["port"])
    return report


def _raise_oom_score() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
