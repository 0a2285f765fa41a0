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
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, DataError, MissingExtraError, TaskIndexError, did_you_mean
from agent_envs.rewards.gsm8k import gold_answer

__all__ = ["GSM8KRows", "GSM8KTask", "gsm8k_rows", "prepare_gsm8k"]

SUFFIXES = (".jsonl", ".parquet")
_SHARD = re.compile(r"(?P<split>.+?)-[0-9]{5}-of-[0-9]{5}")
_SPLIT_WORDS = ("train", "test", "validation", "valid", "dev", "val")


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


def gsm8k_rows(data: str, split: str = "train") -> GSM8KRows:
    """The real rows of a split, read once per process for each state of the files.

    Args:
        data: "official" (what `agentr1 prepare gsm8k` placed), or the path of a jsonl or parquet file or of a folder.
        split: A split of the folder. A single file is the split "all", and "train" stands for it too.

    Raises:
        DataError: There is nothing at the path, or a file has no rows or a broken one.
        ConfigError: There is no such split.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    files, split = find_files(data, split)
    stamps = tuple((str(file.resolve()), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return GSM8KRows(data, split, _read_cached(stamps, split))


def find_files(data: str, split: str) -> tuple[tuple[Path, ...], str]:
    """The files that hold a split, unread, and the split's name; arguments and errors as for `gsm8k_rows`."""
    if data == "official":
        from agent_envs.datasets.prepare import data_dir

        path = data_dir() / "gsm8k"
        if not path.is_dir():
            raise DataError(f"the official GSM8K data is not at {path}; fetch it with: agentr1 prepare gsm8k")
    else:
        path = Path(data).expanduser()
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise DataError(f"{data}: expected a .jsonl or .parquet file, or a folder with such files")
        if split not in ("train", "all"):
            raise ConfigError(f"{data} is a single file, which has one split, 'all'; got split {split!r}")
        return (path,), "all"
    if not path.is_dir():
        raise DataError(
            f"there is no file or folder {data!r} in {Path.cwd()}; data must be 'generated', 'official', or the path "
            "of a .jsonl or .parquet file or of a folder with one file per split"
        )
    splits = find_splits(path)
    if split not in splits:
        raise ConfigError(f"{data} has no split {split!r}.{did_you_mean(split, sorted(splits))}")
    return splits[split], split


def find_splits(folder: Path) -> dict[str, tuple[Path, ...]]:
    """The split files of a folder by split, the shards of one split in order.

    Raises:
        DataError: There is no such file.
    """
    splits: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            inside = sorted(f for f in entry.iterdir() if f.suffix in SUFFIXES and not f.name.startswith("."))
            if inside and entry.name not in ("main", "socratic", "data"):
                splits.setdefault(entry.name, []).extend(inside)
        elif entry.suffix in SUFFIXES:
            shard = _SHARD.fullmatch(entry.stem)
            splits.setdefault(shard["split"] if shard else entry.stem, []).append(entry)
    if splits:
        return {name: tuple(files) for name, files in splits.items()}
    for name in ("main", "data"):
        if (folder / name).is_dir():
            return find_splits(folder / name)
    raise DataError(f"the folder {folder} has no split file: expected train.jsonl, test.parquet or the like")


@functools.lru_cache(maxsize=16)
def _read_cached(stamps: tuple[tuple[str, int, int], ...], split: str) -> tuple[GSM8KTask, ...]:
    tasks: list[GSM8KTask] = []
    for name, _, _ in stamps:
        for row, where in read_rows(Path(name)):
            tasks.append(_task(row, where, f"gsm8k/{split}/{len(tasks)}"))
    if not tasks:
        raise DataError(f"{', '.join(name for name, _, _ in stamps)}: the file has no rows")
    return tuple(tasks)


def read_rows(path: Path) -> Iterator[tuple[Any, str]]:
    """The raw rows of a jsonl or parquet file, each with where it stands for error messages.

    Raises:
        DataError: The file is of another type, or broken; the message has the file and the line.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    if path.suffix != ".jsonl":
        raise DataError(f"{path}: expected a .jsonl or .parquet file")
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                yield json.loads(line.decode("utf-8-sig")), where
            except UnicodeDecodeError as e:
                raise DataError(f"{where}: not UTF-8 text ({e.reason} at byte {e.start})") from e
            except (json.JSONDecodeError, RecursionError) as e:
                raise DataError(f"{where}: not a JSON object ({e}): {line[:80]!r}") from e


def _read_parquet(path: Path) -> Iterator[tuple[Any, str]]:
    try:
        import pandas
        import pyarrow
    except ImportError as e:
        raise MissingExtraError(e.name or "pyarrow", extra="data") from e
    try:
        table = pandas.read_parquet(path, engine="pyarrow")
    except (pyarrow.ArrowException, OSError) as e:
        raise DataError(f"{path}: not a readable parquet file ({e})") from e
    for number, row in enumerate(table.to_dict("records"), start=1):
        yield row, f"{path}, row {number}"


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
            hub. A single file becomes the split "train" unless its name says another.
        out: The folder to write; None is `data_dir() / "gsm8k"`.

    Returns:
        The folder written: one jsonl per split.

    Raises:
        DataError: The rows cannot be fetched, or one of them is broken.
        MissingExtraError: Fetching needs Hugging Face's `datasets`.
    """
    from agent_envs.datasets.prepare import data_dir

    target = data_dir() / "gsm8k" if out is None else out
    splits = _fetch_splits() if from_path is None else _local_splits(Path(from_path).expanduser())
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for split, rows in splits.items():
            with (temporary / f"{split}.jsonl").open("w", encoding="utf-8") as file:
                for number, row in enumerate(rows):
                    task = _task(row, f"split {split}, row {number + 1}", "")
                    record = {"question": task.question, "answer": task.solution}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
        temporary.chmod(0o755)
        _replace_folder(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _replace_folder(new: Path, target: Path) -> None:
    """Put `new` in the place of `target`, which keeps its files until then."""
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            os.replace(target, old / "old")
            os.replace(new, target)
        finally:
            shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(new, target)


def _local_splits(path: Path) -> dict[str, list[Any]]:
    if not path.exists():
        raise DataError(f"there is no file or folder {str(path)!r} to prepare GSM8K from")
    if path.is_file():
        words = re.split(r"[^a-z]+", path.stem.lower())
        split = next((word for word in _SPLIT_WORDS if word in words), "train")
        files: dict[str, tuple[Path, ...]] = {split: (path,)}
    else:
        files = find_splits(path)
    splits: dict[str, list[Any]] = {}
    for split, names in files.items():
        rows = [(row, where) for name in names for row, where in read_rows(name)]
        for row, where in rows:
            _task(row, where, "")
        if not rows:
            raise DataError(f"{', '.join(map(str, names))}: the file has no rows")
        splits[split] = [row for row, _ in rows]
    return splits


def _fetch_splits() -> dict[str, list[Any]]:
    try:
        from datasets import load_dataset
    except ImportError as e:
        raise MissingExtraError("datasets", extra="data") from e
    try:
        loaded = load_dataset("openai/gsm8k", "main")
    except (OSError, ValueError, RuntimeError) as e:
        raise DataError(
            f"could not fetch openai/gsm8k from the Hugging Face hub ({type(e).__name__}: {str(e)[:200]}); without a "
            "connection, give the released files: agentr1 prepare gsm8k --from PATH (a jsonl, a parquet or a folder)"
        ) from e
    return {str(split): list(rows) for split, rows in loaded.items()}
