"""Paper search services with the released APIs: `/search?q&top_k` with citations and references, or the graph API.

    GET /search?q=...&top_k=10                      [paper] or {"data" | "results" | "papers": [paper]}
    GET /references?paper_id=ID&top_k=99            the same; also as /references/ID and /paper/ID/references
    GET /citations?paper_id=ID&top_k=30             the same

A paper is {"id" | "paper_id" | "arxiv_id" | "paperId", "title", "abstract", "date" | "publicationDate" | "year"}. The
graph API is described in `semantic_scholar`. Unless the API is given, requests find out which one a service has.
"""

from __future__ import annotations

from urllib.parse import quote

from agent_envs.checks import choice
from agent_envs.errors import UnknownPaperError
from agent_envs.retrieval.http.pool import HTTPReply
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, safe_id, within_date
from agent_envs.retrieval.papers.semantic_scholar import SemanticScholar, read_listed
from agent_envs.retrieval.papers.service import (
    SERVICE_OPTIONS,
    ReplyStore,
    Service,
    parse_options,
    read_json,
    take_key,
    take_options,
)
from agent_envs.retrieval.retriever import Shared

__all__ = ["HTTPPapers", "http_backend"]

APIS = ("auto", "search", "graph")
_GRAPH = "/paper/{id}/{kind}"
_EDGES = ("/{kind}", _GRAPH, "/{kind}/{id}")
FIELDS = "title,abstract,year,authors,externalIds"
_OPTIONS = {**SERVICE_OPTIONS, "api": str, "citations": int, "references": int, "fields": str, "key_env": str}


class HTTPPapers(Shared):
    """The papers of a service.

    Args:
        service: The service.
        api: "search", "graph" (see the module) or "auto": the first, and the second if the first gives 404. The address
            of citations is found in the same way.
        citations: Most citing papers of an `expand`.
        references: Most cited papers of an `expand`.
        fields: The fields of each paper that the graph API is asked for.
    """

    def __init__(
        self, service: Service, *, api: str = "auto", citations: int = 30, references: int = 99, fields: str = FIELDS
    ) -> None:
        self._service, self._api = service, choice("api", api, APIS)
        self._edges = _GRAPH if api == "graph" else ""
        self._limits = {"references": references, "citations": citations}
        self._graph = SemanticScholar(
            service, fields=fields, citations=citations, references=references, official=False
        )
        self.blocking = not service.offline

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers. The service cannot filter by date, so with a date it is asked for more."""
        if self._api == "graph":
            return self._graph.search(query, k, before)
        if not any(map(str.isalnum, query)):
            return []
        try:
            params = {"q": query, "top_k": 4 * k if before else k}
            papers = self._service.get("/search", params, lambda reply: self._read(reply, self._api == "auto"))
        except UnknownPaperError:  # the service has no such address
            papers = self._graph.search(query, k, before)
            self._api = "graph"
            return papers
        self._api = "search"
        unique = {paper.id: paper for paper in reversed(papers) if within_date(paper.date, before)}
        return list(reversed(unique.values()))[:k]

    def expand(self, paper_id: str) -> list[Paper]:
        """Return references, then citations."""
        if not safe_id(paper_id):
            raise UnknownPaperError(f"there is no paper {paper_id[:100]!r}")
        for edges in [self._edges] if self._edges else _EDGES:
            try:
                found = self._expand(edges, paper_id)
            except UnknownPaperError:
                continue  # no such paper, or no such address: try the next one
            self._edges = edges
            return found
        raise UnknownPaperError(f"there is no paper {paper_id!r}")

    def _expand(self, edges: str, paper_id: str) -> list[Paper]:
        if edges == _GRAPH:
            return self._graph.expand(paper_id)
        found: dict[str, Paper] = {}
        for kind, limit in self._limits.items():
            path = edges.format(kind=kind, id=quote(paper_id, safe=":"))
            params: dict[str, object] = {"top_k": limit} if "{id}" in edges else {"paper_id": paper_id, "top_k": limit}
            for paper in self._service.get(path, params, lambda reply: self._read(reply, True))[:limit]:
                found.setdefault(paper.id, paper)
        found.pop(arxiv_id(paper_id) or paper_id, None)
        return list(found.values())

    def get(self, paper_id: str) -> Paper:
        """Return the paper with this id, from the graph API; the other API has no address for it."""
        return self._graph.get(paper_id)

    def _read(self, reply: HTTPReply, may_miss: bool) -> list[Paper]:
        if reply.status == 404 and may_miss:
            raise UnknownPaperError("there is no such paper")
        return read_listed(read_json(reply, self._service.url), self._service.url)


def http_backend(address: str, *, store: ReplyStore | None = None, recording: bool = False) -> HTTPPapers:
    """Return the service at an address, with options behind a #: "http://localhost:4000#api=graph&timeout=5".

    Args:
        address: The address and the options: `SERVICE_OPTIONS`, api, citations, references, fields, and key_env: the
            environment variable with a key, which is sent as X-API-Key. Invalid ones raise ConfigError.
        store: The cache of replies; without it, the option `cache` decides.
        recording: See `Service`.
    """
    url, _, text = address.partition("#")
    options = parse_options(text, _OPTIONS, what=url)
    headers = {"Accept": "application/json"}
    if key := take_key(options, url):
        headers["X-API-Key"] = key
    own = take_options(options, "api", "citations", "references", "fields")
    service = Service.from_options(url, options, store=store, recording=recording, timeout=30.0, headers=headers)
    return HTTPPapers(service, **own)
