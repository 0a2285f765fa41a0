"""What the commands share that serve from this process until they are told to stop."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from agent_envs.viewer.server import PageServer

_Server = TypeVar("_Server")
_POLL = 0.1  # seconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve_until_stopped(
    server: contextlib.AbstractContextManager[_Server], announcement: Callable[[_Server], str]
) -> str:
    """Open a server, print what `announcement` says of it, and wait for Ctrl-C or a request to terminate."""
    asked: list[int] = []  # a lock would not do: the handler may interrupt what holds it
    for number in _SIGNALS:
        signal.signal(number, lambda signum, _: asked.append(signum))
    with server as opened:
        print(announcement(opened), flush=True)
        while not asked:
            time.sleep(_POLL)
        for number in _SIGNALS:  # a second one ends the process at once
            signal.signal(number, signal.SIG_DFL)
    return "stopped"


def serve_page(server: PageServer) -> str:
    """Serve a page; the address, which holds the token, is printed."""
    return serve_until_stopped(server, lambda opened: f"open {opened.link} in a browser; Ctrl-C ends it")
