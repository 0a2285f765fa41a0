"""Serves a retriever over HTTP: POST /retrieve (as in Search-R1), GET and POST /search, GET /document/ID, GET /health.

    POST /retrieve {"queries": [...], "topk": 3, "return_scores": true}
        -> {"result": [[{"document": row, "score": 1.5}, ...], ...]}, or the rows alone without return_scores
    POST /search {"query": "...", "k": 3}, GET /search?query=...&k=3
        -> {"results": [{"id": "...", "score": 1.5, "document": row}, ...]}
    GET /health -> {"status": "ok", "documents": 994}

A malformed request is answered with 400, one that is too large with 413, a failure of the retriever with 503, each with
{"error": "..."}. There is no authentication: by default it listens on this machine only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sized
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from agent_envs.checks import integer
from agent_envs.errors import AgentEnvsError, ConfigError
from agent_envs.retrieval.corpus import row_contents
from agent_envs.retrieval.retriever import Retriever
from agent_envs.threads import run_in_thread

__all__ = ["SearchServer"]

_log = logging.getLogger(__name__)
_MAX_BODY = 16 << 20
_MAX_QUERIES = 4096
_DEFAULT_K = 3


class _StatusError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SearchServer(ThreadingHTTPServer):
    """Serves a retriever, one thread per connection; connections stay open.

    Args:
        retriever, host: The retriever, and the address to listen on.
        port: Port to listen on; 0 takes a free one, see `url`.
        max_k: The most results that a query may ask for.

    >>> from agent_envs.retrieval import HTTPRetriever, StaticRetriever
    >>> rows = [{"id": "p1", "text": "Paris is a city."}]
    >>> with SearchServer(StaticRetriever({"Paris": ["p1"]}, rows), port=0) as server:
    ...     server.start()
    ...     HTTPRetriever(server.url).search("Paris")
    [('p1', 1.0)]
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512  # pending connections; with the standard library's 5, others wait a second

    def __init__(self, retriever: Retriever, host: str = "127.0.0.1", port: int = 8000, *, max_k: int = 1000) -> None:
        self.retriever, self.max_k = retriever, max_k
        self._serving = False
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as e:
            raise ConfigError(f"cannot listen on {host}:{port}: {e}") from e

    @property
    def url(self) -> str:
        """The address of the server."""
        host, port = self.server_address[:2]
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}"

    def start(self) -> None:
        """Serve in a background thread until `close`."""
        self._serving = True
        run_in_thread(self.serve_forever, 0.05)

    def close(self) -> None:
        """Stop listening."""
        if self._serving:
            self._serving = False
            self.shutdown()
        self.server_close()

    def __exit__(self, *error: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0  # seconds that a connection may be idle
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body are sent together
    server: SearchServer

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, handle: Any) -> None:
        try:
            status, content = 200, handle(urlsplit(self.path))
        except _StatusError as e:
            status, content = e.status, {"error": str(e)}
        except ConfigError as e:
            status, content = 400, {"error": str(e)}
        except AgentEnvsError as e:
            _log.error("%s: %s", self.path, e)
            status, content = 503, {"error": str(e)}
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _get(self, url: Any) -> object:
        if url.path == "/health":
            size = len(self.server.retriever) if isinstance(self.server.retriever, Sized) else None
            return {"status": "ok"} if size is None else {"status": "ok", "documents": size}
        if url.path == "/search":
            params = parse_qs(url.query, keep_blank_values=True)
            query = params.get("query") or params.get("q")
            number = (params.get("k") or params.get("topk") or [str(_DEFAULT_K)])[0]
            if query is None:
                raise ConfigError("expected /search?query=TEXT&k=NUMBER")
            return self._search(query[0], int(number) if number.isdecimal() and len(number) < 10 else number)
        if url.path.startswith("/document/"):
            try:
                return self.server.retriever.document(unquote(url.path.removeprefix("/document/")))
            except ConfigError as e:
                raise _StatusError(404, str(e)) from e
        raise _StatusError(404, f"unknown path {url.path}; expected /health, /search, /retrieve or /document/ID")

    def _post(self, url: Any) -> object:
        body = self._body()
        if url.path == "/search":
            return self._search(body.get("query"), body.get("k", body.get("topk", _DEFAULT_K)))
        if url.path == "/retrieve":
            return self._retrieve(body)
        raise _StatusError(404, f"unknown path {url.path}; expected /search or /retrieve for POST")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            raise _StatusError(411, "the header Content-Length is missing")
        if int(length) > _MAX_BODY:
            self.close_connection = True
            raise _StatusError(413, f"the request is larger than {_MAX_BODY >> 20} MB")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as e:
            raise ConfigError(f"the request is not JSON: {e}") from e
        if not isinstance(body, dict):
            raise ConfigError(f"the request must be a JSON object, got {type(body).__name__}")
        return body

    def _k(self, k: object) -> int:
        return integer("the number of results", k, minimum=1, maximum=self.server.max_k)

    def _search(self, query: object, k: object) -> dict[str, Any]:
        if not isinstance(query, str):
            raise ConfigError(f"the query must be a string, got {type(query).__name__}")
        retriever = self.server.retriever
        hits = retriever.search(query, self._k(k))
        return {"results": [{"id": i, "score": s, "document": retriever.document(i)} for i, s in hits]}

    def _retrieve(self, body: dict[str, Any]) -> dict[str, Any]:
        queries, scores = body.get("queries"), body.get("return_scores", False)
        if isinstance(queries, str):
            queries = [queries]
        if not isinstance(queries, list) or not all(isinstance(q, str) for q in queries):
            raise ConfigError("'queries' must be a list of strings")
        if len(queries) > _MAX_QUERIES:
            raise _StatusError(413, f"more than {_MAX_QUERIES} queries in one request")
        retriever = self.server.retriever
        lists = retriever.search_many(queries, self._k(body.get("topk") or _DEFAULT_K))
        rows = [[(self._row(i), s) for i, s in hits] for hits in lists]
        return {"result": [[{"document": d, "score": s} if scores else d for d, s in found] for found in rows]}

    def _row(self, doc_id: str) -> dict[str, Any]:
        """Return a document with a string id and `contents`, as clients of /retrieve expect."""
        row = self.server.retriever.document(doc_id)
        return {**row, "id": doc_id, "contents": row_contents(row, doc_id)}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        _log.debug(format, *args)
