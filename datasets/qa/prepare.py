"""`agentr1 prepare hotpotqa|2wiki|musique`: questions, a corpus of all their paragraphs, its index and trainer rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_envs.datasets.data_dir import data_dir
from agent_envs.datasets.download import compare_released, hub_source
from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder, write_jsonl, write_split
from agent_envs.datasets.qa.corpus import passages_of
from agent_envs.datasets.qa.rows import SOURCES, SUFFIXES, QARow, QATask, has_answer, read_qa, read_row
from agent_envs.errors import DataError, needs_extra
from agent_envs.retrieval import BM25Retriever, read_corpus

_ENVS = {"hotpotqa": "AgentR1/HotpotQA-v0", "2wiki": "AgentR1/TwoWikiMultihopQA-v0", "musique": "AgentR1/MuSiQue-v0"}


def prepare_qa(dataset: str, from_path: str | None = None, out: Path | None = None) -> Path:
    """Write a data set to a folder, replacing an earlier copy in one step.

    The folder has `SPLIT.jsonl` for each split, `passages.jsonl` with the paragraphs of all of them and its index in
    `index/`, and `trainer/SPLIT.parquet` with the rows that trainers read. Rows without an answer, as in the released
    test files, are skipped.
    """
    with needs_extra("data"):
        import pyarrow  # noqa: F401  (checked before the work rather than after it)
    target = data_dir() / dataset if out is None else out
    splits: dict[str, Iterable[QARow]]
    if from_path is None:
        fetched = fetch_splits(dataset, "distractor" if dataset == "hotpotqa" else None)
        splits = {
            split: (read_row(row, f"split {split}, row {n}") for n, row in enumerate(rows, start=1) if has_answer(row))
            for split, rows in fetched.items()
        }
    else:
        local = find_local_splits(from_path, task=dataset, suffixes=SUFFIXES)
        compare_released(dataset, (file for files in local.values() for file in files))
        splits = {split: read_qa(files, answered_only=True) for split, files in local.items()}
    with replaced_folder(target) as folder:
        tasks: dict[str, list[QATask]] = {name: [] for name in splits}
        write_jsonl(folder / "passages.jsonl", passages_of(_collect(splits, tasks)))
        if not any(tasks.values()):
            raise DataError(f"no row of {from_path or hub_source(dataset)[0]} has an answer")
        BM25Retriever.build(read_corpus(folder / "passages.jsonl"), folder / "index")
        for split, answered in tasks.items():
            if answered:
                write_split(folder, split, _ENVS[dataset], SOURCES[dataset], map(_described, answered))
    return target


def _collect(splits: dict[str, Iterable[QARow]], tasks: dict[str, list[QATask]]) -> Iterator[QARow]:
    """Yield all rows, adding their questions to `tasks`."""
    for split, rows in splits.items():
        for row in rows:
            tasks[split].append(row.task)
            yield row


def _described(task: QATask) -> tuple[dict[str, Any], str, tuple[str, ...], dict[str, Any]]:
    record = {
        "id": task.question_id,
        "question": task.question,
        "answers": list(task.answers),
        "supporting": list(task.supporting),
        "type": task.question_type,
        "level": task.level,
        "hops": task.hops,
    }
    return record, task.question, task.answers, {"type": task.question_type, "level": task.level}
