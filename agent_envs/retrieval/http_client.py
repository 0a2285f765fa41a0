"""Search over HTTP: the client. The server is `http_server`.

Two shapes of request are spoken, both with JSON:

    POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}
        -> {"result": [[{"document": {"id": ..., ...}, "score": 1.5}, ...], ...]}      one list per query (Search-R1)
    POST /search {"query": "...", "k": 3}
        -> {"results": [{"id": ..., "score": 1.5, "document": {...}}, ...]}
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from agent_envs.errors import BackendError, ConfigError
from agent_envs.retrieval.base import Hit, check_request

__all__ = ["HTTPRetriever"]

_APIS = ("retrieve", "search")
_BUSY = frozenset({429, 502, 503, 504})
_MAX_RESPONSE = 64 << 20
_REMEMBERED_DOCUMENTS = 4096


class _RetryError(Exception):
    """This attempt failed in a way that another may not."""


class HTTPRetriever:
    """Asks a search server. Connections are kept open and used again, each by one thread at a time.

    A request that finds the server down, busy (429, 502, 503, 504), or too slow is made again after a pause that
    doubles each time; searching changes nothing, so saying it twice does no harm. What still fails, and an answer that
    is no answer, is a BackendError.

    Args:
        url: The server, such as "http://127.0.0.1:8000"; a path in it goes before /retrieve and the others.
        timeout: Seconds for one attempt to connect, and for each wait for bytes.
        retries: How many more attempts after the first.
        backoff: Seconds before the second attempt.
        api: "retrieve" or "search": the shape of the request.
        headers: Sent with every request.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        retries: int = 3,
        backoff: float = 0.25,
        api: str = "retrieve",
        headers: dict[str, str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as e:
            raise ConfigError(f"not the address of a server: {url!r} ({e})") from e
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"not the address of a server: {url!r}; expected something like 'http://127.0.0.1:8000'")
        if api not in _APIS:
            raise ConfigError(f"api has to be one of {_APIS}, got {api!r}")
        if timeout <= 0 or retries < 0 or backoff < 0:
            raise ConfigError(f"expected timeout > 0, retries >= 0, backoff >= 0; got {timeout}, {retries}, {backoff}")
        self.url = url.rstrip("/")
        self.timeout, self.retries, self.backoff, self.api = timeout, retries, backoff, api
        self._https = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, port, parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        self._start()

    def _start(self) -> None:
        self._idle: list[http.client.HTTPConnection] = []  # append and pop are atomic
        weakref.finalize(self, _close, self._idle)
        self._pid = os.getpid()
        self._documents: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_idle", "_pid", "_documents", "_lock")
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """Close the connections that are not in use."""
        _close(self._idle)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best k documents."""
        check_request(query, k)
        if self.api == "retrieve":
            return self._retrieve([query], k)[0]
        answer = self._request("POST", "/search", {"query": query, "k": k})
        found = answer.get("results") if isinstance(answer, dict) else answer
        return self._hits(found, k)

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The results of each query; in one request where the server's shape allows it."""
        for query in queries:
            check_request(query, k)
        if self.api == "search":
            return [self.search(query, k) for query in queries]
        return self._retrieve(list(queries), k) if queries else []

    def document(self, doc_id: str) -> dict[str, Any]:
        """The row with this id: one of those that came with recent results, else GET /document/ID is asked for."""
        with self._lock:
            if doc_id in self._documents:
                return dict(self._documents[doc_id])
        answer = self._request(
            "GET", f"/document/{quote(doc_id.encode('utf-8', 'replace'), safe='')}", None, missing=doc_id
        )
        if not isinstance(answer, dict):
            raise BackendError(f"{self.url} sent {_short(answer)} instead of a document")
        return answer

    def health(self) -> bool:
        """Whether GET /health is answered."""
        try:
            self._request("GET", "/health", None)
        except BackendError:
            return False
        return True

    def _retrieve(self, queries: list[str], k: int) -> list[list[Hit]]:
        answer = self._request("POST", "/retrieve", {"queries": queries, "topk": k, "return_scores": True})
        lists = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(lists, list) or len(lists) != len(queries):
            raise BackendError(f"{self.url} sent {_short(answer)} instead of one list of results for each query")
        return [self._hits(found, k) for found in lists]

    def _hits(self, found: object, k: int) -> list[Hit]:
        """Results as ids and scores; their documents are remembered."""
        hits, documents = [], []
        try:
            if not isinstance(found, list):
                raise TypeError("no list")
            for rank, result in enumerate(found[:k]):
                document = result.get("document", result)
                doc_id = str(result["id"] if "id" in result else document["id"])
                hits.append((doc_id, float(result.get("score", len(found) - rank))))
                if document is not result or not result.keys() <= {"id", "score"}:
                    documents.append((doc_id, dict(document)))
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise BackendError(f"{self.url} sent {_short(found)} instead of results ({type(e).__name__}: {e})") from e
        with self._lock:
            for doc_id, document in documents:
                self._documents[doc_id] = document
                self._documents.move_to_end(doc_id)
            while len(self._documents) > _REMEMBERED_DOCUMENTS:
                self._documents.popitem(last=False)
        return hits

    def _request(self, method: str, path: str, body: object, missing: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(self.backoff * 2 ** (attempt - 1))
            try:
                status, content = self._exchange(method, self._prefix + path, data)
            except _RetryError as e:
                failure: Exception = e
                continue
            if status == 404 and missing is not None:
                raise ConfigError(f"no document has the id {missing!r} at {self.url}")
            if status != 200:
                raise BackendError(f"{self.url}{path} answered with status {status}: {_short(content)}")
            try:
                return json.loads(content)
            except ValueError as e:
                raise BackendError(f"{self.url}{path} sent what is not JSON: {_short(content)}") from e
        raise BackendError(
            f"{self.url}{path} failed {self.retries + 1} times; at last: {failure}"
        ) from failure.__cause__

    def _exchange(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        """One attempt. A kept connection that the server has closed in the meantime does not count as one."""
        while True:
            connection, kept = self._connection()
            try:
                connection.request(method, path, data, self._headers)
                response = connection.getresponse()
                content = response.read(_MAX_RESPONSE + 1)
                if response.length and len(content) <= _MAX_RESPONSE:
                    raise http.client.IncompleteRead(content, response.length)
            except (OSError, http.client.HTTPException) as e:
                connection.close()
                if kept and isinstance(e, (http.client.RemoteDisconnected, ConnectionError)):
                    continue
                raise _RetryError(f"{type(e).__name__}: {e}") from e
            if len(content) > _MAX_RESPONSE:
                connection.close()
                raise BackendError(f"{self.url}{path} sent more than {_MAX_RESPONSE >> 20} MB")
            if connection.sock is not None:
                self._idle.append(connection)
            if response.status in _BUSY:
                raise _RetryError(f"status {response.status}: {_short(content)}")
            return response.status, content

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
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=self.timeout, context=context), False
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self.timeout)
        try:
            connection.connect()
            # A small request must not wait for the acknowledgement of the one before.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            pass  # the request meets the same error, and reports it
        return connection, False


def _close(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _short(content: object) -> str:
    text = content[:200].decode("utf-8", "replace") if isinstance(content, bytes) else repr(content)
    return text if len(text) <= 200 else text[:200] + "..."
