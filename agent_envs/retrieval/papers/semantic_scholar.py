"""Semantic Scholar's graph API, and other services with the same API.

    GET /paper/search?query=...&fields=...&offset=0&limit=10      {"total", "offset", "next", "data": [paper]}
    GET /paper/ID/references?fields=...&offset=0&limit=99         {"data": [{"citedPaper": paper}]}
    GET /paper/ID/citations?fields=...&offset=0&limit=30          {"data": [{"citingPaper": paper}]}
    GET /paper/ID?fields=...                                      paper

A paper is {"paperId", "externalIds": {"ArXiv"}, "title", "abstract", "year", "publicationDate"}. Here, papers on
arXiv have their arXiv id, others their paperId. See https://api.semanticscholar.org/api-docs/graph
"""

from __future__ import annotations

import contextlib
import os
from typing import Any
from urllib.parse import quote

from agent_envs.checks import integer
from agent_envs.errors import BackendReplyError, DataError, UnknownPaperError
from agent_envs.retrieval.http.pool import HTTPReply, short
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, normal_date, safe_id, within_date
from agent_envs.retrieval.papers.service import (
    SERVICE_OPTIONS,
    ReplyStore,
    Service,
    cache_folder,
    parse_options,
    read_json,
    take_options,
)
from agent_envs.retrieval.retriever import Shared

__all__ = ["SemanticScholar", "read_listed", "read_paper", "semantic_scholar", "semantic_scholar_backend"]

URL = "https://api.semanticscholar.org/graph/v1"
FIELDS = "title,abstract,year,publicationDate,externalIds"
KEY = "SEMANTIC_SCHOLAR_API_KEY"
_MAX_K = 1000  # what a search by relevance goes up to
_OPTIONS = {**SERVICE_OPTIONS, "url": str, "fields": str, "citations": int, "references": int, "page_size": int}


class SemanticScholar(Shared):
    """Semantic Scholar's papers.

    Args:
        service: The API.
        fields: The requested fields of each paper.
        citations: Most citing papers of an `expand`.
        references: Most cited papers of an `expand`.
        page_size: Most results per request, at most 1,000; at most 100 for a search.
        official: Whether the service is Semantic Scholar itself, which writes arXiv ids ARXIV:ID and filters searches
            by date.
    """

    def __init__(
        self,
        service: Service,
        *,
        fields: str = FIELDS,
        citations: int = 30,
        references: int = 99,
        page_size: int = 100,
        official: bool = True,
    ) -> None:
        self._service, self._fields, self._official = service, fields, official
        limits = {"references": references, "citations": citations}
        self._limits = {name: integer(name, limit, minimum=0) for name, limit in limits.items()}
        self._page_size = integer("page_size", page_size, minimum=1, maximum=1000)
        self.blocking = not service.offline

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers, at most 1,000. Hyphens become spaces, because with them the API finds nothing."""
        words = " ".join(query.replace("-", " ").split())
        if not any(map(str.isalnum, words)):
            return []
        params: dict[str, object] = {"query": words}
        if before and self._official:
            params["publicationDateOrYear"] = f":{before}"
        k = min(k, _MAX_K)
        # A service that cannot filter by date is asked for more, since some papers will be left out.
        wanted = k if not before or self._official else min(4 * k, _MAX_K)
        papers = self._pages("/paper/search", params, wanted, min(self._page_size, 100))
        return [paper for paper in papers if within_date(paper.date, before)][:k]

    def expand(self, paper_id: str) -> list[Paper]:
        """Return references, then citations."""
        path = self._path(paper_id)
        found: dict[str, Paper] = {}
        for kind, limit in self._limits.items():
            if limit:
                for paper in self._pages(f"{path}/{kind}", {}, limit, self._page_size, paper_id):
                    found.setdefault(paper.id, paper)
        found.pop(arxiv_id(paper_id) or paper_id, None)
        return list(found.values())

    def get(self, paper_id: str) -> Paper:
        """Return the paper with an arXiv id, a paperId, or another id that the API takes, such as "CorpusID:1"."""

        def read(reply: HTTPReply) -> Paper:
            paper = read_paper(self._json(reply, paper_id), self._service.url)
            if paper is None:
                raise UnknownPaperError(f"there is no paper {paper_id!r}")
            return paper

        return self._service.get(self._path(paper_id), {"fields": self._fields}, read)

    def _path(self, paper_id: str) -> str:
        name = arxiv_id(paper_id)
        if not safe_id(name or paper_id):
            raise UnknownPaperError(f"there is no paper {paper_id[:100]!r}")
        return "/paper/" + quote(f"ARXIV:{name}" if name and self._official else name or paper_id, safe=":/")

    def _pages(
        self, path: str, params: dict[str, object], limit: int, size: int, paper_id: str | None = None
    ) -> list[Paper]:
        """Request pages until there are enough papers; return each paper once."""
        found: dict[str, Paper] = {}
        offset: int | None = 0
        while offset is not None and len(found) < limit:
            asked = {**params, "fields": self._fields, "offset": offset, "limit": min(size, limit)}
            begin = offset
            papers, offset = self._service.get(path, asked, lambda reply: self._page(reply, begin, paper_id))  # noqa: B023
            for paper in papers:
                found.setdefault(paper.id, paper)
        return list(found.values())[:limit]

    def _page(self, reply: HTTPReply, begin: int, paper_id: str | None) -> tuple[list[Paper], int | None]:
        payload = self._json(reply, paper_id)
        papers = read_listed(payload, self._service.url)
        after = payload.get("next") if isinstance(payload, dict) else None
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after <= begin):
            raise BackendReplyError(f"{self._service.url} sent the next offset {after!r:.80} after {begin}")
        return papers, after

    def _json(self, reply: HTTPReply, paper_id: str | None) -> Any:
        if reply.status == 404 and paper_id is not None:
            raise UnknownPaperError(f"there is no paper {paper_id!r}")
        return read_json(reply, self._service.url)


def read_listed(payload: Any, service: str) -> list[Paper]:
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
    return [paper for item in items if (paper := read_paper(item, service)) is not None]


def read_paper(item: Any, service: str) -> Paper | None:
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
    return Paper(name, title, abstract.strip(), _date(item))


_ID_KEYS = ("paperId", "paper_id", "arxiv_id", "id")


def _date(item: dict[str, Any]) -> str:
    """Return the date of a paper, or "" if it has none in a known form."""
    for key in ("publicationDate", "date", "published", "year"):
        if item.get(key):
            with contextlib.suppress(DataError):
                return normal_date(item[key])
    return ""


def semantic_scholar(
    options: dict[str, Any], *, url: str = "", store: ReplyStore | None = None, recording: bool = False
) -> SemanticScholar:
    """Return Semantic Scholar from parsed options, with the key in `SEMANTIC_SCHOLAR_API_KEY`, if set."""
    headers = {"Accept": "application/json"}
    if key := os.environ.get(KEY):
        headers["x-api-key"] = key
    own = take_options(options, "fields", "citations", "references", "page_size")
    defaults = {"cache": cache_folder(), "timeout": 30.0, "backoff": 2.0, "interval": 1.0, "headers": headers}
    service = Service.from_options(url or URL, options, store=store, recording=recording, **defaults)
    return SemanticScholar(service, **own)


def semantic_scholar_backend(
    text: str = "", *, store: ReplyStore | None = None, recording: bool = False
) -> SemanticScholar:
    """Return the backend "semanticscholar", with options behind its name: "semanticscholar:citations=100".

    The options are `SERVICE_OPTIONS`, url, fields, citations, references, page_size; ConfigError if one is invalid.
    `store` and `recording` are as for `arxiv_backend`.
    """
    options = parse_options(text, _OPTIONS, what="semanticscholar")
    return semantic_scholar(options, url=options.pop("url", ""), store=store, recording=recording)
