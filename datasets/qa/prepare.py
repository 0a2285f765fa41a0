"""`agentr1 prepare hotpotqa|2wiki|musique`: questions, a corpus of all their paragraphs, its index, trainer rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agent_envs.datasets.data_dir import data_dir
from agent_envs.datasets.files import fetch_splits, find_local_splits, replaced_folder
from agent_envs.datasets.qa.corpus import passages_of
from agent_envs.datasets.qa.rows import SUFFIXES, QARow, has_answer, read_qa, read_row
from agent_envs.datasets.qa.task import QATask
from agent_envs.errors import DataError, MissingExtraError
from agent_envs.retrieval import BM25Retriever, read_corpus

__all__ = ["prepare_qa", "trainer_rows"]

_HUB = {
    "hotpotqa": ("hotpotqa/hotpot_qa", "distractor"),
    "2wiki": ("framolfese/2WikiMultihopQA", None),
    "musique": ("dgslibisey/MuSiQue", None),
}
_ENVS = {
    "hotpotqa": "AgentR1/HotpotQA-v0",
    "2wiki": "AgentR1/TwoWikiMultihopQA-v0",
    "musique": "AgentR1/MuSiQue-v0",
}
_SOURCES = {"hotpotqa": "hotpotqa_distractor", "2wiki": "2wikimultihopqa", "musique": "musique"}


def prepare_qa(dataset: str, from_path: str | None = None, out: Path | None = None) -> Path:
    """Place a data set where `data="official"` finds it; a copy that is there is replaced in one step.

    Args:
        dataset: "hotpotqa", "2wiki" or "musique".
        from_path: A released file or a folder of them; None fetches the data set from the Hugging Face hub. A single
            file becomes the split that its name speaks of, "train" where it speaks of none.
        out: The folder to write; None is `data_dir() / dataset`.

    Returns:
        The folder written: `SPLIT.jsonl` for each split, `passages.jsonl` with the paragraphs of all of them and its
        index in `index/`, and `trainer/SPLIT.parquet` with the rows that trainers read. Rows without an answer, as in
        the released test files, are left out.

    Raises:
        DataError: The rows cannot be fetched, or one of them is broken.
        MissingExtraError: pyarrow is not installed; or fetching needs Hugging Face's `datasets`.
    """
    try:
        import pyarrow  # noqa: F401  (asked for before the work, not after it)
    except ImportError as e:
        raise MissingExtraError("pyarrow", extra="data") from e
    target = data_dir() / dataset if out is None else out
    splits = _hub_rows(dataset) if from_path is None else _local_rows(dataset, from_path)
    with replaced_folder(target) as folder:
        tasks: dict[str, list[QATask]] = {name: [] for name in splits}
        with (folder / "passages.jsonl").open("w", encoding="utf-8") as file:
            for passage in passages_of(_noted(splits, tasks)):
                file.write(json.dumps(passage, ensure_ascii=False) + "\n")
        if not any(tasks.values()):
            raise DataError(f"no row of {from_path or _HUB[dataset][0]} has an answer")
        BM25Retriever.build(read_corpus(folder / "passages.jsonl"), folder / "index")
        (folder / "trainer").mkdir()
        for split, some in tasks.items():
            if some:
                _write_split(folder, dataset, split, some)
    return target


def _noted(splits: dict[str, Iterable[QARow]], tasks: dict[str, list[QATask]]) -> Iterator[QARow]:
    """All rows; their questions are kept on the way."""
    for split, rows in splits.items():
        for row in rows:
            tasks[split].append(row.task)
            yield row


def _write_split(folder: Path, dataset: str, split: str, tasks: list[QATask]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
        for task in tasks:
            record = {
                "id": task.question_id,
                "question": task.question,
                "answers": list(task.answers),
                "supporting": list(task.supporting),
                "type": task.question_type,
                "level": task.level,
                "hops": task.hops,
            }
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    rows = trainer_rows(dataset, split, tasks)
    pq.write_table(pa.Table.from_pylist(rows), folder / "trainer" / f"{split}.parquet")


def trainer_rows(dataset: str, split: str, tasks: Iterable[QATask]) -> list[dict[str, Any]]:
    """The rows of a split as trainers read them: the released columns, and those of this project's agent loop.

    Args:
        dataset: "hotpotqa", "2wiki" or "musique".
        split: The split, for `extra_info` and `env_kwargs`.
        tasks: Its questions in order.
    """
    kwargs = json.dumps({"data": "official", "split": split}, sort_keys=True)
    return [
        {
            "data_source": _SOURCES[dataset],
            "prompt": [{"role": "user", "content": task.question}],
            "reward_model": {"style": "rule", "ground_truth": list(task.answers)},
            "extra_info": {
                "index": index,
                "phase": "train" if split == "train" else "validation",
                "question_id": task.question_id,
                "split": split,
                "type": task.question_type,
                "level": task.level,
            },
            "agent_name": "agentr1_env",
            "env_id": _ENVS[dataset],
            "env_kwargs": kwargs,
            "wrappers": "[]",
        }
        for index, task in enumerate(tasks)
    ]


def _local_rows(dataset: str, path: str) -> dict[str, Iterable[QARow]]:
    splits = find_local_splits(path, task=dataset, suffixes=SUFFIXES)
    return {split: read_qa(files, answered_only=True) for split, files in splits.items()}


def _hub_rows(dataset: str) -> dict[str, Iterable[QARow]]:
    name, config = _HUB[dataset]
    return {
        split: (read_row(row, f"split {split}, row {n}") for n, row in enumerate(rows, start=1) if has_answer(row))
        for split, rows in fetch_splits(name, config, task=dataset).items()
    }
