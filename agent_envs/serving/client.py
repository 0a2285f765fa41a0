"""The client's side of one connection: requests with time limits, and an error for each way to fail."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import struct
import threading
import weakref
from typing import Any
from urllib.parse import quote

from agent_envs._version import __version__
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
    check_release,
)
from agent_envs.http.addresses import names_this_machine, server_address
from agent_envs.serving.protocol import MAX_ADDRESS, MAX_MESSAGE, PROTOCOL, decode, encode, error_from
from agent_envs.text import plain

_DESCRIPTION = {
    "max_message": int, "split": str, "num_tasks": int, "messages": bool, "observation_length": int,
    "action_length": int, "instructions": str, "tools": list, "tool_instructions": str,
}  # fmt: skip
_FINAL = ("IDLE_TIMEOUT", "OVER_BUDGET", "STEP_TIMEOUT", "STOPPING", "WORKER_LOST")  # the server closes after these
_check_release = functools.cache(check_release)
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class RefusedError(BackendBusyError):
    """The server has no room and did nothing: the same request may be sent again."""


class StaleError(BackendDownError):
    """The connection ended after the last answer."""


def socket_url(url: str, env_id: str | None, env_kwargs: dict[str, Any]) -> str:
    """Return the address of the WebSocket; a ConfigError if `url` is no server's or the arguments do not fit into one.

    >>> socket_url("http://127.0.0.1:8000", "AgentR1/GSM8K-v0", {})
    'ws://127.0.0.1:8000/AgentR1/GSM8K-v0/ws'
    """
    parts = server_address("url", url, schemes=_SCHEMES)
    path = parts.path.rstrip("/") + (f"/{quote(env_id.rpartition(':')[2])}" if env_id else "")
    try:
        query = f"?kwargs={quote(json.dumps(env_kwargs))}" if env_kwargs else ""
    except (TypeError, ValueError) as e:
        raise ConfigError(f"remote environments take plain JSON values as arguments, got {env_kwargs!r:.200}") from e
    address = f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path}/ws{query}"
    if len(address) > MAX_ADDRESS:
        raise ConfigError(
            f"the environment's arguments are too long: the address has {len(address)} of {MAX_ADDRESS} characters"
        )
    return address


class Connection:
    """An open WebSocket to a server at an address of `socket_url`, with a limit of seconds for opening it.

    Opening it raises a BackendDownError if nothing answers, a BackendReplyError if it is no server of environments, a
    RefusedError if it is full, and a ConfigError if it refuses the token or has no such environment.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        _check_release("websockets", "serve")
        from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        self.where = url.partition("?")[0]
        self.alive = True
        """Whether the server's session goes on and no answer is outstanding."""
        self.description: dict[str, Any] = {"max_message": MAX_MESSAGE}
        """The server's description of its environment."""
        self.playing = False
        """Whether it has an episode."""
        self._lock = threading.Lock()
        self._send_timeout = 0.0
        try:
            self._ws = connect(
                url,
                additional_headers={"Authorization": f"Bearer {token}"} if token else None,
                user_agent_header=f"agent-envs/{__version__}",
                open_timeout=timeout,
                close_timeout=1.0,
                ping_interval=None,  # the server pings; every wait here has a limit
                compression=None,
                max_size=2 * MAX_MESSAGE,
                proxy=None if names_this_machine(url) else True,
            ).__enter__()  # websockets from 17.1 on warns of a connection that is not entered
        except InvalidStatus as e:
            raise _refused(self.where, e.response.status_code, bytes(e.response.body or b"")) from e
        except (InvalidHandshake, EOFError) as e:
            raise BackendReplyError(f"{self.where} is not a server of environments: {e}") from e
        except TimeoutError as e:
            raise BackendSlowError(f"{self.where} did not answer in {timeout:g} seconds") from e
        except (OSError, ConnectionClosed) as e:
            raise BackendDownError(f"cannot reach {self.where}: {e}; is `agentr1 serve` running there?") from e
        self.close = weakref.finalize(self, _close, self._ws, os.getpid())
        """Close it, as when it is forgotten; an `ask` that waits in another thread then fails."""
        try:
            self.description = self._greet(timeout)
        except BaseException:
            self.close()
            raise

    def _greet(self, timeout: float) -> dict[str, Any]:
        try:
            description = self.ask("hello", {"protocol": PROTOCOL}, timeout)
        except BackendError as e:
            if "unknown message type" in str(e).lower():  # another OpenEnv server
                raise BackendReplyError(
                    f"{self.where} is an OpenEnv server but not `agentr1 serve`; use OpenEnv's client for it"
                ) from e
            raise
        wrong = [
            key
            for key, kind in _DESCRIPTION.items()
            if type(description.get(key)) is not kind or (kind is int and description[key] < 0)
        ]
        if wrong:
            raise BackendReplyError(f"{self.where} does not describe its environment: no valid {', '.join(wrong)}")
        return description

    def ask(self, kind: str, data: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a message of a type, wait `timeout` seconds, and return the data of the answer.

        What went wrong on the server is raised as the type that was raised there; a RefusedError says that it has no
        room, a StaleError that the connection has ended. Afterwards `alive` says whether the session goes on.
        """
        from websockets.exceptions import ConnectionClosed

        text = encode({"type": kind, "data": data})
        if len(text) > (limit := self.description["max_message"]):
            raise ConfigError(f"the message has {len(text)} bytes, the server reads at most {limit}")
        with self._lock:
            self.alive = False
            try:
                self._limit_sending(timeout)
                self._ws.send(text)
                raw = self._ws.recv(timeout=timeout)
            except (TimeoutError, ConnectionClosed) as e:
                if isinstance(e, TimeoutError) or isinstance(e.__cause__, BlockingIOError):
                    raise BackendSlowError(f"{self.where} did not answer {kind!r} in {timeout:g} seconds") from e
                raise StaleError(f"the connection to {self.where} ended: {e}; reset() begins another episode") from e
        try:
            reply = decode(raw)
        except ConfigError as e:
            raise BackendReplyError(f"{self.where}: {e}") from e
        content = reply.get("data") if isinstance(reply, dict) else None
        if not isinstance(content, dict):
            raise BackendReplyError(f"{self.where}: expected a message with data, got {str(raw)[:200]!r}")
        code = content.get("code") if reply.get("type") == "error" else None
        self.alive = code not in _FINAL
        if reply.get("type") != "error":
            return content
        error = error_from(content, self.where)
        if code in ("CAPACITY_REACHED", "BUSY"):
            raise RefusedError(str(error))
        if code in ("IDLE_TIMEOUT", "STOPPING", "WORKER_LOST"):
            raise StaleError(str(error))
        raise error

    def _limit_sending(self, timeout: float) -> None:
        """Limit sending too: to a server that hangs, what does not fit into the buffers would be written forever."""
        if timeout != self._send_timeout:
            if os.name == "nt":
                limit = struct.pack("@L", int(timeout * 1e3))
            else:
                limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
            with contextlib.suppress(OSError):  # closed already, as `send` will find
                self._ws.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._send_timeout = timeout


def _close(ws: Any, pid: int) -> None:
    """Close a connection, which a forked child leaves to its parent."""
    if pid == os.getpid():
        with contextlib.suppress(OSError):
            ws.close()


def _refused(where: str, status: int, body: bytes) -> Exception:
    """Return the exception for a handshake that the server refuses."""
    try:
        content = decode(body)
    except ConfigError:
        content = None
    detail = plain(str(content.get("detail", ""))[:1000]) if isinstance(content, dict) else ""
    if status == 401:
        return ConfigError(f"{where} requires its token; set AGENT_ENVS_TOKEN or pass token=")
    if status in (403, 404, 422) and detail:
        return ConfigError(f"{where}: {detail}")
    if status in (429, 503):
        return RefusedError(f"{where} is full or shutting down: {detail}")
    return BackendReplyError(f"{where} answered with status {status}: {detail or 'expected a server of environments'}")
