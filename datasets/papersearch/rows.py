"""Real queries for papers: AutoScholarQuery and SPARBench, as released and as prepared.

    AutoScholarQuery  {"question", "answer": [title], "answer_arxiv_id": [id], "source_meta": {"published_time":
                      "20231024"}, "qid"}; RealScholarQuery has the same
    SPARBench         {"question", "answer": [title], "source_meta": {"published_time", "answers": [{"paperID", "title",
                      "abstract", "year"}]}}
    prepared          {"id", "query", "titles", "ids", "date"}

Which layout a row has is seen from its keys. Rows of papers may lie in the same folder: `papers_sources`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_envs.datasets.files import Stamp, file_stamps, find_files, read_rows
from agent_envs.datasets.papersearch.task import PaperTask
from agent_envs.errors import DataError, TaskIndexError
from agent_envs.retrieval.papers import Paper, normal_date, title_key
from agent_envs.retrieval.papers.paper import PaperRow, arxiv_date, arxiv_id
from agent_envs.text import clean_text

__all__ = ["SUFFIXES", "QueryRow", "QueryRows", "is_query", "query_row", "query_rows", "read_queries"]

SUFFIXES = (".jsonl", ".json", ".parquet")
TASK = "papersearch"


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One row, whatever its layout."""

    task: PaperTask
    """The query; its task_id is the row's own id."""
    papers: tuple[PaperRow, ...]
    """The papers that answer it, as far as the row describes them; none in prepared rows."""


class QueryRows:
    """The queries of one split.

    Args:
        name: "official" or the path as given, for `info["source"]`.
        split: The split's name; "all" for a single file.
        rows: The tasks in file order.
    """

    __slots__ = ("_rows", "name", "split")

    def __init__(self, name: str, split: str, rows: tuple[PaperTask, ...]) -> None:
        self.name = name
        self.split = split
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> PaperTask:
        if not 0 <= index < len(self._rows):
            raise TaskIndexError(f"split {self.split!r} has tasks 0 to {len(self) - 1}, got index {index}")
        return self._rows[index]

    def __iter__(self) -> Iterator[PaperTask]:
        return iter(self._rows)

    def __deepcopy__(self, memo: object) -> QueryRows:
        return self  # nothing in it changes: copies of an environment share it

    def __reduce__(self) -> tuple[Any, ...]:
        return query_rows, (self.name, self.split)  # read where it is unpickled, not sent


def query_rows(data: str, split: str = "train") -> QueryRows:
    """The queries of a split, read once per process for each state of the files.

    Args:
        data: "official" (what `agentr1 prepare papersearch` placed), or the path of a file or of a folder with one file
            per split.
        split: A split of the folder. A single file is the split "all", and "train" stands for it too.

    Raises:
        DataError: There is nothing at the path, or a file has no rows or a broken one.
        ConfigError: There is no such split.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    files, split = find_files(data, split, task=TASK, suffixes=SUFFIXES)
    return QueryRows(data, split, _read_cached(file_stamps(files), f"{TASK}/{split}"))


@functools.lru_cache(maxsize=16)
def _read_cached(stamps: tuple[Stamp, ...], prefix: str) -> tuple[PaperTask, ...]:
    rows = read_queries(Path(name) for name, _, _ in stamps)
    return tuple(replace(row.task, task_id=f"{prefix}/{number}") for number, row in enumerate(rows))


def is_query(row: Any) -> bool:
    """Whether a row is a query, and not a paper."""
    return isinstance(row, dict) and ("question" in row or "query" in row) and "bib_entries" not in row


def read_queries(files: Iterable[Path]) -> Iterator[QueryRow]:
    """The rows of some files, one by one.

    Raises:
        DataError: A broken row, with its file and line; or files without any.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    names, some = [], False
    for path in files:
        names.append(str(path))
        for row, where in read_rows(path):
            some = True
            yield query_row(row, where)
    if not some:
        raise DataError(f"{', '.join(names)}: the file has no rows")


def query_row(row: Any, where: str) -> QueryRow:
    """A row in any layout.

    >>> row = {"question": "Any on parsing?", "answer": ["Deep Parsing"], "answer_arxiv_id": ["2009.02040v2"],
    ...     "source_meta": {"published_time": "20231024"}, "qid": "q1"}
    >>> task = query_row(row, "row 1").task
    >>> task.query, task.titles, task.ids, task.date
    ('Any on parsing?', ('Deep Parsing',), ('2009.02040',), '2023-10-24')

    Args:
        row: The row as read.
        where: Where it stands, for error messages.

    Raises:
        DataError: Something is missing or of another type; the message says what.
    """
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with a question and answers, got {type(row).__name__}")
    if "titles" in row:
        query, titles, ids = row.get("query"), _texts(row, "titles", where), _texts(row, "ids", where)
        meta: dict[str, Any] = {"published_time": row.get("date")}
        described: list[dict[str, Any]] = []
    else:
        query, titles, ids = row.get("question"), _texts(row, "answer", where), _texts(row, "answer_arxiv_id", where)
        meta = _object(row.get("source_meta"), "source_meta", where)
        described = [_object(answer, "answers", where) for answer in _listed(meta, "answers", where)]
    if not isinstance(query, str) or not query.strip():
        raise DataError(f"{where}: expected a text under 'question', got {query!r:.60} (the row's keys: {_keys(row)})")
    try:
        date = normal_date(meta.get("published_time"))
    except DataError as e:
        raise DataError(f"{where}: published_time: {e}") from e
    papers = [_described(answer, where) for answer in described] or _named(titles, ids)
    if described:
        titles = titles or [row.paper.title for row in papers]
        ids = ids or [row.paper.id for row in papers]
    titles, ids = _unique(titles, [arxiv_id(i) or i.strip() for i in ids])
    if not titles:
        raise DataError(f"{where}: the query has no answers (the row's keys: {_keys(row)})")
    own = clean_text(str(row.get("qid") or row.get("id") or ""))
    return QueryRow(
        PaperTask(own, clean_text(query.strip()), tuple(titles), tuple(ids), date, query_id=own), tuple(papers)
    )


def _unique(titles: list[str], ids: list[str]) -> tuple[list[str], list[str]]:
    """Each title once, and its id with it where there are as many."""
    titles = [" ".join(title.split()) for title in titles]
    if len(titles) != len(ids):
        return list({title_key(t): t for t in reversed(titles) if t}.values())[::-1], list(
            dict.fromkeys(filter(None, ids))
        )
    pairs = {title_key(title): (title, i) for title, i in reversed(list(zip(titles, ids, strict=True))) if title}
    kept = list(pairs.values())[::-1]
    return [title for title, _ in kept], [i for _, i in kept]


def _named(titles: list[str], ids: list[str]) -> list[PaperRow]:
    """Papers of which a row says only title and id."""
    if len(titles) != len(ids):
        return []
    papers = []
    for title, written in zip(titles, ids, strict=True):
        name = arxiv_id(written) or written.strip()
        if name and title.strip():
            papers.append(PaperRow(Paper(name, " ".join(title.split()), "", arxiv_date(name))))
    return papers


def _described(answer: dict[str, Any], where: str) -> PaperRow:
    """A paper of a SPARBench row."""
    written, title, abstract = answer.get("paperID"), answer.get("title"), answer.get("abstract")
    if not isinstance(title, str) or not title.strip():
        raise DataError(f"{where}: expected a text as the title of an answer, got {title!r:.60}")
    if not isinstance(abstract, str) and abstract is not None:
        raise DataError(f"{where}: expected a text as the abstract of {title[:60]!r}, got {abstract!r:.60}")
    if not isinstance(written, (str, int)) and written is not None:
        raise DataError(f"{where}: expected a text as the paperID of {title[:60]!r}, got {written!r:.60}")
    name = arxiv_id(str(written or "")) or str(written or "").strip() or f"title:{title_key(title)[:200]}"
    year = answer.get("year")
    try:
        date = normal_date(int(year) if isinstance(year, float) and year.is_integer() else year)
    except DataError as e:
        raise DataError(f"{where}: the year of {title[:60]!r}: {e}") from e
    known = arxiv_date(name)
    date = date if len(date) > len(known) or not known.startswith(date) else known
    title, abstract = (clean_text(" ".join((text or "").split())) for text in (title, abstract))
    return PaperRow(Paper(clean_text(name), title, abstract, date))


def _object(value: Any, key: str, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected an object under {key!r}, got {value!r:.60}")
    return value


def _listed(row: dict[str, Any], key: str, where: str) -> list[Any]:
    """A list, or an array as parquet files give it; none counts as empty."""
    value = row.get(key)
    if value is None:
        return []
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise DataError(f"{where}: expected a list under {key!r}, got {value!r:.60}")
    return list(value)


def _texts(row: dict[str, Any], key: str, where: str) -> list[str]:
    texts = _listed(row, key, where)
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{where}: expected texts under {key!r}, got {text!r:.60}")
    return list(map(clean_text, texts))


def _keys(row: dict[str, Any]) -> str:
    return (", ".join(map(repr, row)) or "none")[:200]
