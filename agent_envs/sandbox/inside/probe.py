"""The self-check: a child really tries what must be impossible, with and without the seccomp filter."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from collections.abc import Callable

from agent_envs.sandbox.inside.walls import install_filter


def probe(filter_program: bytes, host: int, port: int) -> dict[str, dict[str, str]]:
    """Fork a child that tries forbidden acts, and return how each ended: an errno's name, or "done".

    Under "others" is what Landlock, namespaces and the user stop before the seccomp filter is installed, and under
    "all" what happens behind every wall. `host` is the host's process id, and `port` one of 127.0.0.1 where it listens.
    """
    reading, writing = os.pipe()
    if not os.fork():
        try:
            outcomes = {"others": _try(_acts(host, port, forking=False))}
            install_filter(filter_program)
            outcomes["all"] = _try(_acts(host, port, forking=True))
            os.write(writing, json.dumps(outcomes).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = b""
    while part := os.read(reading, 1 << 16):
        said += part
    os.close(reading)
    with contextlib.suppress(ChildProcessError):
        os.wait()
    return json.loads(said) if said else {"others": {}, "all": {"the probe": "done"}}


def _acts(host: int, port: int, *, forking: bool) -> dict[str, Callable[[], object]]:
    acts: dict[str, Callable[[], object]] = {
        "open": lambda: os.open("/", os.O_RDONLY | os.O_DIRECTORY),
        "connect": lambda: _connect(port),
        "kill": lambda: os.kill(host, 0),
    }
    if forking:  # these would succeed without the filter
        acts |= {
            "stat": lambda: os.stat("/"),
            "write": lambda: os.open("/tmp/agent_envs", os.O_WRONLY),
            "socket": lambda: socket.socket(socket.AF_UNIX),
            "execute": lambda: os.execv("/nonexistent", ["nonexistent"]),
            "fork": lambda: os.fork() or os._exit(0),
        }
    return acts


def _connect(port: int) -> None:
    with socket.socket() as connection:
        connection.settimeout(2)
        connection.connect(("127.0.0.1", port))


def _try(acts: dict[str, Callable[[], object]]) -> dict[str, str]:
    outcomes = {}
    for name, act in acts.items():
        try:
            act()
        except OSError as e:
            outcomes[name] = errno.errorcode.get(e.errno or 0, type(e).__name__)
        else:
            outcomes[name] = "done"
    return outcomes
