"""HTTP requests to one server, with reused connections, timeouts, retries, a pace, and an error for each failure.

`HTTPRetriever` searches so, by Search-R1's POST /retrieve.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import http.client
import json
import math
import threading
import time
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from email.message import Message
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from agent_envs._version import __version__
from agent_envs.checks import integer, number
from agent_envs.errors import (
    BackendBusyError,
    BackendDownError,
    BackendError,
    BackendReplyError,
    BackendSlowError,
    ConfigError,
)
from agent_envs.per_process import PerProcess
from agent_envs.retrieval.retriever import Hit, Recent, Shared, check_request

_BUSY = frozenset({429, 502, 503, 504})
_CHUNK = 1 << 16
_MAX_RESPONSE = 64 << 20
_LONGEST = 1e6  # seconds; sockets refuse timeouts that are much longer
_REMEMBERED_DOCUMENTS = 4096
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
        self._connections: PerProcess[_Connections] = PerProcess()

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.clear()

    def request(self, method: str, path: str, body: bytes | None = None) -> HTTPReply:
        """Return the reply to a request. Statuses that call for a retry are retried; all others are returned.

        `method` is "GET" or "POST"; `path` is below the server's address, with its query.

        Raises:
            BackendDownError: The server does not answer, or breaks off its reply.
            BackendSlowError: The reply takes too long.
            BackendBusyError: The server is still busy at the last attempt, or asks to wait longer than `max_wait`.
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
                reply, headers = self._exchange(connections.idle, method, self._prefix + path, body)
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
        self, idle: list[http.client.HTTPConnection], method: str, path: str, data: bytes | None
    ) -> tuple[HTTPReply, Message]:
        """Make one attempt. A reused connection that the server has closed meanwhile does not count."""
        while True:
            try:
                connection, reused = idle.pop(), True
            except IndexError:
                connection, reused = self._connect(), False
            try:
                connection.request(method, path, data, self._headers)
                response = connection.getresponse()
                content = self._receive(response)
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if reused and isinstance(e, (http.client.RemoteDisconnected, ConnectionError)):
                    continue
                raise
            if len(content) > _MAX_RESPONSE:
                connection.close()
                raise BackendError(f"{self.url}{path} sent more than {_MAX_RESPONSE >> 20} MB")
            if connection.sock is not None:
                idle.append(connection)
            return HTTPReply(response.status, content), response.headers

    def _receive(self, response: http.client.HTTPResponse) -> bytes:
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

    def _connect(self) -> http.client.HTTPConnection:
        """Return a new connection; an HTTPS one goes through the proxy that `https_proxy` and `no_proxy` name."""
        if not self._https:
            return http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
        proxy = "" if urllib.request.proxy_bypass(self._host) else urllib.request.getproxies().get("https", "")
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        if not parts.hostname:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self.timeout)
        connection = http.client.HTTPSConnection(parts.hostname, parts.port or 80, timeout=self.timeout)
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        headers = {"Proxy-Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
        connection.set_tunnel(self._host, self._port or 443, headers=headers)
        return connection


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


class HTTPRetriever(HTTPPool):
    """Searches through a server.

    Requests are repeated as `HTTPPool` describes; searching changes nothing, so that does no harm. A request that still
    fails, or a malformed reply, raises a BackendError.

    Args:
        url: The server, such as "http://127.0.0.1:8000"; its path is a prefix of /retrieve and the others.
        headers: Sent with every request.
        **pool: `timeout`, `retries`, `backoff` and the other arguments of `HTTPPool`.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, **pool: Any) -> None:
        all_headers = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        super().__init__(url, headers=all_headers, **pool)
        self._documents: Recent[str, dict[str, Any]] = Recent(_REMEMBERED_DOCUMENTS)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the best k documents."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Return the results of each query, with a single request."""
        for query in queries:
            check_request(query, k)
        if not queries:
            return []
        body = {"queries": list(queries), "topk": k, "return_scores": True}
        reply = self.request("POST", "/retrieve", json.dumps(body).encode()).json(f"{self.url}/retrieve")
        lists = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(lists, list) or len(lists) != len(queries):
            raise BackendReplyError(f"{self.url} sent {short(reply)} instead of one list of results for each query")
        return [self._hits(results, k) for results in lists]

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id, from recent results or with GET /document/ID."""
        if recent := self._documents.find([doc_id]):
            return dict(recent[doc_id])
        path = f"/document/{quote(doc_id.encode('utf-8', 'replace'), safe='')}"
        reply = self.request("GET", path)
        if reply.status == 404:
            raise ConfigError(f"{self.url} has no document with the id {doc_id!r}")
        document = reply.json(self.url + path)
        if not isinstance(document, dict):
            raise BackendReplyError(f"{self.url} sent {short(document)} instead of a document")
        return document

    def _hits(self, results: object, k: int) -> list[Hit]:
        """Return results as ids and scores, and remember their documents."""
        hits, documents = [], {}
        try:
            if not isinstance(results, list):
                raise TypeError("not a list")
            for rank, result in enumerate(results[:k]):
                document = result.get("document", result)
                doc_id = next((str(place["id"]) for place in (result, document) if place.get("id") is not None), None)
                if doc_id is None:  # Search-R1's servers of web searches give none
                    if not {"contents", "text"} & document.keys():
                        raise KeyError("id")
                    doc_id = hashlib.sha256(json.dumps(dict(document), sort_keys=True).encode()).hexdigest()[:32]
                score = result.get("score")
                hits.append((doc_id, float(len(results) - rank if score is None else score)))
                if document is not result or not result.keys() <= {"id", "score"}:
                    documents[doc_id] = dict(document)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as e:
            error = f"{type(e).__name__}: {e}"
            raise BackendReplyError(f"{self.url} sent {short(results)} instead of results ({error})") from e
        self._documents.keep(documents)
        return hits
