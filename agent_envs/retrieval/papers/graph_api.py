"""Semantic Scholar's graph API, and other services with the same API.

    GET /paper/search?query=...&fields=...&offset=0&limit=10      {"total", "offset", "next", "data": [paper]}
    GET /paper/ID/references?fields=...&offset=0&limit=99         {"data": [{"citedPaper": paper}]}
    GET /paper/ID/citations?fields=...&offset=0&limit=30          {"data": [{"citingPaper": paper}]}

A paper is {"paperId", "externalIds": {"ArXiv"}, "title", "abstract", "year", "publicationDate"}. Here, papers on
arXiv have their arXiv id, others their paperId. See https://api.semanticscholar.org/api-docs/graph

Services with the released APIs have this one or another, of which requests find out unless it is given:

    GET /search?q=...&top_k=10                      [paper] or {"data" | "results" | "papers": [paper]}
    GET /references?paper_id=ID&top_k=99            the same; also as /references/ID and /paper/ID/references
    GET /citations?paper_id=ID&top_k=30             the same

Their paper is {"id" | "paper_id" | "arxiv_id" | "paperId", "title", "abstract", "date" | "publicationDate" | "year"}.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, ClassVar
from urllib.parse import quote

from agent_envs.checks import choice, integer
from agent_envs.errors import BackendReplyError, DataError, UnknownPaperError
from agent_envs.retrieval.http import HTTPReply, short
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, normal_date, safe_id, within_date
from agent_envs.retrieval.papers.service import Service, cache_folder, read_key

URL = "https://api.semanticscholar.org/graph/v1"
FIELDS = "title,abstract,year,publicationDate,externalIds"
KEY = "SEMANTIC_SCHOLAR_API_KEY"
_MAX_K = 1000  # what a search by relevance goes up to
_APIS = ("auto", "search", "graph")
_RELEASED_FIELDS = "title,abstract,year,authors,externalIds"
_GRAPH = "/paper/{id}/{kind}"
_EDGES = ("/{kind}", _GRAPH, "/{kind}/{id}")
_ID_KEYS = ("paperId", "paper_id", "arxiv_id", "id")


class GraphAPI(Service):
    """The papers of a service with the graph API.

    Args:
        url: Its address.
        fields: The requested fields of each paper.
        citations: Most citing papers of an `expand`.
        references: Most cited papers of an `expand`.
        page_size: Most results per request, at most 1,000; at most 100 for a search.
        verbatim: Whether a search sends the query as it was written, and the first request has no offset.
        **service: Arguments of `Service` and `HTTPPool`.
    """

    official: ClassVar[bool] = False
    """Whether the service is Semantic Scholar itself, which writes arXiv ids ARXIV:ID and filters searches by date."""

    def __init__(
        self,
        url: str,
        *,
        fields: str = FIELDS,
        citations: int = 30,
        references: int = 99,
        page_size: int = 100,
        verbatim: bool = False,
        **service: Any,
    ) -> None:
        super().__init__(url, **service)
        self._fields = fields
        limits = {"references": references, "citations": citations}
        self._limits = {name: integer(name, limit, minimum=0) for name, limit in limits.items()}
        self._page_size = integer("page_size", page_size, minimum=1, maximum=1000)
        self._verbatim = verbatim

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers, at most 1,000. Hyphens become spaces, with which Semantic Scholar finds nothing."""
        words = query if self._verbatim else " ".join(query.replace("-", " ").split())
        if not any(map(str.isalnum, words)):
            return []
        params: dict[str, object] = {"query": words}
        if before and self.official:
            params["publicationDateOrYear"] = f":{before}"
        k = min(k, _MAX_K)
        # A service that cannot filter by date is asked for more, since some papers will be left out.
        wanted = k if not before or self.official else min(4 * k, _MAX_K)
        papers = self._pages("/paper/search", params, wanted, min(self._page_size, 100))
        return [paper for paper in papers if within_date(paper.date, before)][:k]

    def expand(self, paper_id: str) -> list[Paper]:
        """Return references, then citations."""
        name = arxiv_id(paper_id)
        if not safe_id(name or paper_id):
            raise UnknownPaperError(f"there is no paper {paper_id[:100]!r}")
        path = "/paper/" + quote(f"ARXIV:{name}" if name and self.official else name or paper_id, safe=":/")
        papers: dict[str, Paper] = {}
        for kind, limit in self._limits.items():
            for paper in self._pages(f"{path}/{kind}", {}, limit, self._page_size, paper_id):
                papers.setdefault(paper.id, paper)
        papers.pop(name or paper_id, None)
        return list(papers.values())

    def _pages(
        self, path: str, params: dict[str, object], limit: int, size: int, paper_id: str | None = None
    ) -> list[Paper]:
        """Request pages until there are enough papers; return each paper once."""
        papers: dict[str, Paper] = {}
        offset: int | None = 0
        while offset is not None and len(papers) < limit:
            begin = offset

            def read(reply: HTTPReply, begin: int = begin) -> tuple[list[Paper], int | None]:
                if reply.status == 404 and paper_id is not None:
                    raise UnknownPaperError(f"there is no paper {paper_id!r}")
                payload = reply.json(self.url)
                after = payload.get("next") if isinstance(payload, dict) else None
                if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after <= begin):
                    raise BackendReplyError(f"{self.url} sent the next offset {after!r:.80} after {begin}")
                return read_papers(payload, self.url), after

            asked = {**params, "fields": self._fields, "offset": offset, "limit": min(size, limit)}
            if self._verbatim and not offset:
                del asked["offset"]
            page, offset = self.get(path, asked, read)
            for paper in page:
                papers.setdefault(paper.id, paper)
        return list(papers.values())[:limit]


class SemanticScholar(GraphAPI):
    """Semantic Scholar's papers, with the key in `SEMANTIC_SCHOLAR_API_KEY`, if set.

    Args:
        url: Its address.
        **options: Arguments of `GraphAPI`, `Service` and `HTTPPool`. By default there is one request per second, and
            replies are cached.
    """

    official = True

    def __init__(self, *, url: str = URL, **options: Any) -> None:
        key = os.environ.get(KEY)
        headers = {"Accept": "application/json", **({"x-api-key": key} if key else {})}
        defaults = {"cache": cache_folder(), "backoff": 2.0, "interval": 1.0}
        super().__init__(url, **{"headers": headers, **defaults, **options})


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
        key = "" if options.get("offline") else read_key(key_env)
        headers = {"Accept": "application/json", **({"X-API-Key": key} if key else {})}
        super().__init__(url, **{"fields": _RELEASED_FIELDS, "headers": headers, **options})
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
            papers = self.get("/search", params, lambda reply: self._read_released(reply, self._api == "auto"))
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
            for paper in self.get(path, params, lambda reply: self._read_released(reply, True))[:limit]:
                papers.setdefault(paper.id, paper)
        papers.pop(arxiv_id(paper_id) or paper_id, None)
        return list(papers.values())

    def _read_released(self, reply: HTTPReply, may_miss: bool) -> list[Paper]:
        if reply.status == 404 and may_miss:
            raise UnknownPaperError("there is no such paper")
        return read_papers(reply.json(self.url), self.url)


def read_papers(payload: Any, service: str) -> list[Paper]:
    """Return the papers of a reply: a list, by itself or under "data", "results" or "papers". Skip those without id.

    A list that is null is empty, as where a publisher withholds references. Raises BackendReplyError for other forms.
    """
    items = payload
    if isinstance(payload, dict):
        listed = [payload[key] for key in ("data", "results", "papers") if key in payload]
        listed += [[]] if payload.get("total") == 0 else []
        items = next((items for items in listed if items is not None), [] if listed else None)
    if not isinstance(items, list):
        raise BackendReplyError(f"{service} sent {short(payload)} instead of a list of papers")
    return [paper for item in items if (paper := _paper(item, service)) is not None]


def _paper(item: Any, service: str) -> Paper | None:
    """Return a paper of a reply, or None if it is null or lacks id or title; BackendReplyError for other forms."""
    if isinstance(item, dict):
        item = next((item[key] for key in ("citedPaper", "citingPaper", "paper") if key in item), item)
    if item is None:
        return None
    if not isinstance(item, dict) or not any(key in item for key in _ID_KEYS):
        raise BackendReplyError(f"{service} sent {short(item)} instead of a paper with an id")
    outside = item.get("externalIds") or {}
    if not isinstance(outside, dict):
        raise BackendReplyError(f"{service} sent {short(outside)} as a paper's external ids")
    own = next((str(item[key]) for key in _ID_KEYS if item.get(key)), "")
    name = arxiv_id(str(item.get("arxiv_id") or outside.get("ArXiv") or own)) or own
    title, abstract = (item.get(key) or "" for key in ("title", "abstract"))
    if not isinstance(title, str) or not isinstance(abstract, str):
        raise BackendReplyError(f"{service} sent a paper whose title or abstract is not a string: {short(item)}")
    title = " ".join(title.split())
    if not name or not title:
        return None
    date = ""
    for key in ("publicationDate", "date", "published", "year"):
        if item.get(key) and not date:
            with contextlib.suppress(DataError):  # in no known form
                date = normal_date(item[key])
    return Paper(name, title, abstract.strip(), date)
