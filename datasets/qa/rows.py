"""Real multi-hop questions: HotpotQA, 2WikiMultihopQA and MuSiQue, as released and as the hub has them.

    HotpotQA, 2Wiki  {"_id", "question", "answer", "supporting_facts": [[title, i]], "context": [[title, [sentence]]]}
    the hub's        {"id", ..., "supporting_facts": {"title": [], ...}, "context": {"title": [], "sentences": [[]]}}
    MuSiQue          {"id", "paragraphs": [{"title", "paragraph_text", "is_supporting"}], "answer_aliases", ...}
    prepared         {"id", "question", "answers", "supporting", "type", "level", "hops"}
    verl's           `agent_envs.datasets.fields`: the answer is the ground truth, and aliases are `answers` of
                     `extra_info`; there are no paragraphs

A row's keys tell its layout. `agentr1 prepare` writes the last one, and the paragraphs of all splits as a corpus.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_envs.datasets.fields import (
    VERL_SOURCES,
    VerlRow,
    answer_field,
    as_list,
    as_object,
    as_texts,
    keys_of,
    text_field,
    verl_row,
)
from agent_envs.datasets.files import find_files
from agent_envs.datasets.paths import data_name, user_path
from agent_envs.errors import ConfigError, DataError
from agent_envs.tasks import FileTasks, is_verl_row, read_rows

DATASETS = ("hotpotqa", "2wiki", "musique")
SUFFIXES = (".json", ".jsonl", ".parquet")
ALIASES = "id_aliases.json"


@dataclass(frozen=True, slots=True)
class QATask:
    """One question."""

    task_id: str
    """Its name, unique within its environment."""
    question: str
    answers: tuple[str, ...]
    """The gold answer, then its aliases."""
    supporting: tuple[str, ...]
    """Titles of the articles that the answer requires, each once, in the order of use if it is known."""
    question_type: str
    """"bridge", "comparison", "yesno" or what the data set calls it; "" if it does not say."""
    hops: int
    """How many articles the answer requires; 0 if the data set does not say."""
    question_id: str = ""
    """The data set's own id."""
    level: str = ""
    """The data set's own difficulty: "easy", "medium", "hard"."""


@dataclass(frozen=True, slots=True)
class QARow:
    """One row, whatever its layout."""

    task: QATask
    """The question; its task_id is the row's own id."""
    paragraphs: tuple[tuple[str, str], ...]
    """Title and text of the paragraphs that come with it; none in prepared rows."""


def find_qa_files(dataset: str, data: str, split: str) -> tuple[tuple[Path, ...], str]:
    """Return the files that hold a split, without reading them, and its name; arguments and errors as `qa_rows`.

    In the folder of a release with several data sets, `musique_validation.parquet` is the validation split of musique.
    """
    prefix = f"{VERL_SOURCES[dataset]}_"
    named = {path.stem.removeprefix(prefix): path for path in user_path(data).glob(f"{prefix}*.parquet")}
    if split in named:
        return (named[split],), split
    if named and dataset != "hotpotqa":  # the other files are HotpotQA's
        raise ConfigError(f"{data} has no split {split!r} of {dataset}: it has {', '.join(sorted(named))}")
    return find_files(data, split, task=dataset, suffixes=SUFFIXES)


def qa_rows(dataset: str, data: str, split: str = "train") -> FileTasks[QATask]:
    """Return the real rows of a split; arguments and errors are those of `file_tasks`.

    `dataset` is "hotpotqa", "2wiki" or "musique": the first part of task ids, and the task of `agentr1 prepare`.
    """
    name = data_name(data)
    files, split = find_qa_files(dataset, name, split)
    return FileTasks(files, _RowParser(aliases_file(files[0]), dataset), task=dataset, split=split, name=name)


@dataclass(frozen=True)
class _RowParser:
    """Makes tasks of rows: a class, so that it can be pickled and compared."""

    aliases: Path | None
    """The file of answer aliases next to the rows."""
    dataset: str

    def __call__(self, row: Any, where: str, task_id: str) -> QATask:
        return replace(read_row(row, where, read_aliases(self.aliases), self.dataset).task, task_id=task_id)


def has_answer(row: Any) -> bool:
    """Return whether a row has its answer, which the released test files withhold."""
    if not isinstance(row, dict) or is_verl_row(row) or "answers" in row:
        return True
    return row.get("answer") not in (None, "")


def read_qa(files: Iterable[Path], *, answered_only: bool = False) -> Iterator[QARow]:
    """Yield the rows of some files; `answered_only` skips rows without an answer, which are an error otherwise."""
    files = list(files)
    empty = True
    for path in files:
        aliases = read_aliases(aliases_file(path))
        for row, where in read_rows(path):
            empty = False
            if not answered_only or has_answer(row):
                yield read_row(row, where, aliases)
    if empty:
        raise DataError(f"there are no rows in {', '.join(map(str, files))}")


def aliases_file(rows: Path) -> Path | None:
    """Return the file next to 2Wiki's rows that lists aliases of answers by Wikidata id, if it is there."""
    path = rows.parent / ALIASES
    return path if path.is_file() else None


@functools.lru_cache(maxsize=4)
def read_aliases(path: Path | None) -> dict[str, list[str]]:
    """Return the other names of things by Wikidata id."""
    aliases = {}
    for row, where in read_rows(path) if path else ():
        if not isinstance(row, dict) or not isinstance(row.get("Q_id"), str):
            raise DataError(f"{where}: expected an object with 'Q_id' and 'aliases'")
        aliases[row["Q_id"]] = [name for name in row.get("aliases") or () if isinstance(name, str)]
    return aliases


def read_row(row: Any, where: str, aliases: dict[str, list[str]] | None = None, dataset: str = "hotpotqa") -> QARow:
    """Read a row in any layout; `where` is for error messages, and `aliases` are those of answers by `answer_id`.

    HotpotQA's environment plays the rows of all data sets, as in the released cross evaluation.
    """
    row = as_object(row, "an object with a question and an answer", where)
    if is_verl_row(row):
        row = _prepared(verl_row(row, where, *(DATASETS if dataset == "hotpotqa" else (dataset,))), where)
    question = text_field(row, "question", where)
    if "answers" in row and ("supporting" in row or not row.keys() & {"answer", "context", "paragraphs"}):
        answers = as_texts(row["answers"], "answers", where)
        supporting = as_texts(row.get("supporting") or [], "supporting", where)
        paragraphs: tuple[tuple[str, str], ...] = ()
    else:
        answers = [answer_field(row, "answer", where)]
        more = row.get("answer_aliases")
        answers += as_texts([] if more is None else more, "answer_aliases", where)
        answers += (aliases or {}).get(str(row.get("answer_id")), [])
        if "paragraphs" in row:
            paragraphs, supporting = _musique_paragraphs(row["paragraphs"], where)
        elif "context" in row:
            paragraphs, supporting = _hotpot_paragraphs(row, where)
        else:
            raise DataError(f"{where}: expected paragraphs under 'context' or 'paragraphs' (keys: {keys_of(row)})")
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
        raise DataError(f"{where}: expected an integer under 'hops', got {hops!r:.60}")
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


def _prepared(row: VerlRow, where: str) -> dict[str, Any]:
    """Return what a row in verl's layout says in the prepared layout."""
    answers = [*row.golds, *as_list(row.extra.get("answers") or [], "answers", where)]
    known = {key: row.extra.get(key) for key in ("type", "level")}
    name = row.extra.get("question_id")
    return {"id": name, "question": row.question, "answers": answers, "supporting": [], **known}


def _hotpot_paragraphs(row: dict[str, Any], where: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    context = decoded(row["context"], "context", where)
    facts = decoded(row.get("supporting_facts"), "supporting_facts", where)
    if isinstance(context, dict):
        titles = as_list(context.get("title"), "context", where)
        sentences = as_list(context.get("sentences", context.get("content")), "context", where)
        if len(titles) != len(sentences):
            raise DataError(f"{where}: 'context' has {len(titles)} titles and {len(sentences)} lists of sentences")
        pairs = list(zip(titles, sentences, strict=True))
    else:
        pairs = [tuple(as_list(pair, "context", where)) for pair in as_list(context, "context", where)]
    paragraphs: list[tuple[str, str]] = []
    supporting: list[Any] = []
    if isinstance(facts, dict):
        supporting = as_list(facts.get("title"), "supporting_facts", where)
    else:
        for fact in as_list(facts, "supporting_facts", where):
            supporting += as_list(fact, "supporting_facts", where)[:1]
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise DataError(f"{where}: expected [title, [sentence, ...]] under 'context', got {pair!s:.80}")
        text = pair[1] if isinstance(pair[1], str) else _join(as_texts(pair[1], "context", where))
        paragraphs.append((pair[0], text))
    return tuple(paragraphs), as_texts(supporting, "supporting_facts", where)


def _join(sentences: list[str]) -> str:
    """Join sentences with spaces, or none where they bring their own; a quotation mark that ends one opens the next."""
    spaced = any(sentence[:1].isspace() for sentence in sentences[1:])
    return "".join(sentences) if spaced else " ".join(sentences).replace(' " ', ' "')


def _musique_paragraphs(value: Any, where: str) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    paragraphs, supporting = [], []
    for item in as_list(value, "paragraphs", where):
        paragraph = as_object(item, "objects under 'paragraphs'", where)
        title = text_field(paragraph, "title", where)
        paragraphs.append((title, text_field(paragraph, "paragraph_text", where)))
        if paragraph.get("is_supporting"):
            supporting.append(title)
    return tuple(paragraphs), supporting


def decoded(value: Any, key: str, where: str) -> Any:
    """Decode a column that some releases store as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as e:
        raise DataError(f"{where}: the text under {key!r} is not valid JSON: {value[:60]!r}") from e
