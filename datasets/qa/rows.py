"""Real multi-hop questions: HotpotQA, 2WikiMultihopQA and MuSiQue, as released and as the hub has them.

    HotpotQA, 2Wiki  {"_id", "question", "answer", "supporting_facts": [[title, i]], "context": [[title, [sentence]]]}
    the hub's        {"id", ..., "supporting_facts": {"title": [], ...}, "context": {"title": [], "sentences": [[]]}}
    MuSiQue          {"id", "paragraphs": [{"title", "paragraph_text", "is_supporting"}], "answer_aliases", ...}
    prepared         {"id", "question", "answers", "supporting", "type", "level", "hops"}

Which layout a row has is seen from its keys. `agentr1 prepare` writes the last one, with the paragraphs of all splits
as a corpus beside it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.datasets.files import Stamp, file_stamps, find_files, read_rows
from agent_envs.datasets.qa.task import QATask
from agent_envs.errors import DataError, TaskIndexError

__all__ = ["DATASETS", "SUFFIXES", "QARow", "QARows", "find_qa_files", "has_answer", "qa_rows", "read_qa", "read_row"]

DATASETS = ("hotpotqa", "2wiki", "musique")
SUFFIXES = (".json", ".jsonl", ".parquet")
ALIASES = "id_aliases.json"


@dataclass(frozen=True, slots=True)
class QARow:
    """One row, whatever its layout."""

    task: QATask
    """The question; its task_id is the row's own id."""
    paragraphs: tuple[tuple[str, str], ...]
    """Title and text of the paragraphs that come with it; none in prepared rows."""


class QARows:
    """The rows of one split.

    Args:
        dataset: "hotpotqa", "2wiki" or "musique".
        name: "official" or the path as given, for `info["source"]`.
        split: The split's name; "all" for a single file.
        rows: The tasks in file order.
    """

    __slots__ = ("_rows", "dataset", "name", "split")

    def __init__(self, dataset: str, name: str, split: str, rows: tuple[QATask, ...]) -> None:
        self.dataset = dataset
        self.name = name
        self.split = split
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> QATask:
        if not 0 <= index < len(self._rows):
            raise TaskIndexError(f"split {self.split!r} has tasks 0 to {len(self) - 1}, got index {index}")
        return self._rows[index]

    def __iter__(self) -> Iterator[QATask]:
        return iter(self._rows)

    def __deepcopy__(self, memo: object) -> QARows:
        return self  # nothing in it changes: copies of an environment share it

    def __reduce__(self) -> tuple[Any, ...]:
        return qa_rows, (self.dataset, self.name, self.split)  # read where it is unpickled, not sent


def find_qa_files(dataset: str, data: str, split: str) -> tuple[tuple[Path, ...], str]:
    """The files that hold a split, unread, and the split's name; errors as for `qa_rows`."""
    return find_files(data, split, task=dataset, suffixes=SUFFIXES)


def qa_rows(dataset: str, data: str, split: str = "train") -> QARows:
    """The rows of a split, read once per process for each state of the files.

    Args:
        dataset: "hotpotqa", "2wiki" or "musique": for task ids, and for what `agentr1 prepare` calls it.
        data: "official" (what `agentr1 prepare` placed), or the path of a file or of a folder with one file per split.
        split: A split of the folder. A single file is the split "all", and "train" stands for it too.

    Raises:
        DataError: There is nothing at the path, or a file has no rows or a broken one.
        ConfigError: There is no such split.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    files, split = find_qa_files(dataset, data, split)
    return QARows(dataset, data, split, _read_cached(file_stamps(files), f"{dataset}/{split}"))


@functools.lru_cache(maxsize=16)
def _read_cached(stamps: tuple[Stamp, ...], prefix: str) -> tuple[QATask, ...]:
    tasks: list[QATask] = []
    for row in read_qa(Path(name) for name, _, _ in stamps):
        task = row.task
        tasks.append(
            QATask(
                task_id=f"{prefix}/{len(tasks)}",
                question=task.question,
                answers=task.answers,
                supporting=task.supporting,
                question_type=task.question_type,
                hops=task.hops,
                question_id=task.question_id,
                level=task.level,
            )
        )
    return tuple(tasks)


def has_answer(row: Any) -> bool:
    """Whether a row has its answer, which the released test files keep back."""
    return not isinstance(row, dict) or "answers" in row or row.get("answer") not in (None, "")


def read_qa(files: Iterable[Path], *, answered_only: bool = False) -> Iterator[QARow]:
    """The rows of some files, one by one.

    Args:
        files: The files in order.
        answered_only: Whether to leave out rows without an answer, which are an error otherwise.

    Raises:
        DataError: A broken row, with its file and line; or files without any.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    some = False
    names = []
    for path in files:
        names.append(str(path))
        aliases = _read_aliases(path.parent / ALIASES)
        for row, where in read_rows(path):
            some = True
            if not answered_only or has_answer(row):
                yield read_row(row, where, aliases)
    if not some:
        raise DataError(f"{', '.join(names)}: the file has no rows")


@functools.lru_cache(maxsize=4)
def _read_alias_lines(path: Path) -> dict[str, list[str]]:
    found = {}
    for row, where in read_rows(path):
        if not isinstance(row, dict) or not isinstance(row.get("Q_id"), str):
            raise DataError(f"{where}: expected an object with 'Q_id' and 'aliases'")
        found[row["Q_id"]] = [alias for alias in row.get("aliases") or () if isinstance(alias, str)]
    return found


def _read_aliases(path: Path) -> dict[str, list[str]]:
    """2Wiki's aliases of answers by Wikidata id, where its file lies beside the rows."""
    return _read_alias_lines(path) if path.is_file() else {}


def read_row(row: Any, where: str, aliases: dict[str, list[str]] | None = None) -> QARow:
    """A row in any layout.

    Args:
        row: The row as read.
        where: Where it stands, for error messages.
        aliases: Aliases of answers by the row's `answer_id`.

    Raises:
        DataError: Something is missing or of another type; the message says what.
    """
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with a question and an answer, got {type(row).__name__}")
    question = _text(row, "question", where)
    if "answers" in row and "supporting" in row:
        answers, supporting = _texts(row["answers"], "answers", where), _texts(row["supporting"], "supporting", where)
        paragraphs: tuple[tuple[str, str], ...] = ()
    else:
        answers = [_text(row, "answer", where)]
        more = row.get("answer_aliases")
        answers += _texts([] if more is None else more, "answer_aliases", where)
        answers += (aliases or {}).get(str(row.get("answer_id")), [])
        if "paragraphs" in row:
            paragraphs, supporting = _musique_paragraphs(row["paragraphs"], where)
        elif "context" in row:
            paragraphs, supporting = _hotpot_paragraphs(row, where)
        else:
            raise DataError(
                f"{where}: expected paragraphs under 'context' or 'paragraphs' (the row's keys: {_keys(row)})"
            )
    if not answers or not answers[0].strip():
        raise DataError(f"{where}: the answer is empty")
    answers = [answer for answer in answers if answer.strip()]
    steps = row.get("question_decomposition")
    question_id = str(row.get("_id") or row.get("id") or "")
    titles = tuple(dict.fromkeys(supporting))
    if steps is not None and not isinstance(steps, list):
        raise DataError(f"{where}: expected a list under 'question_decomposition', got {steps!r:.60}")
    hops = row.get("hops") if "answers" in row else len(steps) if steps else len(titles)
    if not (isinstance(hops, int) or (isinstance(hops, float) and hops.is_integer()) or hops is None):
        raise DataError(f"{where}: expected a whole number under 'hops', got {hops!r:.60}")
    task = QATask(
        task_id=question_id,
        question=question,
        answers=tuple(dict.fromkeys(answers)),
        supporting=titles,
        question_type=str(row.get("type") or ("bridge" if "paragraphs" in row else "")),
        hops=int(hops or 0),
        question_id=question_id,
        level=str(row.get("level") or ""),
    )
    return QARow(task, paragraphs)


def _hotpot_paragraphs(row: dict[str, Any], where: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    context = _decoded(row["context"], "context", where)
    facts = _decoded(row.get("supporting_facts"), "supporting_facts", where)
    if isinstance(context, dict):
        titles = _listed(context.get("title"), "context", where)
        sentences = _listed(context.get("sentences", context.get("content")), "context", where)
        if len(titles) != len(sentences):
            raise DataError(f"{where}: 'context' has {len(titles)} titles and {len(sentences)} lists of sentences")
        pairs = list(zip(titles, sentences, strict=True))
    else:
        pairs = [tuple(_listed(pair, "context", where)) for pair in _listed(context, "context", where)]
    paragraphs: list[tuple[str, str]] = []
    supporting: list[Any] = []
    if isinstance(facts, dict):
        supporting = _listed(facts.get("title"), "supporting_facts", where)
    else:
        for fact in _listed(facts, "supporting_facts", where):
            supporting += _listed(fact, "supporting_facts", where)[:1]
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise DataError(f"{where}: expected [title, [sentence, ...]] under 'context', got {pair!s:.80}")
        told = pair[1] if isinstance(pair[1], str) else _joined(_texts(pair[1], "context", where))
        paragraphs.append((pair[0], told))
    return tuple(paragraphs), _texts(supporting, "supporting_facts", where)


def _joined(sentences: list[str]) -> str:
    """Sentences as one text: as they stand where they bring their spaces, as in HotpotQA, else with one between two."""
    if any(sentence[:1].isspace() for sentence in sentences[1:]):
        return "".join(sentences)
    return " ".join(sentences).replace(' " ', ' "')  # a quotation mark at a sentence's end that opens the next


def _musique_paragraphs(value: Any, where: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    paragraphs, supporting = [], []
    for paragraph in _listed(value, "paragraphs", where):
        if not isinstance(paragraph, dict):
            raise DataError(f"{where}: expected objects under 'paragraphs', got {paragraph!s:.80}")
        title = _text(paragraph, "title", where)
        paragraphs.append((title, _text(paragraph, "paragraph_text", where)))
        if paragraph.get("is_supporting"):
            supporting.append(title)
    return tuple(paragraphs), supporting


def _decoded(value: Any, key: str, where: str) -> Any:
    """A column that some releases store as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as e:
        raise DataError(f"{where}: the text under {key!r} is not JSON: {value[:60]!r}") from e


def _listed(value: Any, key: str, where: str) -> list[Any]:
    """A list, or an array as parquet files give it."""
    if value is None or isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise DataError(f"{where}: expected a list under {key!r}, got {value!r:.60}")
    return list(value)


def _texts(value: Any, key: str, where: str) -> list[str]:
    texts = _listed(value, key, where)
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{where}: expected texts under {key!r}, got {text!r:.60}")
    return texts


def _text(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: expected a text under {key!r}, got {value!r:.60} (the row's keys: {_keys(row)})")
    return value


def _keys(row: dict[str, Any]) -> str:
    return (", ".join(map(repr, row)) or "none")[:200]
