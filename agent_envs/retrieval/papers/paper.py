"""Papers: the record, its ids and dates, rows of a file, and what backends and selectors of paper search offer.

A file of papers has one JSON object a line, {"id", "title", "abstract", "date", "citations": [], "references": []}.
Citations and references are ids of other papers; either may be missing, and an edge given on one side counts for both.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agent_envs.errors import DataError
from agent_envs.files import replacing
from agent_envs.retrieval.corpus import read_objects, row_id

_DATE = re.compile(r"\s*(\d{4})(?:[-/.]?(\d{2})(?:[-/.]?(\d{2}))?)?(?:[T ].*)?\s*", re.DOTALL)
_NEW = r"\d{4}\.\d{4,5}"
_OLD = r"[a-z-]+(?:\.[A-Z]{2})?/\d{7}"
_WRITTEN = re.compile(
    rf"\s*(?:https?://(?:\w+\.)*arxiv\.org/(?:abs|pdf|html)/|arxiv:\s*)?({_NEW}|{_OLD})(?:v\d+)?(?:\.pdf)?/?\s*",
    re.IGNORECASE,
)
_SAFE = re.compile(r"[\w:;()<>@+~,=-][\w:;()<>@+~,=./-]{0,300}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper."""

    id: str  # at the backend, for `expand`; never empty
    title: str  # in one line
    abstract: str = ""
    date: str = ""
    """The date of publication as far as known: "2024-05-31", "2024-05", "2024" or ""."""


@runtime_checkable
class PaperBackend(Protocol):
    """A source of papers. All threads and environments of a process share one.

    Every method raises BackendError if the service or the index behind it is down, too slow, refuses the request, or
    sends an unexpected reply. It never returns a partial result; an empty list means that there are no papers.
    """

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a network. They then run in parallel threads."""

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return at most k papers for any text, best first; none if it has no word to search for.

        With a date `before`, papers published after it are left out; papers without a date are not.
        """

    def expand(self, paper_id: str) -> list[Paper]:
        """Return the papers that a paper cites, then those that cite it; each once, and without the paper itself.

        Raises UnknownPaperError if there is no such paper.
        """


@runtime_checkable
class Selector(Protocol):
    """Scores how well papers fit a query. Threads may share one."""

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return a score from 0 to 1 for each paper, in order; equal queries and papers get equal scores.

        Raises BackendError if the service is down or sent an unexpected reply, of which nothing is remembered.
        """


@lru_cache(maxsize=1 << 14)
def title_key(title: str) -> str:
    """Return the key by which titles are compared: their letters in lower case.

    >>> title_key("BERT: Pre-training of Deep\\n  Transformers (v2)"), title_key("1984")
    ('bertpretrainingofdeeptransformersv', '1984')

    Different encodings of a letter count as equal. A title without letters is compared literally, without spaces.
    """
    letters = "".join(filter(str.isalpha, unicodedata.normalize("NFKC", title))).lower()
    return letters or "".join(title.split())


def normal_date(text: object) -> str:
    """Return a date in the form of `Paper.date`.

    >>> normal_date("20231024"), normal_date("2023-10-24T17:59:00Z"), normal_date("2023-10"), normal_date(2023)
    ('2023-10-24', '2023-10-24', '2023-10', '2023')
    >>> normal_date(None), normal_date("")
    ('', '')

    Raises DataError for other texts.
    """
    if text is None or (isinstance(text, str) and not text.strip()):
        return ""
    match = _DATE.fullmatch(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    if match is None or not (match[2] is None or 1 <= int(match[2]) <= 12) or int(match[3] or 1) not in range(1, 32):
        raise DataError(f"expected a date such as '2023-10-24', '20231024', '2023-10' or '2023', got {text!r:.80}")
    return "-".join(part for part in match.groups() if part is not None)


def date_number(date: str, *, latest: bool = False) -> int:
    """Return a date in the form of `Paper.date` as a number that sorts: yyyymmdd, 0 if it is unknown.

    >>> date_number("2023-10-24"), date_number("2023"), date_number("2023", latest=True), date_number("")
    (20231024, 20230000, 20239999, 0)

    With `latest` a missing month or day counts as the last one instead of the first.
    """
    if not date:
        return 0
    digits = date.replace("-", "")
    return int(digits.ljust(8, "9" if latest else "0"))


def within_date(date: str, before: str | None) -> bool:
    """Return whether a paper of this date was not published after the date `before`. Missing dates pass.

    >>> within_date("2023-10-24", "2023-10-24"), within_date("2023-10-25", "2023-10-24"), within_date("2023", "2023-01")
    (True, False, True)
    >>> within_date("2023-12-31", "2023"), within_date("", "2023"), within_date("2023", None)
    (True, True, True)
    """
    return not before or date_number(date) <= date_number(before, latest=True)


def arxiv_id(text: str) -> str:
    """Return the arXiv id that a text denotes in any of the usual forms, without its version, or "".

    >>> [arxiv_id(t) for t in ("arXiv:2009.02040v3", "http://arxiv.org/pdf/2103.14030", "PMID:38697206")]
    ['2009.02040', '2103.14030', '']
    """
    match = _WRITTEN.fullmatch(text)
    return match[1] if match else ""


def arxiv_date(name: str) -> str:
    """Return the month in an arXiv id, or "" for other ids.

    >>> arxiv_date("2009.02040"), arxiv_date("astro-ph/9901001"), arxiv_date("CorpusID:1"), arxiv_date("2099.00001")
    ('2020-09', '1999-01', '', '')
    """
    if not arxiv_id(name):
        return ""
    year, month = (name.rpartition("/")[2][begin : begin + 2] for begin in (0, 2))
    if not 1 <= int(month) <= 12:
        return ""
    return f"{'19' if int(year) > 90 else '20'}{year}-{month}"


def safe_id(text: str) -> bool:
    """Return whether an id is safe in the path of an address.

    >>> safe_id("10.2139/ssrn.2250500"), safe_id("CorpusID:1"), safe_id("../admin"), safe_id("a?b"), safe_id("")
    (True, True, False, False, False)
    """
    return _SAFE.fullmatch(text) is not None and not any(part in ("", ".", "..") for part in text.split("/"))


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A paper with its references and citations."""

    paper: Paper
    references: tuple[str, ...] = ()  # ids of the papers that it cites
    citations: tuple[str, ...] = ()  # ids of the papers that cite it


def paper_row(row: Mapping[str, Any], where: object) -> PaperRow:
    """Read a row of a papers.jsonl. Abstract, date and edges may be missing or null; white space becomes single spaces.

    >>> row = paper_row({"id": 7, "title": "On\\n  Parsing", "date": "20240531", "references": ["a", 8]}, "row 1")
    >>> row.paper.id, row.paper.title, row.paper.date, row.references
    ('7', 'On Parsing', '2024-05-31', ('a', '8'))

    Raises DataError, which names `where`, if the id or the title is missing or a value has the wrong type.
    """
    doc_id = row_id(row, where)
    texts = {}
    for key in ("title", "abstract"):
        text = row.get(key)
        if not isinstance(text, str) and (text is not None or key == "title"):
            raise DataError(f"{where}: {key!r} must be a string, got {text!r:.80}")
        texts[key] = " ".join((text or "").split())
    try:
        date = normal_date(row.get("date"))
    except DataError as e:
        raise DataError(f"{where}: {e}") from e
    paper = Paper(doc_id, texts["title"], texts["abstract"], date)
    return PaperRow(paper, _ids(row, "references", where), _ids(row, "citations", where))


def _ids(row: Mapping[str, Any], key: str, where: object) -> tuple[str, ...]:
    ids = row.get(key)
    if ids is None:
        return ()
    if not isinstance(ids, list) or not all(isinstance(i, (str, int)) and not isinstance(i, bool) for i in ids):
        raise DataError(f"{where}: {key!r} must be a list of ids, got {ids!r:.80}")
    return tuple(map(str, ids))


def read_papers(source: str | os.PathLike[str]) -> Iterator[PaperRow]:
    """Yield the papers of a .jsonl or .jsonl.gz file, or of a folder of them.

    Raises DataError, which names file and line, if there is no file or a line is not a paper.
    """
    return (paper_row(row, where) for row, _, where in read_objects(Path(source)))


def write_papers(rows: Iterable[PaperRow], path: str | os.PathLike[str]) -> None:
    """Write a papers.jsonl, which appears completely or not at all."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    with replacing(path) as partial, partial.open("w", encoding="utf-8", errors="replace") as file:
        for row in rows:
            paper = row.paper
            texts = {"id": paper.id, "title": paper.title, "abstract": paper.abstract, "date": paper.date}
            file.write(encode({**texts, "citations": row.citations, "references": row.references}) + "\n")
