"""Real queries for papers: AutoScholarQuery and SPARBench, as released and as prepared.

    AutoScholarQuery  {"question", "answer": [title], "answer_arxiv_id": [id], "source_meta": {"published_time":
                      "20231024"}, "qid"}; RealScholarQuery has the same
    SPARBench         {"question", "answer": [title], "source_meta": {"published_time", "answers": [{"paperID", "title",
                      "abstract", "year"}]}}
    prepared          {"id", "query", "titles", "ids", "date"}
    verl's            `agent_envs.datasets.fields`: the prompt is the query, and no paper is known to answer it

A row's keys tell its layout. Files of papers may be in the same folder: see `paper_files.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from agent_envs.datasets.fields import as_list, as_object, as_texts, keys_of, verl_row
from agent_envs.datasets.files import file_tasks
from agent_envs.errors import DataError
from agent_envs.retrieval.papers import Paper, normal_date, title_key
from agent_envs.retrieval.papers.paper import PaperRow, arxiv_date, arxiv_id
from agent_envs.tasks import FileTasks, is_verl_row
from agent_envs.text import clean_text

SUFFIXES = (".jsonl", ".json", ".parquet")
TASK = "papersearch"


@dataclass(frozen=True, slots=True)
class PaperTask:
    """One query."""

    task_id: str
    """Its name, unique within its environment."""
    query: str
    titles: tuple[str, ...]
    """The titles of the papers that answer it, each once; none if the data set does not say."""
    ids: tuple[str, ...] = ()
    """Their ids if the data set has them, arXiv ids without a version: in the order of the titles if there are as many,
    else in the data set's order."""
    date: str = ""
    """When it was asked, in the form of `Paper.date`; papers published later do not count. "" if it is not known."""
    query_id: str = ""
    """The data set's own id."""
    query_type: str = ""
    """What the data set calls its kind; "" if it does not say."""


@dataclass(frozen=True, slots=True)
class QueryRow:
    """One row, whatever its layout."""

    task: PaperTask
    """The query; its task_id is the row's own id."""
    papers: tuple[PaperRow, ...]
    """The papers that answer it, as far as the row describes them; none in prepared rows."""


def query_rows(data: str, split: str = "train") -> FileTasks[PaperTask]:
    """Return the real queries of a split; arguments and errors are those of `file_tasks`."""
    return file_tasks(data, split, _parse_row, task=TASK, suffixes=SUFFIXES)


def _parse_row(row: Any, where: str, task_id: str) -> PaperTask:
    return replace(query_row(row, where).task, task_id=task_id)


def is_query(row: Any) -> bool:
    """Return whether a row is a query rather than a paper."""
    if is_verl_row(row):
        return True
    return isinstance(row, dict) and ("question" in row or "query" in row) and "bib_entries" not in row


def query_row(row: Any, where: str) -> QueryRow:
    """Read a row in any layout; `where` is for error messages.

    >>> row = {"question": "Any on parsing?", "answer": ["Deep Parsing"], "answer_arxiv_id": ["2009.02040v2"],
    ...     "source_meta": {"published_time": "20231024"}, "qid": "q1"}
    >>> task = query_row(row, "row 1").task
    >>> task.query, task.titles, task.ids, task.date
    ('Any on parsing?', ('Deep Parsing',), ('2009.02040',), '2023-10-24')
    """
    row = as_object(row, "an object with a question and answers", where)
    if may_lack_answers := is_verl_row(row):
        asked = verl_row(row, where, TASK)
        row = {"query": asked.question, "titles": asked.golds, "id": asked.extra.get("question_id")}
    if "titles" in row:
        query, titles, ids = row.get("query"), _texts(row, "titles", where), _texts(row, "ids", where)
        meta: dict[str, Any] = {"published_time": row.get("date")}
        described: list[dict[str, Any]] = []
    else:
        query, titles, ids = row.get("question"), _texts(row, "answer", where), _texts(row, "answer_arxiv_id", where)
        meta = _object(row.get("source_meta"), "source_meta", where)
        described = [
            _object(answer, "answers", where) for answer in as_list(meta.get("answers") or [], "answers", where)
        ]
    if not isinstance(query, str) or not query.strip():
        raise DataError(f"{where}: expected text under 'question', got {query!r:.60} (keys: {keys_of(row)})")
    try:
        date = normal_date(meta.get("published_time"))
    except DataError as e:
        raise DataError(f"{where}: published_time: {e}") from e
    titles, ids = [" ".join(title.split()) for title in titles], [arxiv_id(i) or i.strip() for i in ids]
    papers = [_described(answer, where) for answer in described]
    if described:
        titles = titles or [row.paper.title for row in papers]
        ids = ids or [row.paper.id for row in papers]
    elif len(titles) == len(ids):
        pairs = zip(ids, titles, strict=True)
        papers = [PaperRow(Paper(i, title, "", arxiv_date(i))) for i, title in pairs if i and title]
    titles, ids = _unique(titles, ids)
    if not titles and not may_lack_answers:
        raise DataError(f"{where}: the query has no answers (keys: {keys_of(row)})")
    query_id = clean_text(str(row.get("qid") or row.get("id") or ""))
    return QueryRow(
        PaperTask(query_id, clean_text(query.strip()), tuple(titles), tuple(ids), date, query_id=query_id),
        tuple(papers),
    )


def _unique(titles: list[str], ids: list[str]) -> tuple[list[str], list[str]]:
    """Drop repeated titles, with their ids where there is one for each title."""
    if len(titles) != len(ids):
        unique = {title_key(title): title for title in reversed(titles) if title}
        return list(unique.values())[::-1], list(dict.fromkeys(filter(None, ids)))
    pairs = {title_key(title): (title, i) for title, i in reversed(list(zip(titles, ids, strict=True))) if title}
    papers = list(pairs.values())[::-1]
    return [title for title, _ in papers], [i for _, i in papers]


def _described(answer: dict[str, Any], where: str) -> PaperRow:
    """Return a paper of a SPARBench row."""
    raw_id, title, abstract = answer.get("paperID"), answer.get("title"), answer.get("abstract")
    if not isinstance(title, str) or not title.strip():
        raise DataError(f"{where}: expected text as the title of an answer, got {title!r:.60}")
    if not isinstance(abstract, str) and abstract is not None:
        raise DataError(f"{where}: expected text as the abstract of {title[:60]!r}, got {abstract!r:.60}")
    if not isinstance(raw_id, (str, int)) and raw_id is not None:
        raise DataError(f"{where}: expected text as the paperID of {title[:60]!r}, got {raw_id!r:.60}")
    raw_id = str(raw_id or "")
    paper_id = arxiv_id(raw_id) or raw_id.strip() or f"title:{title_key(title)[:200]}"
    year = answer.get("year")
    try:
        date = normal_date(int(year) if isinstance(year, float) and year.is_integer() else year)
    except DataError as e:
        raise DataError(f"{where}: the year of {title[:60]!r}: {e}") from e
    by_id = arxiv_date(paper_id)
    date = date if len(date) > len(by_id) or not by_id.startswith(date) else by_id
    title, abstract = (clean_text(" ".join((text or "").split())) for text in (title, abstract))
    return PaperRow(Paper(clean_text(paper_id), title, abstract, date))


def _object(value: Any, key: str, where: str) -> dict[str, Any]:
    return {} if value is None else as_object(value, f"an object under {key!r}", where)


def _texts(row: dict[str, Any], key: str, where: str) -> list[str]:
    return [] if row.get(key) is None else list(map(clean_text, as_texts(row[key], key, where)))
