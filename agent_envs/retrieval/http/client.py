"""A client of search servers in two formats: Search-R1's POST /retrieve, and POST /search (`serving.search`)."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from agent_envs.checks import choice
from agent_envs.errors import BackendError, BackendReplyError, ConfigError
from agent_envs.retrieval.http.pool import HTTPPool, short
from agent_envs.retrieval.retriever import Hit, check_request

__all__ = ["HTTPRetriever"]

_APIS = ("retrieve", "search")
_REMEMBERED_DOCUMENTS = 4096


class HTTPRetriever:
    """Searches through a server.

    Requests are repeated as `HTTPPool` describes; searching changes nothing, so that does no harm. A request that still
    fails, or a malformed reply, raises a BackendError.

    Args:
        url: The server, such as "http://127.0.0.1:8000"; its path is a prefix of /retrieve and the others.
        timeout, retries, backoff, headers: As for `HTTPPool`.
        api: "retrieve" or "search": the request format.
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
        all_headers = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        self._pool = HTTPPool(url, timeout=timeout, retries=retries, backoff=backoff, headers=all_headers)
        self.url, self.timeout, self.retries, self.backoff = self._pool.url, timeout, retries, backoff
        self.api = choice("api", api, _APIS)
        self._start()

    def _start(self) -> None:
        self._documents: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        own = ("_documents", "_lock")
        return {key: value for key, value in self.__dict__.items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the best k documents."""
        check_request(query, k)
        if self.api == "retrieve":
            return self._retrieve([query], k)[0]
        reply = self._request("POST", "/search", {"query": query, "k": k})
        return self._hits(reply.get("results") if isinstance(reply, dict) else reply, k)

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Return the results of each query, with a single request if the format allows it."""
        for query in queries:
            check_request(query, k)
        if self.api == "search":
            return [self.search(query, k) for query in queries]
        return self._retrieve(list(queries), k) if queries else []

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id, from recent results or with GET /document/ID."""
        with self._lock:
            if doc_id in self._documents:
                return dict(self._documents[doc_id])
        path = f"/document/{quote(doc_id.encode('utf-8', 'replace'), safe='')}"
        reply = self._request("GET", path, None, missing=doc_id)
        if not isinstance(reply, dict):
            raise BackendReplyError(f"{self.url} sent {short(reply)} instead of a document")
        return reply

    def health(self) -> bool:
        """Return whether the server answers GET /health."""
        try:
            self._request("GET", "/health", None)
        except BackendError:
            return False
        return True

    def _retrieve(self, queries: list[str], k: int) -> list[list[Hit]]:
        reply = self._request("POST", "/retrieve", {"queries": queries, "topk": k, "return_scores": True})
        lists = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(lists, list) or len(lists) != len(queries):
            raise BackendReplyError(f"{self.url} sent {short(reply)} instead of one list of results for each query")
        return [self._hits(found, k) for found in lists]

    def _hits(self, found: object, k: int) -> list[Hit]:
        """Return results as ids and scores, and remember their documents."""
        hits, documents = [], []
        try:
            if not isinstance(found, list):
                raise TypeError("not a list")
            for rank, result in enumerate(found[:k]):
                document = result.get("document", result)
                doc_id = next((str(place["id"]) for place in (result, document) if place.get("id") is not None), None)
                if doc_id is None:  # Search-R1's servers of web searches give none
                    if not {"contents", "text"} & document.keys():
                        raise KeyError("id")
                    doc_id = hashlib.sha256(json.dumps(dict(document), sort_keys=True).encode()).hexdigest()[:32]
                score = result.get("score")
                hits.append((doc_id, float(len(found) - rank if score is None else score)))
                if document is not result or not result.keys() <= {"id", "score"}:
                    documents.append((doc_id, dict(document)))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as e:
            error = f"{type(e).__name__}: {e}"
            raise BackendReplyError(f"{self.url} sent {short(found)} instead of results ({error})") from e
        with self._lock:
            for doc_id, document in documents:
                self._documents[doc_id] = document
                self._documents.move_to_end(doc_id)
            while len(self._documents) > _REMEMBERED_DOCUMENTS:
                self._documents.popitem(last=False)
        return hits

    def _request(self, method: str, path: str, body: object, missing: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        status, content = self._pool.request(method, path, data)
        if status == 404 and missing is not None:
            raise ConfigError(f"{self.url} has no document with the id {missing!r}")
        if status != 200:
            raise BackendReplyError(f"{self.url}{path} answered with status {status}: {short(content)}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as e:
            raise BackendReplyError(f"{self.url}{path} sent a reply that is not JSON: {short(content)}") from e
