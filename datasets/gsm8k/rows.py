"""Real GSM8K rows: the released jsonl, the hub's parquet, folders of either, and what `agentr1 prepare gsm8k` placed.

    {"question": "Weng earns $12 an hour ...", "answer": "Weng earns 12/60 = $<<12/60=0.2>>0.2 ...\\n#### 10"}

A file is one split, "all"; in a folder every split file (`train.jsonl`, `test.parquet`, the hub's
`train-00000-of-00001.parquet`) and every sub-folder with such files is one; a folder that only holds the hub's
`main` folder stands for that. Rows are read once per process.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.datasets.files import (
    Stamp,
    data_name,
    fetch_splits,
    file_stamps,
    find_local_splits,
    read_rows,
    replaced_folder,
)
from agent_envs.datasets.files import find_files as find_row_files
from agent_envs.errors import DataError, TaskIndexError
from agent_envs.rewards.math_answers import gold_answer

__all__ = ["GSM8KRows", "GSM8KTask", "gsm8k_rows", "prepare_gsm8k"]

SUFFIXES = (".jsonl", ".parquet")
OFFICIAL_SPLITS = ("train", "test", "validation")


@dataclass(frozen=True, slots=True)
class GSM8KTask:
    """One real row."""

    task_id: str
    """`gsm8k/SPLIT/INDEX`."""
    question: str
    """The text of the problem."""
    answer: str
    """The gold number in plain form, of what follows `####`."""
    solution: str
    """The row's answer: a worked solution that ends with `#### N`."""


class GSM8KRows:
    """The rows of one split.

    Args:
        name: "official" or the path as given, for `info["source"]`.
        split: The split's name; "all" for a single file.
        rows: The tasks in file order.
    """

    __slots__ = ("_rows", "name", "split")

    def __init__(self, name: str, split: str, rows: tuple[GSM8KTask, ...]) -> None:
        self.name = name
        self.split = split
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> GSM8KTask:
        if not 0 <= index < len(self._rows):
            raise TaskIndexError(f"split {self.split!r} has tasks 0 to {len(self) - 1}, got index {index}")
        return self._rows[index]

    def __iter__(self) -> Iterator[GSM8KTask]:
        return iter(self._rows)

    def __deepcopy__(self, memo: object) -> GSM8KRows:
        return self  # nothing in it changes: copies of an environment share it

    def __reduce__(self) -> tuple[Any, ...]:
        return gsm8k_rows, (self.name, self.split)  # read where it is unpickled, not sent


def gsm8k_rows(data: str | os.PathLike[str], split: str = "train") -> GSM8KRows:
    """The real rows of a split, read once per process for each state of the files.

    Args:
        data: "official" (what `agentr1 prepare gsm8k` placed), or the path of a jsonl or parquet file or of a folder.
        split: A split of the folder. A single file is the split "all", and "train" stands for it too.

    Raises:
        DataError: There is nothing at the path, or a file has no rows or a broken one.
        ConfigError: There is no such split, or `data` is neither a text nor a path.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    data = data_name(data)
    files, split = find_files(data, split)
    return GSM8KRows(data, split, _read_cached(file_stamps(files), split))


def find_files(data: str, split: str) -> tuple[tuple[Path, ...], str]:
    """The files that hold a split, unread, and the split's name; arguments and errors as for `gsm8k_rows`."""
    return find_row_files(data, split, task="gsm8k", suffixes=SUFFIXES)


@functools.lru_cache(maxsize=16)
def _read_cached(stamps: tuple[Stamp, ...], split: str) -> tuple[GSM8KTask, ...]:
    tasks: list[GSM8KTask] = []
    for name, _, _ in stamps:
        for row, where in read_rows(Path(name)):
            tasks.append(_task(row, where, f"gsm8k/{split}/{len(tasks)}"))
    if not tasks:
        raise DataError(f"{', '.join(name for name, _, _ in stamps)}: the file has no rows")
    return tuple(tasks)


def _task(row: Any, where: str, task_id: str) -> GSM8KTask:
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object with 'question' and 'answer', got {type(row).__name__}")
    for key in ("question", "answer"):
        value = row.get(key)
        if not isinstance(value, str) or not value.strip():
            has = ", ".join(map(repr, row)) or "none"
            raise DataError(f"{where}: expected a text under {key!r}, got {value!r:.60} (the row's keys: {has:.200})")
    question, solution = row["question"], row["answer"]
    _, marker, gold = solution.rpartition("####")
    if not marker:
        raise DataError(f"{where}: the answer has no '#### N' at its end: {solution[-60:]!r}")
    try:
        answer = gold_answer(gold)
    except DataError as e:
        raise DataError(f"{where}: there is no number after '####': {gold[:60]!r}") from e
    return GSM8KTask(task_id, question, answer, solution)


def prepare_gsm8k(from_path: str | None = None, out: Path | None = None) -> Path:
    """Place the GSM8K rows where `data="official"` finds them; a copy that is there is replaced in one step.

    Args:
        from_path: A folder, jsonl or parquet to take the rows from; None fetches `openai/gsm8k` from the Hugging Face
            hub. A single file becomes the split "train" unless its name says another. Of a folder with train, test or
            validation files only these are taken, as from the released `grade_school_math/data`.
        out: The folder to write; None is `data_dir() / "gsm8k"`.

    Returns:
        The folder written: one jsonl per split.

    Raises:
        DataError: The rows cannot be fetched, or one of them is broken.
        MissingExtraError: Fetching needs Hugging Face's `datasets`.
    """
    from agent_envs.datasets.prepare import data_dir

    target = data_dir() / "gsm8k" if out is None else out
    if from_path is None:
        splits = {split: list(rows) for split, rows in fetch_splits("openai/gsm8k", "main", task="gsm8k").items()}
    else:
        splits = _local_splits(Path(from_path))
    with replaced_folder(target) as folder:
        for split, rows in splits.items():
            with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
                for number, row in enumerate(rows):
                    task = _task(row, f"split {split}, row {number + 1}", "")
                    record = {"question": task.question, "answer": task.solution}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return target


def _local_splits(path: Path) -> dict[str, list[Any]]:
    files = find_local_splits(path, task="GSM8K", suffixes=SUFFIXES)
    official = [split for split in files if split in OFFICIAL_SPLITS]  # beside them the release has other formats
    splits: dict[str, list[Any]] = {}
    for split, names in files.items():
        if official and split not in official:
            continue
        rows = [(row, where) for name in names for row, where in read_rows(name)]
        for row, where in rows:
            _task(row, where, "")
        if not rows:
            raise DataError(f"{', '.join(map(str, names))}: the file has no rows")
        splits[split] = [row for row, _ in rows]
    return splits
