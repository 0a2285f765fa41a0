"""HTTP requests to one server, with reused connections, timeouts, retries, a pace, and an error for each failure."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import math
import os
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from collections.abc import Mapping
from email.message import Message
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from agent_envs._version import __version__
from agent_envs.checks import integer, number
from agent_envs.errors import BackendBusyError, BackendDownError, BackendError, BackendSlowError, ConfigError

__all__ = ["HTTPPool", "HTTPReply", "retry_after", "short"]

_BUSY = frozenset({429, 502, 503, 504})
_CHUNK = 1 << 16
_MAX_RESPONSE = 64 << 20
_LONGEST = 1e6  # seconds; sockets refuse timeouts that are much longer
_TIMEOUTS_PER_REPLY = 6.0  # a reply that trickles in may take this many times the timeout


class HTTPReply(NamedTuple):
    """A server's reply."""

    status: int
    content: bytes


class _RetryError(Exception):
    """An attempt failed, and another one may succeed."""

    def __init__(self, message: str, kind: type[BackendError], wait: float = 0.0) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait


class HTTPPool:
    """Sends requests to one server. Connections stay open and are reused, each by one thread at a time.

    If the server is down, busy (429, 502, 503, 504) or too slow, the request is sent again after a pause that doubles
    each time. If the server asks for a longer pause (`Retry-After`), all threads keep to it. Requests must therefore be
    safe to repeat. HTTPS requests go through the proxy that the environment variables name.

    Args:
        url: The server, such as "http://127.0.0.1:8000"; its path is a prefix of every request's.
        timeout: Seconds to connect, and to wait for each piece of a reply; a whole reply may take six times as long.
        retries: Number of attempts after the first.
        backoff: Seconds before the second attempt.
        headers: Sent with every request.
        interval: Least seconds between the starts of two requests, over all threads.
        max_wait: The longest pause in seconds that the server may ask for; a longer one is an error at once.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.25,
        headers: Mapping[str, str] | None = None,
        interval: float = 0.0,
        max_wait: float = 60.0,
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as e:
            raise ConfigError(f"{url!r} is not the address of a server: {e}") from e
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a server; expected one like 'http://127.0.0.1:8000'")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"the address of {parts.hostname!r} must not contain a login, a query or a fragment")
        self.url = url.rstrip("/")
        self.timeout = number("timeout", timeout, above=0, maximum=_LONGEST)
        self.retries = integer("retries", retries, minimum=0)
        self.backoff = number("backoff", backoff, minimum=0, maximum=_LONGEST)
        self.interval = number("interval", interval, minimum=0, maximum=_LONGEST)
        self.max_wait = number("max_wait", max_wait, minimum=0, maximum=_LONGEST)
        self._https = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, port, parts.path.rstrip("/")
        self._headers = {"User-Agent": f"agent-envs/{__version__}", **(headers or {})}
        self._start()

    def _start(self) -> None:
        self._idle: list[http.client.HTTPConnection] = []  # append and pop are atomic
        weakref.finalize(self, _close, self._idle)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._next = 0.0

    def __getstate__(self) -> dict[str, Any]:
        own = ("_idle", "_pid", "_lock", "_next")
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """Close the idle connections."""
        _close(self._idle)

    def request(self, method: str, path: str, body: bytes | None = None) -> HTTPReply:
        """Return the reply to a request. Statuses that call for a retry are retried; all others are returned.

        `method` is "GET" or "POST"; `path` is below the server's address, with its query.

        Raises:
            BackendDownError: The server does not answer, or breaks off its reply.
            BackendSlowError: The reply takes too long.
            BackendBusyError: The server is still busy at the last attempt, or asks to wait longer than `max_wait`.
        """
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.backoff * 2 ** (attempt - 1))
            self._keep_pace()
            try:
                return self._exchange(method, self._prefix + path, body)
            except _RetryError as e:
                failure = e
                if e.wait > self.max_wait:
                    raise BackendBusyError(
                        f"{self.url} asks to wait {e.wait:.0f} seconds, longer than max_wait={self.max_wait:g} ({e})"
                    ) from e
                with self._lock:
                    self._next = max(self._next, time.monotonic() + e.wait)
        raise failure.kind(
            f"{self.url}{path.partition('?')[0]} failed {self.retries + 1} times; the last error: {failure}"
        ) from failure.__cause__

    def _keep_pace(self) -> None:
        """Wait until the interval, or the pause that the server asked for, is over."""
        with self._lock:
            begin = max(self._next, time.monotonic())
            if self.interval or self._next:
                self._next = begin + self.interval
        while (wait := begin - time.monotonic()) > 0:
            time.sleep(wait)

    def _exchange(self, method: str, path: str, data: bytes | None) -> HTTPReply:
        """Make one attempt. A reused connection that the server has closed meanwhile does not count."""
        while True:
            connection, reused = self._connection()
            try:
                connection.request(method, path, data, self._headers)
                response = connection.getresponse()
                content = self._read(response)
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if reused and isinstance(e, (http.client.RemoteDisconnected, ConnectionError)):
                    continue
                kind = BackendSlowError if isinstance(e, TimeoutError) else BackendDownError
                raise _RetryError(f"{type(e).__name__}: {e}", kind) from e
            if len(content) > _MAX_RESPONSE:
                connection.close()
                raise BackendError(f"{self.url}{path} sent more than {_MAX_RESPONSE >> 20} MB")
            if connection.sock is not None:
                self._idle.append(connection)
            if response.status in _BUSY:
                message = f"status {response.status}: {short(content)}"
                raise _RetryError(message, BackendBusyError, retry_after(response.headers))
            return HTTPReply(response.status, content)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        end = time.monotonic() + _TIMEOUTS_PER_REPLY * self.timeout
        chunks, size = [], 0
        while size <= _MAX_RESPONSE and (chunk := response.read1(_CHUNK)):
            chunks.append(chunk)
            size += len(chunk)
            if time.monotonic() > end:
                raise TimeoutError(f"the reply was not complete after {_TIMEOUTS_PER_REPLY * self.timeout:g} seconds")
        content = b"".join(chunks)
        if response.length and size <= _MAX_RESPONSE:
            raise http.client.IncompleteRead(content, response.length)
        response.close()  # the connection is free for the next request
        return content

    def _encrypted(self) -> http.client.HTTPSConnection:
        """Return a TLS connection, through a proxy if the environment names one."""
        context = ssl.create_default_context()
        proxy = _proxy_of(self._host)
        if proxy is None or proxy.hostname is None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self.timeout, context=context)
        connection = http.client.HTTPSConnection(
            proxy.hostname, proxy.port or 80, timeout=self.timeout, context=context
        )
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else ""
        headers = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
        connection.set_tunnel(self._host, self._port or 443, headers=headers)
        return connection

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it was used before. A forked process does not use its parent's."""
        if self._pid != os.getpid():
            _close(self._idle)
            self._start()
        with contextlib.suppress(IndexError):
            return self._idle.pop(), True
        if self._https:
            return self._encrypted(), False
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
        with contextlib.suppress(OSError):  # the request will fail with the same error and report it
            connection.connect()
            # A small request must not wait until the previous one is acknowledged.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, False


def _proxy_of(host: str) -> SplitResult | None:
    """Return the proxy that `https_proxy` and `no_proxy` name for HTTPS requests to a host, if any."""
    proxy = urllib.request.getproxies().get("https")
    if not proxy or urllib.request.proxy_bypass(host):
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts if parts.hostname else None


def _close(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def retry_after(headers: Mapping[str, str] | Message) -> float:
    """Return the seconds that a reply asks to wait before the next request; 0.0 if it does not ask, or the time is up.

    Reads `retry-after-ms` (OpenAI) and then `Retry-After`, a number of seconds or a date.

    >>> retry_after({"retry-after": "2"}), retry_after({"retry-after-ms": "250"}), retry_after({"retry-after": "soon"})
    (2.0, 0.25, 0.0)
    >>> retry_after({}), retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"})
    (0.0, 0.0)

    The headers' `get` must ignore case, as those of http.client and httpx do.
    """
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            seconds = float(milliseconds) / 1000
        else:
            seconds = _seconds(headers.get("retry-after") or "0")
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return email.utils.parsedate_to_datetime(text).timestamp() - time.time()


def short(content: object) -> str:
    """Return the beginning of a reply, for error messages.

    >>> short(b"<html>"), short({"a": 1})
    ('<html>', "{'a': 1}")
    """
    text = content[:200].decode("utf-8", "replace") if isinstance(content, bytes) else repr(content)
    return text if len(text) <= 200 else text[:200] + "..."
