"""Paper search services of the released shapes: `/search?q&top_k` with citations and references, or the graph API's.

    GET /search?q=...&top_k=10                      [paper] or {"data" | "results" | "papers": [paper]}
    GET /references?paper_id=ID&top_k=99            the same; also as /references/ID and /paper/ID/references
    GET /citations?paper_id=ID&top_k=30             the same

A paper is {"id" | "paper_id" | "arxiv_id" | "paperId", "title", "abstract", "date" | "publicationDate" | "year"}. The
other shape is in `semantic_scholar`. Which one a service speaks is found out by asking, unless it is said.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from agent_envs.errors import ConfigError, UnknownPaperError, did_you_mean
from agent_envs.retrieval.http.pool import HTTPReply
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, safe_id, within_date
from agent_envs.retrieval.papers.semantic_scholar import SemanticScholar, read_listed
from agent_envs.retrieval.papers.service import SERVICE_OPTIONS, Service, parse_options, read_json
from agent_envs.retrieval.papers.store import ReplyStore

__all__ = ["HTTPPapers", "http_backend"]

APIS = ("auto", "search", "graph")
_GRAPH = "/paper/{id}/{kind}"
_EDGES = ("/{kind}", _GRAPH, "/{kind}/{id}")
FIELDS = "title,abstract,year,authors,externalIds"
_OPTIONS = {**SERVICE_OPTIONS, "api": str, "citations": int, "references": int, "fields": str, "key_env": str}


class HTTPPapers:
    """The papers of a service.

    Args:
        service: The service.
        api: "search", "graph" (the module says which shapes these are) or "auto": the first, and where that address is
            answered with 404 the second. The address of citations is found out in the same way.
        citations: Most citing papers of one `expand`.
        references: Most cited papers of one `expand`.
        fields: What the shape "graph" asks for of each paper.
    """

    def __init__(
        self, service: Service, *, api: str = "auto", citations: int = 30, references: int = 99, fields: str = FIELDS
    ) -> None:
        if api not in APIS:
            raise ConfigError(f"there is no api {api!r}.{did_you_mean(api, APIS)}")
        self._service, self._api = service, api
        self._edges = _GRAPH if api == "graph" else ""
        self._limits = {"references": references, "citations": citations}
        self._graph = SemanticScholar(
            service, fields=fields, citations=citations, references=references, official=False
        )
        self.blocking = not service.offline

    def __deepcopy__(self, memo: object) -> HTTPPapers:
        return self  # shared by all environments

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """The best k papers; such a service knows no dates, so that it is asked for more where some are left out."""
        if self._api == "graph":
            return self._graph.search(query, k, before)
        if not any(map(str.isalnum, query)):
            return []
        try:
            params = {"q": query, "top_k": 4 * k if before else k}
            papers = self._service.get("/search", params, lambda reply: self._read(reply, self._api == "auto"))
        except UnknownPaperError:  # there is no such address
            papers = self._graph.search(query, k, before)
            self._api = "graph"
            return papers
        self._api = "search"
        unique = {paper.id: paper for paper in reversed(papers) if within_date(paper.date, before)}
        return list(reversed(unique.values()))[:k]

    def expand(self, paper_id: str) -> list[Paper]:
        """References, then citations."""
        if not safe_id(paper_id):
            raise UnknownPaperError(f"there is no paper {paper_id[:100]!r}")
        for edges in [self._edges] if self._edges else _EDGES:
            try:
                found = self._expand(edges, paper_id)
            except UnknownPaperError:
                continue  # no such paper, or no such address: then the next one knows the paper
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
        """The paper with this id; only the shape "graph" has an address for that."""
        return self._graph.get(paper_id)

    def _read(self, reply: HTTPReply, may_miss: bool) -> list[Paper]:
        if reply.status == 404 and may_miss:
            raise UnknownPaperError("there is no such paper")
        return read_listed(read_json(reply, self._service.url), self._service.url)


def http_backend(address: str, *, store: ReplyStore | None = None, recording: bool = False) -> HTTPPapers:
    """The service at an address, with options behind a #: "http://localhost:4000#api=graph&timeout=5".

    Args:
        address: The address and the options: `SERVICE_OPTIONS`, api, citations, references, fields, and key_env: the
            environment variable with a key, which is sent as X-API-Key.
        store: Where replies are kept; nowhere without it and without the option `cache`.
        recording: See `Service`.

    Raises:
        ConfigError: The address or an option is wrong.
    """
    url, _, text = address.partition("#")
    options = parse_options(text, _OPTIONS, what=url)
    headers = {"Accept": "application/json"}
    if variable := options.pop("key_env", None):
        if not os.environ.get(variable):
            raise ConfigError(f"{url}: key_env names the environment variable {variable!r}, which is not set")
        headers["X-API-Key"] = os.environ[variable]
    own = {name: options.pop(name) for name in ("api", "citations", "references", "fields") if name in options}
    service = Service.from_options(url, options, store=store, recording=recording, timeout=30.0, headers=headers)
    return HTTPPapers(service, **own)
