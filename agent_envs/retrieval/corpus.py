"""Reads corpora: files of rows {"id", "title", "text"}, {"id", "text"}, {"id", "contents"} or {"title", "text"}.

`contents` is indexed unchanged; otherwise the title in quotation marks, a line break, and the text are. Of rows without
an id, as the processed data releases have them, title, blank and text are; their id is their number, from 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import DataError
from agent_envs.files import numbered_lines

_ENDINGS = (".jsonl", ".jsonl.gz", ".json")


def row_id(row: Mapping[str, Any], where: object, number: int | None = None) -> str:
    """Return the id of a row, a string or an integer, as a string: of title and text alone their `number`.

    Raises DataError, which names `where`.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object with an id, got {type(row).__name__}")
    doc_id = row.get("id")
    if number is not None and "id" not in row and "title" in row and "text" in row:
        doc_id = number
    if isinstance(doc_id, int) and not isinstance(doc_id, bool):
        doc_id = str(doc_id)
    if not isinstance(doc_id, str) or not doc_id:
        raise DataError(f"{where}: 'id' must be a non-empty string, got {shown(doc_id)}")
    return doc_id


def row_contents(row: Mapping[str, Any], where: object) -> str:
    """Return the text of a row that is indexed.

    >>> row_contents({"id": "1", "title": "Paris", "text": "A city."}, "row 1")
    '"Paris"\\nA city.'

    Raises DataError, which names `where`, if contents or text are missing or not strings.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: expected an object, got {type(row).__name__}")
    contents = row.get("contents")
    if contents is None:
        contents, title = row.get("text"), row.get("title")
        if title is not None and isinstance(contents, str):
            if not isinstance(title, str):
                raise DataError(f"{where}: 'title' must be a string, got {type(title).__name__}")
            contents = f'"{title}"\n{contents}' if "id" in row else f"{title} {contents}".strip()
    if not isinstance(contents, str):
        raise DataError(f"{where}: expected a string 'text' or 'contents'; the keys are {sorted(map(str, row))}")
    return contents


def document_title(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return title and text of a row; the title is "" if it has none.

    >>> document_title({"id": "1", "contents": '"Paris"\\nA city.'})
    ('Paris', 'A city.')
    """
    if row.get("contents") is None or (row.get("title") and row.get("text")):
        return row.get("title") or "", row["text"]
    first, newline, rest = row["contents"].partition("\n")
    if newline and len(first) > 1 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", row["contents"]


def corpus_files(source: str | Path) -> list[Path]:
    """Return the files of a corpus: the file, or those in a folder, sorted by name. Raises DataError without any."""
    source = Path(source)
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise DataError(f"there is no corpus at {source}; expected a .jsonl or .jsonl.gz file, or a folder of them")
    files = sorted(p for p in source.iterdir() if p.name.endswith(_ENDINGS) and p.is_file())
    if not files:
        raise DataError(f"{source} has no file that ends in {', '.join(_ENDINGS)}")
    return files


def file_marks(source: str | Path) -> list[tuple[str, int, int]]:
    """Return path, size and time of each file of a corpus, by which an interrupted build knows that it is the same."""
    return [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in corpus_files(source)]


def read_corpus(source: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a corpus, one JSON object a line.

    Raises DataError, which names file and line, if a file cannot be read or a line is not a row.
    """
    for number, (row, _, where) in enumerate(read_objects(source)):
        row_id(row, where, number)
        row_contents(row, where)
        yield row


def read_objects(source: str | Path, *, skip: int = 0) -> Iterator[tuple[Any, bytes, str]]:
    """Yield what the JSON lines of a file or a folder of files hold, each with its line and the place for errors."""
    for path in corpus_files(source):
        for number, line in numbered_lines(path):
            if skip:
                skip -= 1
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise DataError(f"{where}: not JSON ({e})") from e
            yield row, line.strip(), where
