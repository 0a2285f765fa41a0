"""HTTP requests to one server, with reused connections, timeouts, retries, a pace, and an error for each failure."""

from __future__ import annotations

import base64
import email.utils
import http.client
import json
import math
import threading
import time
import urllib.request
import weakref
from collections.abc import Mapping
from email.message import Message
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from agent_envs._version import __version__
from agent_envs.checks import integer, number
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendReplyError,
    BackendSlowError,
)
from agent_envs.http.addresses import server_address
from agent_envs.per_process import PerProcess, Shared

_BUSY = frozenset({429, 502, 503, 504})
_CHUNK = 1 << 16
_MAX_RESPONSE = 64 << 20
_LONGEST = 1e6  # seconds; sockets refuse timeouts that are much longer
_TIMEOUTS_PER_REPLY = 6.0  # a reply that trickles in may take this many times the timeout


class HTTPReply(NamedTuple):
    """A server's reply."""

    status: int
    content: bytes

    def json(self, service: str) -> Any:
        """Return the JSON of a reply with status 200; for others raise BackendReplyError, which names the service."""
        if self.status != 200:
            raise BackendReplyError(f"{service} answered with status {self.status}: {short(self.content)}")
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError) as e:
            raise BackendReplyError(f"{service} sent a reply that is not JSON: {short(self.content)}") from e


class _Connections:
    """What the threads of a process share: idle connections, and the earliest start of the next request."""

    def __init__(self) -> None:
        self.idle: list[http.client.HTTPConnection] = []  # append and pop are atomic
        self.lock = threading.Lock()
        self.next = 0.0
        weakref.finalize(self, _close, self.idle)


def _close(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


class TooLongReplyError(BackendError):
    """A reply has more bytes than anybody wants to hold."""


class HTTPPool(Shared):
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
        parts = server_address("url", url)
        self.url = url.rstrip("/")
        self.timeout = number("timeout", timeout, above=0, maximum=_LONGEST)
        self.retries = integer("retries", retries, minimum=0)
        self.backoff = number("backoff", backoff, minimum=0, maximum=_LONGEST)
        self.interval = number("interval", interval, minimum=0, maximum=_LONGEST)
        self.max_wait = number("max_wait", max_wait, minimum=0, maximum=_LONGEST)
        self._https = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self._headers = {"User-Agent": f"agent-envs/{__version__}", **(headers or {})}
        self._connections: PerProcess[_Connections] = PerProcess()

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.clear()

    def request(self, method: str, path: str, body: bytes | None = None, *, timeout: float | None = None) -> HTTPReply:
        """Return the reply to a request. Statuses that call for a retry are retried; all others are returned.

        Args:
            method: "GET" or "POST".
            path: Below the server's address, with its query.
            body: What is sent.
            timeout: Seconds for the whole reply of an attempt, in place of the limits that the pool has.

        Raises:
            BackendDownError: The server does not answer, or breaks off its reply.
            BackendSlowError: The reply takes too long.
            BackendBusyError: The server is still busy at the last attempt, or asks to wait longer than `max_wait`.
            TooLongReplyError: The reply has over 64 MB.
        """
        connections = self._connections.get("", _Connections)
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.backoff * 2 ** (attempt - 1))
            with connections.lock:  # the interval, or the pause that the server asked for, has to be over
                begin = max(connections.next, time.monotonic())
                if self.interval or connections.next:
                    connections.next = begin + self.interval
            while (wait := begin - time.monotonic()) > 0:
                time.sleep(wait)
            try:
                reply, headers = self._exchange(connections.idle, method, self._prefix + path, body, timeout)
            except (OSError, http.client.HTTPException) as e:
                failure: Exception | None = e
                kind: type[BackendError] = BackendSlowError if isinstance(e, TimeoutError) else BackendDownError
                last = f"{type(e).__name__}: {e}"
                continue
            if reply.status not in _BUSY:
                return reply
            failure, kind, last = None, BackendBusyError, f"status {reply.status}: {short(reply.content)}"
            if (pause := retry_after(headers)) > self.max_wait:
                raise BackendBusyError(
                    f"{self.url} asks to wait {pause:.0f} seconds, longer than max_wait={self.max_wait:g} ({last})"
                )
            with connections.lock:
                connections.next = max(connections.next, time.monotonic() + pause)
        raise kind(
            f"{self.url}{path.partition('?')[0]} failed {self.retries + 1} times; the last error: {last}"
        ) from failure

    def _exchange(
        self,
        idle: list[http.client.HTTPConnection],
        method: str,
        path: str,
        data: bytes | None,
        timeout: float | None,
    ) -> tuple[HTTPReply, Message]:
        """Make one attempt. A reused connection that the server has closed meanwhile does not count."""
        patience, limit = timeout or self.timeout, timeout or _TIMEOUTS_PER_REPLY * self.timeout
        begin = time.monotonic()
        while True:
            try:
                connection, reused = idle.pop(), True
            except IndexError:
                connection, reused = self._connect(), False
            connection.timeout = patience
            if connection.sock is not None:
                connection.sock.settimeout(patience)
            try:
                connection.request(method, path, data, self._headers)
                response = connection.getresponse()
                content = _receive(response, begin, limit)
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if reused and isinstance(e, (http.client.RemoteDisconnected, ConnectionError)):
                    continue
                raise
            if len(content) > _MAX_RESPONSE:
                connection.close()
                raise TooLongReplyError(f"{self.url}{path} sent more than {_MAX_RESPONSE >> 20} MB")
            if connection.sock is not None:
                idle.append(connection)
            return HTTPReply(response.status, content), response.headers

    def _connect(self) -> http.client.HTTPConnection:
        """Return a new connection; an HTTPS one goes through the proxy that `https_proxy` and `no_proxy` name."""
        if not self._https:
            return http.client.HTTPConnection(self._host, self._port)
        proxy = "" if urllib.request.proxy_bypass(self._host) else urllib.request.getproxies().get("https", "")
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if not parts.hostname:
            return http.client.HTTPSConnection(self._host, self._port)
        connection = http.client.HTTPSConnection(parts.hostname, parts.port or 80)
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        headers = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
        connection.set_tunnel(self._host, self._port or 443, headers=headers)
        return connection


def _receive(response: http.client.HTTPResponse, begin: float, limit: float) -> bytes:
    """Return a reply's content; TimeoutError if it is not complete `limit` seconds after `begin`."""
    chunks, size = [], 0
    while size <= _MAX_RESPONSE and (chunk := response.read1(_CHUNK)):
        chunks.append(chunk)
        size += len(chunk)
        if time.monotonic() - begin > limit:
            raise TimeoutError(f"the reply was not complete after {limit:g} seconds")
    content = b"".join(chunks)
    if response.length and size <= _MAX_RESPONSE:
        raise http.client.IncompleteRead(content, response.length)
    response.close()  # the connection is free for the next request
    return content


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
            text = headers.get("retry-after") or "0"
            date = email.utils.parsedate_tz(text) if "," in text else None
            seconds = float(text) if date is None else email.utils.mktime_tz(date) - time.time()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def short(content: object) -> str:
    """Return the beginning of a reply, for error messages.

    >>> short(b"<html>"), short({"a": 1})
    ('<html>', "{'a': 1}")
    """
    text = content[:200].decode("utf-8", "replace") if isinstance(content, bytes) else repr(content)
    return text if len(text) <= 200 else text[:200] + "..."
