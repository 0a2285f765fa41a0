"""Serves a retriever over HTTP: POST /retrieve (as in Search-R1), GET and POST /search, GET /document/ID, GET /health.

    POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}
        -> {"result": [[{"document": row, "score": 1.5}, ...], ...]}, or the rows alone without return_scores
    POST /search {"query": "...", "k": 3}, GET /search?query=...&k=3
        -> {"results": [{"id": "...", "score": 1.5, "document": row}, ...]}
    GET /health -> {"status": "ok", "documents": 994}

A malformed request is answered with 400, one that is too much work with 413, one that finds the server busy or its
retriever failing with 503, each with {"error": "..."}.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sized
from typing import Any

from agent_envs.checks import integer, number
from agent_envs.errors import AgentEnvsError, ConfigError, needs_extra
from agent_envs.retrieval.corpus import row_contents
from agent_envs.retrieval.retriever import Retriever
from agent_envs.serving.access import StatusError
from agent_envs.serving.listener import BackgroundServer, Listener, read_object
from agent_envs.threads import run_in_thread

with needs_extra("serve"):
    from aiohttp import web

_MAX_BODY = 16 << 20
_MAX_QUERIES = 4096
_MAX_CHARACTERS = 1 << 20  # of all queries of a request
_TOGETHER = 32  # queries between two looks at the clock
_WAITING = 4  # requests that may wait, for each that runs
_DEFAULT_K = 3


class SearchServer(BackgroundServer):
    """Serves a retriever from a thread, from `start` (or `with`) to `close`.

    Args:
        retriever, host: The retriever, and the address to listen on.
        port: Port to listen on; 0 takes a free one, see `url`.
        token: What clients have to send. Required if other machines can reach `host`.
        max_k: The most results that a query may ask for.
        max_requests: Requests that are worked on at once, each in a thread; four times as many may wait.
        seconds: Time for the searches of one request.

    >>> from agent_envs.retrieval import HTTPRetriever, StaticRetriever
    >>> rows = [{"id": "p1", "text": "Paris is a city."}]
    >>> with SearchServer(StaticRetriever({"Paris": ["p1"]}, rows), port=0) as server:
    ...     HTTPRetriever(server.url).search("Paris")
    [('p1', 1.0)]
    """

    def __init__(
        self,
        retriever: Retriever,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        token: str | None = None,
        max_k: int = 1000,
        max_requests: int = 64,
        seconds: float = 30.0,
    ) -> None:
        self.retriever = retriever
        self._max_k = integer("max_k", max_k, minimum=1)
        self._max_requests = integer("max_requests", max_requests, minimum=1)
        self._seconds = number("seconds", seconds, above=0)
        self.listener = Listener(
            host,
            port,
            token,
            lambda status, message, error: web.json_response({"error": message}, status=status),
            max_body=_MAX_BODY,
            statuses={ConfigError: 400, AgentEnvsError: 503},
            paths="/health, /search, /retrieve and /document/ID",
        )
        self._waiting = 0

    async def open(self) -> None:
        """Start listening, on the running loop; a ConfigError if the address does not work."""
        self._running = asyncio.Semaphore(self._max_requests)
        routes = [web.get("/health", self._health), web.get("/document/{id:.*}", self._document)]
        routes += [web.get("/search", self._search), web.post("/search", self._search)]
        routes += [web.post("/retrieve", self._retrieve)]
        await self.listener.open(routes, handler_cancellation=True)

    async def _health(self, request: web.Request) -> web.Response:
        size = len(self.retriever) if isinstance(self.retriever, Sized) else None
        return web.json_response({"status": "ok"} if size is None else {"status": "ok", "documents": size})

    async def _document(self, request: web.Request) -> web.Response:
        def find() -> dict[str, Any]:
            try:
                return self.retriever.document(request.match_info["id"])
            except ConfigError as e:
                raise StatusError(404, str(e)) from e

        return web.json_response(await self._in_thread(find))

    async def _search(self, request: web.Request) -> web.Response:
        fields: Mapping[str, Any] = request.query if request.method == "GET" else await read_object(request)
        query, k = fields.get("query", fields.get("q")), fields.get("k", fields.get("topk", _DEFAULT_K))
        if not isinstance(query, str):
            raise ConfigError(f"the query must be a string, as in /search?query=TEXT&k=3, got {type(query).__name__}")
        if isinstance(k, str) and k.isdecimal() and len(k) < 10:
            k = int(k)
        (hits,) = await self._found([query], k, self.retriever.document)
        return web.json_response(
            {"results": [{"id": doc_id, "score": score, "document": row} for doc_id, score, row in hits]}
        )

    async def _retrieve(self, request: web.Request) -> web.Response:
        body = await read_object(request)
        queries, scores = body.get("queries"), body.get("return_scores", False)
        if isinstance(queries, str):
            queries = [queries]
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise ConfigError("'queries' must be a list of strings")

        def row(doc_id: str) -> dict[str, Any]:
            """Return a document with a string id and `contents`, as clients of /retrieve expect."""
            document = self.retriever.document(doc_id)
            return {**document, "id": doc_id, "contents": row_contents(document, doc_id)}

        lists = await self._found(queries, body.get("topk") or _DEFAULT_K, row)
        return web.json_response(
            {"result": [[{"document": d, "score": s} if scores else d for _, s, d in hits] for hits in lists]}
        )

    async def _found(
        self, queries: list[str], k: object, document: Callable[[str], dict[str, Any]]
    ) -> list[list[tuple[str, float, dict[str, Any]]]]:
        """Return id, score and document of the best k results of each query."""
        if len(queries) > _MAX_QUERIES:
            raise StatusError(413, f"more than {_MAX_QUERIES} queries in one request")
        if sum(map(len, queries)) > _MAX_CHARACTERS:
            raise StatusError(413, f"the queries of one request have more than {_MAX_CHARACTERS} characters")
        number_of_results = integer("the number of results", k, minimum=1, maximum=self._max_k)
        abandoned = threading.Event()

        def find() -> list[list[tuple[str, float, dict[str, Any]]]]:
            end, lists = time.monotonic() + self._seconds, []
            for first in range(0, len(queries), _TOGETHER):
                if abandoned.is_set() or time.monotonic() > end:
                    raise StatusError(413, f"the searches take longer than {self._seconds:g} s: send fewer at once")
                results = self.retriever.search_many(queries[first : first + _TOGETHER], number_of_results)
                lists += [[(doc_id, score, document(doc_id)) for doc_id, score in hits] for hits in results]
            return lists

        try:
            return await self._in_thread(find)
        finally:  # also when the client has gone
            abandoned.set()

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread, when fewer than the most requests are running."""
        if self._running.locked() and self._waiting >= _WAITING * self._max_requests:
            raise StatusError(503, "too many requests are waiting; try again later")
        self._waiting += 1
        try:
            await self._running.acquire()
        finally:
            self._waiting -= 1
        call = asyncio.wrap_future(run_in_thread(function))
        call.add_done_callback(self._done)  # not when the client goes: the thread still works then
        return await asyncio.shield(call)

    def _done(self, call: asyncio.Future[Any]) -> None:
        self._running.release()
        if not call.cancelled():
            call.exception()
