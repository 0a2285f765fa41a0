"""Search through arXiv's API; citations come from Semantic Scholar, since arXiv has none.

A query's words are sent without operators of arXiv's query language, sorted by relevance: first for papers with all
words, then, if these are too few, for papers with any. Dates are filtered by arXiv's `submittedDate`, the day of the
first version. See https://info.arxiv.org/help/api/user-manual.html
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from urllib.parse import urlsplit

from agent_envs.checks import integer
from agent_envs.errors import BackendReplyError, DataError, UnknownPaperError
from agent_envs.retrieval.analysis.analyzer import STOP_WORDS
from agent_envs.retrieval.http.pool import HTTPReply, short
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, date_number, normal_date, plain_arxiv_id, within_date
from agent_envs.retrieval.papers.semantic_scholar import SemanticScholar, semantic_scholar
from agent_envs.retrieval.papers.service import (
    SERVICE_OPTIONS,
    ReplyStore,
    Service,
    cache_folder,
    parse_options,
    take_options,
)
from agent_envs.retrieval.retriever import Shared

__all__ = ["ArxivAPI", "arxiv_backend", "read_feed", "search_text"]

URL = "https://export.arxiv.org/api"
_ATOM = "{http://www.w3.org/2005/Atom}"
_TOTAL = "{http://a9.com/-/spec/opensearch/1.1/}totalResults"
_WORD = re.compile(r"\w+(?:['.+-]+\w+)*")
_EMPTY_WORDS = STOP_WORDS | {"andnot", "any", "can", "could", "me", "papers", "some", "what", "which", "you"}
_MAX_WORDS = 32
_MAX_K = 1000
_EMPTY_PAGES = 3
_OPTIONS = {**SERVICE_OPTIONS, "page_size": int, "url": str, "s2_url": str}


class _EmptyPageError(BackendReplyError):
    """A page without results although there are more."""


class ArxivAPI(Shared):
    """arXiv's papers.

    Args:
        service: arXiv's API.
        citations: Used by `expand`, and by `get` for papers that are not on arXiv.
        page_size: Number of results per request, at most 2,000.
    """

    def __init__(self, service: Service, citations: SemanticScholar, *, page_size: int = 100) -> None:
        self._service, self._citations = service, citations
        self._page_size = integer("page_size", page_size, minimum=1, maximum=2000)
        self.blocking = not service.offline

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers, at most 1,000. Several versions of a paper count once."""
        found: dict[str, Paper] = {}
        k = min(k, _MAX_K)
        for text in dict.fromkeys(search_text(query, before, operator) for operator in ("AND", "OR")):
            if text and len(found) < k:
                self._collect(text, k, before, found)
        return list(found.values())[:k]

    def _collect(self, text: str, k: int, before: str | None, found: dict[str, Paper]) -> None:
        """Add the results of a query in arXiv's language until there are k."""
        start, total = 0, 1
        while len(found) < k and start < min(total, _MAX_K):
            papers, total, entries = self._page(text, "", start, min(self._page_size, k))
            for paper in papers:
                if within_date(paper.date, before):
                    found.setdefault(paper.id, paper)
            start += entries

    def expand(self, paper_id: str) -> list[Paper]:
        """Return a paper's references and citations, from Semantic Scholar."""
        return self._citations.expand(arxiv_id(paper_id) or paper_id)

    def get(self, paper_id: str) -> Paper:
        """Return the paper with an arXiv id, or with an id from `expand`."""
        name = arxiv_id(paper_id)
        if not name:
            return self._citations.get(paper_id)
        papers = self._page("", name, 0, self._page_size)[0]
        if not papers:
            raise UnknownPaperError(f"arXiv has no paper {name!r}")
        return papers[0]

    def _page(self, text: str, name: str, start: int, size: int) -> tuple[list[Paper], int, int]:
        query = {"search_query": text, "id_list": name, "start": start, "max_results": size}
        query |= {"sortBy": "relevance", "sortOrder": "descending"}

        def read(reply: HTTPReply) -> tuple[list[Paper], int, int]:
            page = read_feed(reply, name)
            if not page[2] and start < page[1]:
                raise _EmptyPageError(f"arXiv sent an empty page at {start} of {page[1]} results")
            return page

        for _ in range(_EMPTY_PAGES):
            try:
                return self._service.get("/query", query, read)
            except _EmptyPageError as e:  # arXiv sends one now and then, and the full page on the next request
                failure = e
        raise failure


def search_text(query: str, before: str | None = None, operator: str = "AND") -> str:
    """Write a query in arXiv's language, or "" if there is nothing to search for.

    >>> search_text('ti:"graph" AND the (deep-learning OR\\nC++)')
    'ti AND graph AND deep-learning AND C'
    >>> search_text("graph parsing", "2023-10", "OR")
    '(graph OR parsing) AND submittedDate:[199101010000 TO 202310312359]'
    """
    words = dict.fromkeys(word for word in _WORD.findall(query) if word.lower() not in _EMPTY_WORDS)
    text = f" {operator} ".join(list(words)[:_MAX_WORDS])
    if not before or not text:
        return text
    day = str(date_number(before, latest=True))
    month = "12" if day[4:6] == "99" else day[4:6]
    last = "31" if day[6:] == "99" else day[6:]
    return f"({text}) AND submittedDate:[199101010000 TO {day[:4]}{month}{last}2359]"


def read_feed(reply: HTTPReply, wanted: str = "") -> tuple[list[Paper], int, int]:
    """Return the papers of an Atom feed, the total number of results, and the number of entries in this feed.

    Raises:
        BackendReplyError: The reply is not such a feed, or is an error.
        UnknownPaperError: The error is about the format of the id `wanted`, so there is no such paper.
    """
    if reply.status not in (200, 400):
        raise BackendReplyError(f"arXiv answered with status {reply.status}: {short(reply.content)}")
    try:
        root = ET.fromstring(reply.content, parser=ET.XMLParser(target=_Builder()))
        if root.tag != f"{_ATOM}feed":
            raise ValueError(f"the root is <{root.tag}>")
        total = int(root.findtext(_TOTAL) or "no total number of results")
        entries = root.findall(f"{_ATOM}entry")
        for entry in entries:
            if "/api/errors" in (entry.findtext(f"{_ATOM}id") or ""):
                reason = _line(entry.findtext(f"{_ATOM}summary"))
                if wanted and "id" in reason.lower():
                    raise UnknownPaperError(f"arXiv has no paper {wanted!r}: {reason[:200]}")
                raise ValueError(f"arXiv's own error: {reason}")
        papers = [_paper(entry) for entry in entries]
    except (ET.ParseError, ValueError, DataError) as e:
        raise BackendReplyError(f"arXiv sent {short(reply.content)} instead of papers ({e})") from e
    if reply.status != 200:
        raise BackendReplyError(f"arXiv answered with status {reply.status}: {short(reply.content)}")
    return papers, total, len(entries)


class _Builder(ET.TreeBuilder):
    """Rejects document types: with entities, a small document can expand to a huge tree."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("unexpected document type")


def _paper(entry: ET.Element) -> Paper:
    name = plain_arxiv_id(urlsplit(entry.findtext(f"{_ATOM}id") or "").path.removeprefix("/abs/"))
    title = _line(entry.findtext(f"{_ATOM}title"))
    if not name or not title:
        raise ValueError(f"an entry without an id or a title: {ET.tostring(entry)[:200]!r}")
    date = normal_date(entry.findtext(f"{_ATOM}published"))
    return Paper(name, title, _line(entry.findtext(f"{_ATOM}summary")), date)


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def arxiv_backend(text: str = "", *, store: ReplyStore | None = None, recording: bool = False) -> ArxivAPI:
    """Return the backend "arxiv", with options behind its name: "arxiv:cache=replies&timeout=20".

    Args:
        text: The options: `SERVICE_OPTIONS`, page_size, url and s2_url (other addresses of arXiv and Semantic Scholar).
            Invalid ones raise ConfigError.
        store: The cache of replies; without it, the folder in the option `cache` or the default folder.
        recording: See `Service`.
    """
    options = parse_options(text, _OPTIONS, what="arxiv")
    shared = {name: value for name, value in options.items() if name in SERVICE_OPTIONS and name != "interval"}
    citations = semantic_scholar(shared, url=options.pop("s2_url", ""), store=store, recording=recording)
    own = take_options(options, "page_size")
    url = options.pop("url", URL)
    # arXiv asks for one request every three seconds.
    defaults = {"cache": cache_folder(), "timeout": 30.0, "backoff": 3.0, "interval": 3.0}
    service = Service.from_options(url, options, store=store, recording=recording, **defaults)
    return ArxivAPI(service, citations, **own)
