"""`agentr1 prepare hotpotqa|2wiki|musique`: questions, a corpus of all their paragraphs and its index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_envs.datasets.download import compare_released, hub_source
from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder, write_jsonl
from agent_envs.datasets.qa.corpus import passages_of
from agent_envs.datasets.qa.rows import SUFFIXES, QARow, QATask, has_answer, read_qa, read_row
from agent_envs.errors import DataError
from agent_envs.retrieval import BM25Retriever, read_corpus


def prepare_qa(dataset: str, from_path: str | None, target: Path) -> None:
    """Write a data set to a folder, replacing an earlier copy in one step.

    The folder has `SPLIT.jsonl` for each split, `passages.jsonl` with the paragraphs of all of them and its index in
    `index/`. Rows without an answer, as in the released test files, are skipped.
    """
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
                write_jsonl(folder / f"{split}.jsonl", map(_prepared, answered))


def _collect(splits: dict[str, Iterable[QARow]], tasks: dict[str, list[QATask]]) -> Iterator[QARow]:
    """Yield all rows, adding their questions to `tasks`."""
    for split, rows in splits.items():
        for row in rows:
            tasks[split].append(row.task)
            yield row


def _prepared(task: QATask) -> dict[str, Any]:
    return {
        "id": task.question_id,
        "question": task.question,
        "answers": task.answers,
        "supporting": task.supporting,
        "type": task.question_type,
        "level": task.level,
        "hops": task.hops,
    }
