"""Papers on disk: one JSON object a line, {"id", "title", "abstract", "date", "citations": [], "references": []}.

Citations and references are ids of other papers; either may be left out, an edge given on one side counts for both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.errors import DataError
from agent_envs.files import numbered_lines, replacing
from agent_envs.retrieval.corpus import corpus_files, row_id
from agent_envs.retrieval.papers.base import Paper, normal_date

__all__ = ["PaperRow", "paper_row", "read_papers", "write_papers"]


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A paper with its edges."""

    paper: Paper
    """The paper."""
    references: tuple[str, ...] = ()
    """Ids of the papers that it refers to."""
    citations: tuple[str, ...] = ()
    """Ids of the papers that cite it."""


def paper_row(row: Mapping[str, Any], where: object) -> PaperRow:
    """A row of a papers.jsonl. Abstract, date and edges may be missing or null; spaces and line breaks become spaces.

    >>> row = paper_row({"id": 7, "title": "On\\n  Parsing", "date": "20240531", "references": ["a", 8]}, "row 1")
    >>> row.paper.id, row.paper.title, row.paper.date, row.references
    ('7', 'On Parsing', '2024-05-31', ('a', '8'))

    Raises:
        DataError: It has no id or no title, or something is of another type; the message names `where`.
    """
    doc_id = row_id(row, where)
    texts = {}
    for key in ("title", "abstract"):
        text = row.get(key)
        if not isinstance(text, str) and (text is not None or key == "title"):
            raise DataError(f"{where}: {key!r} has to be a string, got {text!r:.80}")
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
        raise DataError(f"{where}: {key!r} has to be a list of ids, got {ids!r:.80}")
    return tuple(map(str, ids))


def read_papers(source: str | os.PathLike[str]) -> Iterator[PaperRow]:
    """The papers of a .jsonl file (.gz too) or of a folder of them, read as they are asked for.

    Raises:
        DataError: Nothing is there, or a line is no paper; the message names file and line.
    """
    for path in corpus_files(Path(source)):
        for number, line in numbered_lines(path):
            where = f"{path}, line {number}"
            yield paper_row(_parse(line, where), where)


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where}: not JSON ({e})") from e
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with id and title, got {type(row).__name__}")
    return row


_encode = json.JSONEncoder(ensure_ascii=False).encode


def write_papers(rows: Iterable[PaperRow], path: str | os.PathLike[str]) -> int:
    """Write a papers.jsonl, which appears whole or not at all; how many papers it has."""
    count = 0
    with replacing(path) as partial, partial.open("w", encoding="utf-8", errors="replace") as file:
        for row in rows:
            paper = row.paper
            file.write(
                _encode(
                    {
                        "id": paper.id,
                        "title": paper.title,
                        "abstract": paper.abstract,
                        "date": paper.date,
                        "citations": row.citations,
                        "references": row.references,
                    }
                )
                + "\n"
            )
            count += 1
    return count
