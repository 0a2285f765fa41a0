"""Requests over HTTP to one server: kept connections, time limits, retries, a pace, an error for each way to fail."""

from __future__ import annotations

import base64
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
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from agent_envs._version import __version__
from agent_envs.errors import BackendBusyError, BackendDownError, BackendError, BackendSlowError, ConfigError

__all__ = ["HTTPPool", "Reply", "short"]

_BUSY = frozenset({429, 502, 503, 504})
_CHUNK = 1 << 16
_MAX_RESPONSE = 64 << 20
_LONGEST = 1e6  # seconds; sockets refuse what is far longer
_WHOLE = 6.0  # an answer that trickles in may take this many times as long as each wait for bytes


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    """The status code."""
    content: bytes
    """The whole body."""


class _RetryError(Exception):
    """This attempt failed in a way that another may not."""

    def __init__(self, message: str, kind: type[BackendError], wait: float = 0.0) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait


class HTTPPool:
    """Asks one server. Connections are kept open and used again, each by one thread at a time.

    A request that finds the server down, busy (429, 502, 503, 504), or too slow is made again after a pause that
    doubles each time, or the longer one that the server asks for (`Retry-After`), which all threads then keep. So
    requests have to be ones that do no harm when said twice. Encrypted requests go through the proxy that the
    environment names.

    Args:
        url: The server, such as "http://127.0.0.1:8000"; a path in it goes before every other.
        timeout: Seconds for one attempt to connect, and for each wait for bytes; an attempt ends after six times that.
        retries: How many more attempts after the first.
        backoff: Seconds before the second attempt.
        headers: Sent with every request.
        interval: Seconds from the begin of one request to that of the next, over all threads.
        max_wait: The longest pause, in seconds, that a server may ask for; a longer one is an error at once.

    Raises:
        ConfigError: The address or a number cannot be used.
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
            raise ConfigError(f"not the address of a server: {url!r} ({e})") from e
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"not the address of a server: {url!r}; expected something like 'http://127.0.0.1:8000'")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"the address of {parts.hostname!r} has a login, a query or a fragment; expected none")
        numbers = (timeout, retries, backoff, interval, max_wait)
        if not (timeout > 0 and min(numbers) >= 0 and max(numbers) <= _LONGEST):
            raise ConfigError(
                "expected timeout > 0 and retries, backoff, interval, max_wait >= 0, all of them at most "
                f"{_LONGEST:.0f}; got {', '.join(map(str, numbers))}"
            )
        self.url = url.rstrip("/")
        self.timeout, self.retries, self.backoff = timeout, retries, backoff
        self.interval, self.max_wait = interval, max_wait
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
        """Close the connections that are not in use."""
        _close(self._idle)

    def request(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """The answer to a request, whatever its status, unless that says to come again.

        Args:
            method: "GET" or "POST".
            path: What follows the address, with its query.
            body: Bytes to send.

        Raises:
            BackendDownError: Nothing answers, or the answer breaks off.
            BackendSlowError: The answer takes too long.
            BackendBusyError: The server says so, after the last attempt or for longer than `max_wait`.
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
            f"{self.url}{path.partition('?')[0]} failed {self.retries + 1} times; at last: {failure}"
        ) from failure.__cause__

    def _keep_pace(self) -> None:
        """Wait for this thread's turn."""
        with self._lock:
            begin = max(self._next, time.monotonic())
            if self.interval or self._next:
                self._next = begin + self.interval
        while (wait := begin - time.monotonic()) > 0:
            time.sleep(wait)

    def _exchange(self, method: str, path: str, data: bytes | None) -> Reply:
        """One attempt. A kept connection that the server has closed in the meantime does not count as one."""
        while True:
            connection, kept = self._connection()
            try:
                connection.request(method, path, data, self._headers)
                response = connection.getresponse()
                content = self._read(response)
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if kept and isinstance(e, (http.client.RemoteDisconnected, ConnectionError)):
                    continue
                kind = BackendSlowError if isinstance(e, TimeoutError) else BackendDownError
                raise _RetryError(f"{type(e).__name__}: {e}", kind) from e
            if len(content) > _MAX_RESPONSE:
                connection.close()
                raise BackendError(f"{self.url}{path} sent more than {_MAX_RESPONSE >> 20} MB")
            if connection.sock is not None:
                self._idle.append(connection)
            if response.status in _BUSY:
                wait = _retry_after(response.headers.get("Retry-After"))
                raise _RetryError(f"status {response.status}: {short(content)}", BackendBusyError, wait)
            return Reply(response.status, content)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        end = time.monotonic() + _WHOLE * self.timeout
        chunks, size = [], 0
        while size <= _MAX_RESPONSE and (chunk := response.read1(_CHUNK)):
            chunks.append(chunk)
            size += len(chunk)
            if time.monotonic() > end:
                raise TimeoutError(f"the answer was not complete after {_WHOLE * self.timeout:g} seconds")
        content = b"".join(chunks)
        if response.length and size <= _MAX_RESPONSE:
            raise http.client.IncompleteRead(content, response.length)
        response.close()  # the connection is free for the next request
        return content

    def _encrypted(self) -> http.client.HTTPSConnection:
        """A connection with TLS, through a proxy where the environment names one."""
        context = ssl.create_default_context()
        proxy = _proxy_of(self._host)
        if proxy is None or proxy.hostname is None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self.timeout, context=context)
        connection = http.client.HTTPSConnection(
            proxy.hostname, proxy.port or 80, timeout=self.timeout, context=context
        )
        login = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else ""
        given = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
        connection.set_tunnel(self._host, self._port or 443, headers=given)
        return connection

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it was used before. Those of a parent process are left to it."""
        if self._pid != os.getpid():
            _close(self._idle)
            self._start()
        try:
            return self._idle.pop(), True
        except IndexError:
            pass
        if self._https:
            return self._encrypted(), False
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
        try:
            connection.connect()
            # A small request must not wait for the acknowledgement of the one before.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # the request meets the same error, and reports it
        return connection, False


def _proxy_of(host: str) -> SplitResult | None:
    """The proxy that the environment (`https_proxy`, `no_proxy`) names for encrypted requests to a host."""
    proxy = urllib.request.getproxies().get("https")
    if not proxy or urllib.request.proxy_bypass(host):
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts if parts.hostname else None


def _retry_after(text: str | None) -> float:
    """The seconds that a Retry-After header asks for, as a number or a date; 0 where it asks for none.

    >>> _retry_after("2"), _retry_after("soon"), _retry_after(None), _retry_after("Thu, 01 Jan 1970 00:00:00 GMT")
    (2.0, 0.0, 0.0, 0.0)
    """
    if text is None:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _close(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def short(content: object) -> str:
    """The begin of an answer, for error messages.

    >>> short(b"<html>"), short({"a": 1})
    ('<html>', "{'a': 1}")
    """
    text = content[:200].decode("utf-8", "replace") if isinstance(content, bytes) else repr(content)
    return text if len(text) <= 200 else text[:200] + "..."
