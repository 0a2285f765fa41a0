"""Search through a server, by Search-R1's POST /retrieve."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from agent_envs.errors import BackendReplyError, ConfigError
from agent_envs.http.pool import HTTPPool, short
from agent_envs.retrieval.retriever import Hit, Recent, check_request

_REMEMBERED_DOCUMENTS = 4096


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
