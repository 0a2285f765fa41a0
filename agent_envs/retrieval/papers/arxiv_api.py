"""Search through arXiv's API; citations come from Semantic Scholar, since arXiv has none.

A query's words are sent without operators of arXiv's query language, sorted by relevance: first for papers with all
words, then, if these are too few, for papers with any. Dates are filtered by arXiv's `submittedDate`, the day of the
first version. See https://info.arxiv.org/help/api/user-manual.html
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

from agent_envs.checks import integer
from agent_envs.errors import BackendReplyError, DataError
from agent_envs.http.pool import HTTPReply, short
from agent_envs.retrieval.analysis.analyzer import STOP_WORDS
from agent_envs.retrieval.papers import graph_api
from agent_envs.retrieval.papers.paper import Paper, arxiv_id, normal_date, within_date
from agent_envs.retrieval.papers.service import Service, cache_folder

URL = "https://export.arxiv.org/api"
_ATOM = "{http://www.w3.org/2005/Atom}"
_TOTAL = "{http://a9.com/-/spec/opensearch/1.1/}totalResults"
_WORD = re.compile(r"\w+(?:['.+-]+\w+)*")
_EMPTY_WORDS = STOP_WORDS | {"andnot", "any", "can", "could", "me", "papers", "some", "what", "which", "you"}
_MAX_WORDS = 32
_MAX_K = 1000
_EMPTY_PAGES = 3


class _EmptyPageError(BackendReplyError):
    """A page without results although there are more."""


class ArxivAPI(Service):
    """arXiv's papers.

    Args:
        url: The API's address.
        s2_url: That of Semantic Scholar's, for `expand`.
        page_size: Number of results per request, at most 2,000.
        **service: Arguments of `Service` and `HTTPPool`. By default there is one request every three seconds, as arXiv
            asks for, and replies are cached.
    """

    def __init__(self, *, url: str = URL, s2_url: str = graph_api.URL, page_size: int = 100, **service: Any) -> None:
        super().__init__(url, **{"cache": cache_folder(), "backoff": 3.0, "interval": 3.0, **service})
        self._page_size = integer("page_size", page_size, minimum=1, maximum=2000)
        shared = {name: value for name, value in service.items() if name != "interval"}
        self._citations = graph_api.SemanticScholar(url=s2_url, **shared)

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers, at most 1,000. Several versions of a paper count once."""
        papers: dict[str, Paper] = {}
        k = min(k, _MAX_K)
        for text in dict.fromkeys(search_text(query, before, operator) for operator in ("AND", "OR")):
            start, total = 0, 1 if text else 0
            while len(papers) < k and start < min(total, _MAX_K):
                page, total, entries = self._page(text, start, min(self._page_size, k))
                for paper in page:
                    if within_date(paper.date, before):
                        papers.setdefault(paper.id, paper)
                start += entries
        return list(papers.values())[:k]

    def expand(self, paper_id: str) -> list[Paper]:
        """Return a paper's references and citations, from Semantic Scholar."""
        return self._citations.expand(paper_id)

    def _page(self, text: str, start: int, size: int) -> tuple[list[Paper], int, int]:
        query: dict[str, object] = {"search_query": text, "id_list": "", "start": start, "max_results": size}
        query |= {"sortBy": "relevance", "sortOrder": "descending"}

        def read(reply: HTTPReply) -> tuple[list[Paper], int, int]:
            page = read_feed(reply)
            if not page[2] and start < page[1]:
                raise _EmptyPageError(f"arXiv sent an empty page at {start} of {page[1]} results")
            return page

        for _ in range(_EMPTY_PAGES):
            try:
                return self.get("/query", query, read)
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
    day = before.replace("-", "")
    last = day + "1231"[len(day) - 4 :]  # of the year or the month
    return f"({text}) AND submittedDate:[199101010000 TO {last}2359]"


def read_feed(reply: HTTPReply) -> tuple[list[Paper], int, int]:
    """Return the papers of an Atom feed, the total number of results, and the number of entries in this feed.

    Raises:
        BackendReplyError: The reply is not such a feed, or is an error.
    """
    try:
        root = ET.fromstring(reply.content, parser=ET.XMLParser(target=_Builder()))
        if root.tag != f"{_ATOM}feed":
            raise ValueError(f"the root is <{root.tag}>")
        total = int(root.findtext(_TOTAL) or "no total number of results")
        entries = root.findall(f"{_ATOM}entry")
        for entry in entries:
            if "/api/errors" in (entry.findtext(f"{_ATOM}id") or ""):
                raise ValueError(f"arXiv's own error: {_line(entry.findtext(f'{_ATOM}summary'))}")
        if reply.status != 200:
            raise ValueError("an error without a reason")
        return list(map(_paper, entries)), total, len(entries)
    except (ET.ParseError, ValueError, DataError) as e:
        raise BackendReplyError(
            f"arXiv answered with status {reply.status} and {short(reply.content)} instead of papers ({e})"
        ) from e


class _Builder(ET.TreeBuilder):
    """Rejects document types: with entities, a small document can expand to a huge tree."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("unexpected document type")


def _paper(entry: ET.Element) -> Paper:
    name = arxiv_id(entry.findtext(f"{_ATOM}id") or "")
    title = _line(entry.findtext(f"{_ATOM}title"))
    if not name or not title:
        raise ValueError(f"an entry without an id or a title: {ET.tostring(entry)[:200]!r}")
    date = normal_date(entry.findtext(f"{_ATOM}published"))
    return Paper(name, title, _line(entry.findtext(f"{_ATOM}summary")), date)


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
