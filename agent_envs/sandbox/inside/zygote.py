"""The zygote: a fresh interpreter that imports what programs need, takes the walls, and forks a child when asked.

It holds no program's text, files or output: it gets descriptors and a number, and says how children end.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import resource
import select
import socket
import sys
import warnings
from typing import Any

from agent_envs.sandbox.inside import walls, wire
from agent_envs.sandbox.inside.probe import probe
from agent_envs.sandbox.inside.programs import Programs

_MOST_SETTINGS = 1 << 17


def main(control: int, host: int) -> None:
    """Prepare the interpreter that the host asks for, then serve it until it goes away.

    Over `control`, a socket of messages, the host sends the settings as JSON, and this process answers with what it has
    as JSON and the descriptor of its process; then every message is a `wire.FORK`. The descriptor `host` becomes
    readable when the host dies.
    """
    host = fcntl.fcntl(host, fcntl.F_DUPFD, wire.CHANNEL + 1)
    os.dup2(control, wire.CHANNEL)  # of a child it becomes the channel
    connection = socket.socket(fileno=wire.CHANNEL)
    settings = json.loads(connection.recv(_MOST_SETTINGS))
    sys.path[:] = settings["path"]
    identity = os.uname_result(("Linux", "sandbox", "", "", os.uname().machine))
    os.uname = lambda: identity  # its system call will be refused
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], walls.MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    report: dict[str, Any] = {"modules": prepare(settings["modules"], settings["warm_up"])}
    with open("/proc/self/statm") as file:
        base = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    filters = {name: bytes.fromhex(program) for name, program in settings["filters"].items()}
    report["user"] = walls.leave_root()
    report["namespaces"] = walls.namespaces() if settings["namespaces"] else []
    report["landlock"] = walls.landlock() if settings["landlock"] else 0
    walls.powerless()
    report["probe"] = probe(filters["alone"], settings["host"], settings["port"])
    programs = Programs()
    answer, own = json.dumps(report).encode(), os.pidfd_open(os.getpid())
    del settings, report
    gc.collect()
    gc.freeze()
    gc.disable()
    socket.send_fds(connection, [answer], [own])
    channel, memory = _serve(connection, host)
    try:
        os.dup2(channel, wire.CHANNEL)
        _enter(connection, base + memory, filters)
        programs.serve(connection)
    except BaseException:  # noqa: BLE001  the host sees the end, and nothing may run on
        pass
    finally:
        os._exit(86)


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


def _serve(connection: socket.socket, host: int) -> tuple[int, int]:
    """Fork a child for every message of the host; return in the child alone, with its channel and its memory."""
    ends: dict[int, int] = {}  # a child's process -> its channel
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    waiting.register(host, select.POLLIN)
    while True:
        for ready, _ in waiting.poll():
            if not ends:  # copies that programs made of themselves, of which nobody knows
                with contextlib.suppress(ChildProcessError):
                    while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
                        pass
            if ready == host:
                os._exit(0)
            if ready != connection.fileno():
                waiting.unregister(ready)
                _say_end(ready, ends.pop(ready))
                continue
            message, descriptors, _, _ = socket.recv_fds(connection, wire.FORK.size, 2)
            if not message:
                os._exit(0)
            channel, *process = descriptors
            if not process:
                try:
                    pid = os.fork()
                except OSError:  # the host sees the end of the channel
                    os.close(channel)
                    continue
                if not pid:
                    return channel, wire.FORK.unpack(message)[0]
                process = [os.pidfd_open(pid)]
            ends[process[0]] = channel
            waiting.register(process[0], select.POLLIN)


def _say_end(process: int, channel: int) -> None:
    """Reap a child and tell the host how it ended, unless the child has filled the channel."""
    end = None
    with contextlib.suppress(ChildProcessError):  # a copy that had ended before its message came
        end = os.waitid(os.P_PIDFD, process, os.WEXITED)
    code = 0 if end is None else end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
    with socket.socket(fileno=channel) as connection, contextlib.suppress(OSError):
        connection.setblocking(False)
        socket.send_fds(connection, [wire.END.pack(code)], [process])
    os.close(process)


def _enter(channel: socket.socket, memory: int, filters: dict[str, bytes]) -> None:
    """Put up the walls, with `memory` bytes of address space, and hand the host what it holds this process by.

    The connection to the host is at `wire.CHANNEL`; what is above it is closed. Of the seccomp filters "asks" is for
    copies, "copies" for what else is done where the kernel takes the first, "alone" where it does not.
    """
    walls.die_with_parent()
    os.setpgid(0, 0)  # its copies are in its group
    os.dup2(1, 2)  # where nothing is kept, until a program's output comes
    os.closerange(wire.CHANNEL + 1, walls.MOST_DESCRIPTORS)
    walls.limit(memory)
    held, strict = [os.pidfd_open(os.getpid())], filters["alone"]
    with contextlib.suppress(OSError):  # an old kernel, or one that asks somebody else already
        held.append(walls.install_filter(filters["asks"], listener=True))
        strict = filters["copies"]
    socket.send_fds(channel, [b"r"], held)
    for descriptor in held:
        os.close(descriptor)
    walls.install_filter(strict)
