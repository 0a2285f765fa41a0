"""What the commands that serve a page share."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_envs.viewer.server import PageServer

__all__ = ["serve_page"]


def serve_page(server: PageServer) -> str:
    """Serve a page until the process is told to stop; the address, which holds the token, is printed."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with server:
        print(f"open {server.link} in a browser; Ctrl-C ends it", flush=True)
        stop.wait()
    return "stopped"
