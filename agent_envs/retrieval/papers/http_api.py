"""Paper search services with the released APIs: `/search?q&top_k` with citations and references, or the graph API.

    GET /search?q=...&top_k=10                      [paper] or {"data" | "results" | "papers": [paper]}
    GET /references?paper_id=ID&top_k=99            the same; also as /references/ID and /paper/ID/references
    GET /citations?paper_id=ID&top_k=30             the same

A paper is {"id" | "paper_id" | "arxiv_id" | "paperId", "title", "abstract", "date" | "publicationDate" | "year"}. The
graph API is described in `semantic_scholar`. Unless the API is given, requests find out which one a service has.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from agent_envs.checks import choice
from agent_envs.errors import UnknownPaperError
from agent_envs.retrieval.http.pool import HTTPReply
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, safe_id, within_date
from agent_envs.retrieval.papers.semantic_scholar import GraphAPI, read_papers
from agent_envs.retrieval.papers.service import read_key

__all__ = ["HTTPPapers"]

_APIS = ("auto", "search", "graph")
_FIELDS = "title,abstract,year,authors,externalIds"
_GRAPH = "/paper/{id}/{kind}"
_EDGES = ("/{kind}", _GRAPH, "/{kind}/{id}")


class HTTPPapers(GraphAPI):
    """The papers of a service.

    Args:
        url: Its address.
        api: "search", "graph" (see the module) or "auto": the first, and the second if the first gives 404. The address
            of citations is found in the same way.
        key_env: The environment variable with a key, which is sent as X-API-Key.
        **options: Arguments of `GraphAPI`, `Service` and `HTTPPool`.
    """

    def __init__(self, url: str, *, api: str = "auto", key_env: str = "", **options: Any) -> None:
        key = read_key(key_env)
        headers = {"Accept": "application/json", **({"X-API-Key": key} if key else {})}
        super().__init__(url, **{"fields": _FIELDS, "headers": headers, **options})
        self._api = choice("api", api, _APIS)
        self._edges = _GRAPH if api == "graph" else ""

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers. The service cannot filter by date, so with a date it is asked for more."""
        if self._api == "graph":
            return super().search(query, k, before)
        if not any(map(str.isalnum, query)):
            return []
        try:
            params = {"q": query, "top_k": 4 * k if before else k}
            papers = self.get("/search", params, lambda reply: self._read(reply, self._api == "auto"))
        except UnknownPaperError:  # the service has no such address
            papers = super().search(query, k, before)
            self._api = "graph"
            return papers
        self._api = "search"
        unique = {paper.id: paper for paper in reversed(papers) if within_date(paper.date, before)}
        return list(reversed(unique.values()))[:k]

    def expand(self, paper_id: str) -> list[Paper]:
        """Return references, then citations."""
        if safe_id(paper_id):
            for edges in [self._edges] if self._edges else _EDGES:
                try:
                    papers = super().expand(paper_id) if edges == _GRAPH else self._expand(edges, paper_id)
                except UnknownPaperError:
                    continue  # no such paper, or no such address: try the next one
                self._edges = edges
                return papers
        raise UnknownPaperError(f"there is no paper {paper_id[:100]!r}")

    def _expand(self, edges: str, paper_id: str) -> list[Paper]:
        papers: dict[str, Paper] = {}
        for kind, limit in self._limits.items():
            path = edges.format(kind=kind, id=quote(paper_id, safe=":"))
            params: dict[str, object] = {"top_k": limit} if "{id}" in edges else {"paper_id": paper_id, "top_k": limit}
            for paper in self.get(path, params, lambda reply: self._read(reply, True))[:limit]:
                papers.setdefault(paper.id, paper)
        papers.pop(arxiv_id(paper_id) or paper_id, None)
        return list(papers.values())

    def _read(self, reply: HTTPReply, may_miss: bool) -> list[Paper]:
        if reply.status == 404 and may_miss:
            raise UnknownPaperError("there is no such paper")
        return read_papers(reply.json(self.url), self.url)
