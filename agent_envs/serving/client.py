"""The client's side of one connection: question and answer, time limits, an error for each way to fail."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import struct
import threading
from typing import Any
from urllib.parse import quote, urlsplit

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
from agent_envs.serving.protocol import MAX_ADDRESS, MAX_MESSAGE, PROTOCOL, decode, encode, error_of
from agent_envs.text import plain

__all__ = ["Connection", "RefusedError", "StaleError", "socket_url"]

_ABOUT = {
    "protocol": int, "max_message": int, "split": str, "num_tasks": int, "messages": bool, "observation_length": int,
    "action_length": int, "instructions": str, "tools": list, "tool_instructions": str,
}  # fmt: skip
_LAST_WORDS = ("IDLE_TIMEOUT", "STEP_TIMEOUT", "STOPPING")  # after these the server closes
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class RefusedError(BackendBusyError):
    """The server did nothing, for lack of room: the same question may be asked again."""


class StaleError(BackendDownError):
    """The connection has ended since the last answer."""


def socket_url(url: str, env_id: str | None, env_kwargs: dict[str, Any]) -> str:
    """The WebSocket's address.

    >>> socket_url("http://127.0.0.1:8000", "AgentR1/GSM8K-v0", {})
    'ws://127.0.0.1:8000/AgentR1/GSM8K-v0/ws'

    Raises:
        ConfigError: It is not the address of a server.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in _SCHEMES and parts.hostname and parts.port != 0
    except ValueError as e:
        raise ConfigError(f"not the address of a server: {url!r:.200} ({e})") from e
    if not usable or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigError(
            f"expected the address of a server like 'http://127.0.0.1:8000', without login and query, got {url!r:.200}"
        )
    path = parts.path.rstrip("/") + (f"/{quote(env_id.rpartition(':')[2])}" if env_id else "")
    try:
        query = f"?kwargs={quote(json.dumps(env_kwargs))}" if env_kwargs else ""
    except (TypeError, ValueError) as e:
        raise ConfigError(f"arguments for another machine are plain JSON values, got {env_kwargs!r:.200}") from e
    address = f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path}/ws{query}"
    if len(address) > MAX_ADDRESS:
        raise ConfigError(
            f"with the environment's arguments the address has {len(address)} of {MAX_ADDRESS} characters"
        )
    return address


class Connection:
    """A WebSocket to a server, opened at once.

    Args:
        url: What `socket_url` gave.
        token: The server's token, or None.
        timeout: Seconds to connect in.

    Raises:
        BackendDownError: Nothing answers.
        ConfigError: The server refuses the token, or has no such environment.
        RefusedError: It is full.
        BackendReplyError: Something else answers.
        MissingExtraError: The package websockets is not installed.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        _check_websockets()
        from websockets.exceptions import InvalidHandshake, InvalidStatus
        from websockets.sync.client import connect

        self.where = url.partition("?")[0]
        self.alive = True
        """Whether the server's session goes on, and this side has no answer outstanding."""
        self.about: dict[str, Any] = {"max_message": MAX_MESSAGE}
        """What the server says of its environment."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._send_timeout = 0.0
        host = urlsplit(url).hostname or ""
        local = host == "localhost" or host.startswith("127.") or host == "::1"
        try:
            self._ws = connect(
                url,
                additional_headers={"Authorization": f"Bearer {token}"} if token else None,
                user_agent_header=f"agent-envs/{__version__}",
                open_timeout=timeout,
                close_timeout=1.0,
                ping_interval=None,  # the server asks whether this side is alive; every wait here has a limit
                compression=None,
                max_size=2 * MAX_MESSAGE,
                proxy=None if local else True,
            )
        except InvalidStatus as e:
            raise _refused(self.where, e.response.status_code, bytes(e.response.body or b"")) from e
        except (InvalidHandshake, EOFError) as e:
            raise BackendReplyError(f"{self.where} does not answer as a server of environments: {e}") from e
        except TimeoutError as e:
            raise BackendSlowError(f"{self.where} did not answer in {timeout:g} seconds") from e
        except OSError as e:
            raise BackendDownError(f"{self.where} cannot be reached: {e}; is `agentr1 serve` running there?") from e
        self.about = self._greeted(timeout)

    def _greeted(self, timeout: float) -> dict[str, Any]:
        try:
            about = self.ask("hello", {"protocol": PROTOCOL}, timeout)
        except BackendError as e:
            self.close()
            if "unknown message type" in str(e).lower():  # an OpenEnv server of another make
                raise BackendReplyError(
                    f"{self.where} is a server of another kind than `agentr1 serve`; use OpenEnv's client for it"
                ) from e
            raise
        except BaseException:
            self.close()
            raise
        wrong = [key for key, kind in _ABOUT.items() if type(about.get(key)) is not kind]
        if about.get("protocol") == PROTOCOL and not wrong:
            return about
        self.close()
        if wrong:
            raise BackendReplyError(f"{self.where} does not say what its environment's {', '.join(wrong)} are")
        raise BackendReplyError(
            f"{self.where} speaks protocol {about.get('protocol')!r:.40}, agent-envs {__version__} speaks "
            f"{PROTOCOL}: install the same version on both sides"
        )

    def ask(self, kind: str, data: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The data of the answer to a message.

        After an exception, `alive` says whether the session goes on.

        Args:
            kind: The message's type.
            data: Its data.
            timeout: Seconds to wait.

        Raises:
            Exception: What the server says went wrong, as the type that was raised there.
            RefusedError: The server has no room.
            StaleError: The connection had ended before.
            BackendSlowError: There is no answer in time.
            BackendDownError: The connection broke off.
            BackendReplyError: The answer is no answer.
        """
        from websockets.exceptions import ConnectionClosed

        text = encode({"type": kind, "data": data})
        if len(text) > (limit := self.about["max_message"]):
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
        self.alive = code not in _LAST_WORDS
        if reply.get("type") != "error":
            return content
        error = error_of(content, self.where)
        if code in ("CAPACITY_REACHED", "BUSY"):
            raise RefusedError(str(error))
        if code in ("IDLE_TIMEOUT", "STOPPING"):
            raise StaleError(str(error))
        raise error

    def _limit_sending(self, timeout: float) -> None:
        """A server that hangs reads nothing: what does not fit in the buffers would be written for ever."""
        if timeout != self._send_timeout:
            limit = struct.pack("@ll", int(timeout), int(timeout % 1 * 1e6))
            with contextlib.suppress(OSError):  # closed already, which `send` tells
                self._ws.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            self._send_timeout = timeout

    def close(self) -> None:
        """End it; an `ask` that waits in another thread then fails. In a forked child it is the parent's to end."""
        if self._pid != os.getpid():
            return
        with contextlib.suppress(OSError):
            self._ws.close()


@functools.cache
def _check_websockets() -> None:
    check_release("websockets", "15", "18", "remote")


def _refused(where: str, status: int, body: bytes) -> Exception:
    """The exception for a handshake that a server refuses."""
    try:
        content = decode(body)
    except ConfigError:
        content = None
    detail = plain(str(content.get("detail", ""))[:1000]) if isinstance(content, dict) else ""
    if status == 401:
        return ConfigError(f"{where} expects its token; set AGENT_ENVS_TOKEN or pass token=")
    if status in (403, 404, 422) and detail:
        return ConfigError(f"{where}: {detail}")
    if status in (429, 503):
        return RefusedError(f"{where} is full, or stops: {detail}")
    return BackendReplyError(f"{where} answers with status {status}: {detail or 'expected a server of environments'}")
