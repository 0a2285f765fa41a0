"""Semantic Scholar's graph API, and other services with the same API, as the released experiments have one.

    GET /paper/search?query=...&fields=...&offset=0&limit=10      {"total", "offset", "next", "data": [paper]}
    GET /paper/ID/references?fields=...&offset=0&limit=99         {"data": [{"citedPaper": paper}]}
    GET /paper/ID/citations?fields=...&offset=0&limit=30          {"data": [{"citingPaper": paper}]}

A paper is {"paperId", "externalIds": {"ArXiv"}, "title", "abstract", "year", "publicationDate"}. Here, papers on
arXiv have their arXiv id, others their paperId. See https://api.semanticscholar.org/api-docs/graph
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, ClassVar
from urllib.parse import quote

from agent_envs.checks import integer
from agent_envs.errors import BackendReplyError, DataError, UnknownPaperError
from agent_envs.http.pool import HTTPReply, short
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, normal_date, safe_id, within_date
from agent_envs.retrieval.papers.service import Service, cache_folder, read_key

URL = "https://api.semanticscholar.org/graph/v1"
KEY = "SEMANTIC_SCHOLAR_API_KEY"
_MAX_K = 1000  # what a search by relevance goes up to
_ID_KEYS = ("paperId", "arxiv_id")


class GraphAPI(Service):
    """The papers of a service with the graph API.

    Args:
        url: Its address.
        fields: The requested fields of each paper.
        citations: Most citing papers of an `expand`.
        references: Most cited papers of an `expand`.
        page_size: Most results per request, at most 1,000; at most 100 for a search.
        key_env: The environment variable with a key, which is sent as X-API-Key.
        **service: Arguments of `Service` and `HTTPPool`.
    """

    official: ClassVar[bool] = False
    """Whether the service is Semantic Scholar itself, which writes arXiv ids ARXIV:ID, filters searches by date and
    finds nothing by words with a hyphen. The released one gets queries unchanged, and no offset of the first page."""

    def __init__(
        self,
        url: str,
        *,
        fields: str = "title,abstract,year,authors,externalIds",
        citations: int = 30,
        references: int = 99,
        page_size: int = 100,
        key_env: str = "",
        **service: Any,
    ) -> None:
        key = "" if service.get("offline") else read_key(key_env)
        headers = {"Accept": "application/json", **({"X-API-Key": key} if key else {})}
        super().__init__(url, **{"headers": headers, **service})
        self._fields = fields
        limits = {"references": references, "citations": citations}
        self._limits = {name: integer(name, limit, minimum=0) for name, limit in limits.items()}
        self._page_size = integer("page_size", page_size, minimum=1, maximum=1000)

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers, at most 1,000."""
        words = " ".join(query.replace("-", " ").split()) if self.official else query
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

            asked = {**params, "fields": self._fields, "limit": min(size, limit)}
            page, offset = self.get(path, asked | ({"offset": offset} if offset or self.official else {}), read)
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
        defaults = {"fields": "title,abstract,year,publicationDate,externalIds", "cache": cache_folder()}
        defaults |= {"key_env": KEY if os.environ.get(KEY) else ""}
        super().__init__(url, **{**defaults, "backoff": 2.0, "interval": 1.0, **options})


def read_papers(payload: Any, service: str) -> list[Paper]:
    """Return the papers of a reply, without those that lack id or title.

    A list that is null is empty, as where a publisher withholds references. Raises BackendReplyError for other forms.
    """
    items: Any = None
    if isinstance(payload, dict) and ("data" in payload or payload.get("total") == 0):
        items = [] if payload.get("data") is None else payload["data"]
    if not isinstance(items, list):
        raise BackendReplyError(f"{service} sent {short(payload)} instead of a list of papers")
    return [paper for item in items if (paper := _paper(item, service)) is not None]


def _paper(item: Any, service: str) -> Paper | None:
    """Return a paper of a reply, or None if it is null or lacks id or title; BackendReplyError for other forms."""
    if isinstance(item, dict):
        item = next((item[key] for key in ("citedPaper", "citingPaper") if key in item), item)
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
    for key in ("publicationDate", "year"):
        if item.get(key) and not date:
            with contextlib.suppress(DataError):  # in no known form
                date = normal_date(item[key])
    return Paper(name, title, abstract.strip(), date)
