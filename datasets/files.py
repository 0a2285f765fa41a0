"""Files of task rows: finding those of a split, and putting prepared data in place.

A single file is the split "all", and the one that its name or first row names. In a folder, every split file
(`train.jsonl`, `test.parquet`, the hub's `train-00000-of-00001.parquet`) and every sub-folder with such files, or with
folders of them (MATH's `train/algebra/1.json`), is a split; in the folder of a subject the shards' names say it
(`algebra/train-00000-of-00001.parquet`). A file whose name merely contains a split's name
(`hotpot_dev_distractor_v1.json`) serves as that split too, if it is the only one.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent_envs.checks import string
from agent_envs.datasets.download import RELEASED
from agent_envs.datasets.paths import data_name, official_dir, user_path
from agent_envs.errors import ConfigError, DataError, did_you_mean, needs_extra
from agent_envs.files import move_folder
from agent_envs.tasks import FileStamp, FileTasks, read_rows

T = TypeVar("T")

_SHARD = re.compile(r"(?P<split>.+?)-[0-9]{5}-of-(?P<total>[0-9]{5})")
_SPLIT_WORDS = {"train": "train", "test": "test"} | dict.fromkeys(("validation", "valid", "val", "dev"), "validation")
_HUB_CONFIGS = ("main", "data", "distractor")  # folders of a hub data set that are searched for splits
_NOT_SPLITS = ("index", "papers", "id_aliases.json")
_NOT_SPLIT_STEMS = ("passages", "papers", "hpqa_corpus")


def file_tasks(
    data: str | os.PathLike[str],
    split: str,
    parse_row: Callable[[Any, str, str], T],
    *,
    task: str,
    suffixes: Sequence[str],
) -> FileTasks[T]:
    """Return the rows of a split as tasks: `find_files` with `FileTasks`, whose arguments and errors are these."""
    name = data_name(data)
    files, split = find_files(name, split, task=task, suffixes=suffixes)
    return FileTasks(files, parse_row, task=task, split=split, name=name)


@functools.lru_cache(maxsize=24)
def read_tasks(stamps: tuple[FileStamp, ...], read: Callable[[Path], Iterable[Any]], prefix: str) -> tuple[Any, ...]:
    """Return the tasks, named tuples, that `read` makes of files of any layout, with the ids PREFIX/INDEX."""
    each = (task for name, _, _ in stamps for task in read(Path(name)))
    tasks = tuple(task._replace(task_id=f"{prefix}/{index}") for index, task in enumerate(each))
    if not tasks:
        raise DataError(f"there are no rows in {', '.join(name for name, _, _ in stamps)}")
    return tasks


def find_files(data: str, split: str, *, task: str, suffixes: Sequence[str]) -> tuple[tuple[Path, ...], str]:
    """Return the files that hold a split, without reading them, and the split's name.

    Args:
        data: "official" (what `agentr1 prepare TASK` fetched), or the path of a file or folder.
        split: A split of the folder. A single file is the split "all"; "train" is accepted for it, and the split that
            its name or the `extra_info` of its first row says.
        task: The task's name in `agentr1 prepare`.
        suffixes: The suffixes of the files that may be read.

    Raises:
        DataError: There is no such file or folder.
        ConfigError: There is no such split.
    """
    expected = " or ".join([", ".join(suffixes[:-1]), suffixes[-1]] if len(suffixes) > 1 else suffixes)
    string("split", split)
    path = official_dir(task) if data == "official" else user_path(data)
    if path.is_file():
        if path.suffix not in suffixes:
            raise DataError(f"{data}: expected a {expected} file, or a folder of such files")
        if split in ("train", "all"):
            return (path,), "all"
        if split not in (said := _splits_said(path)):
            others = f", and {', '.join(map(repr, sorted(said)))} by its name or first row" if said else ""
            raise ConfigError(f"{data} is a single file, whose split is 'all'{others}; got split {split!r}")
        return (path,), split
    if not path.is_dir():
        close = difflib.get_close_matches(data, ("generated", "official"), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise DataError(
            f"there is no file or folder {data!r} in {Path.cwd()}{hint}; data must be 'generated', 'official', or the "
            f"path of a {expected} file or of a folder with one file per split"
        )
    splits = find_splits(path, suffixes)
    if split not in splits:
        similar = [name for name in splits if _split_in_name(name) == _SPLIT_WORDS.get(split)]
        if split not in _SPLIT_WORDS or len(similar) != 1:
            raise ConfigError(f"{data} has no split {split!r}.{did_you_mean(split, sorted(splits))}")
        return splits[similar[0]], split
    return splits[split], split


def find_splits(folder: Path, suffixes: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """Return the files of each split in a folder, shards in order.

    Where the folder has no split but the hub's `main`, `data` or `distractor` folder, that one is searched instead.
    Prepared corpora (`passages`, `papers`, `index`) are not splits.

    Raises:
        DataError: The folder has no split, cannot be read, or has the same split in two files.
    """
    splits: dict[str, list[Path]] = {}
    for entry in _list_folder(folder):
        if entry.name.startswith(".") or entry.name in _NOT_SPLITS:
            continue
        if entry.is_dir():
            if entry.name in (*_HUB_CONFIGS, "socratic"):
                continue
            inside = _row_files(entry, suffixes)
            if not inside:
                deeper = (_row_files(folder, suffixes) for folder in _list_folder(entry) if folder.is_dir())
                inside = [file for files in deeper for file in files]
            for file in inside:
                shard = _SHARD.fullmatch(file.stem)
                split = shard["split"] if shard and entry.name not in _SPLIT_WORDS else entry.name
                splits.setdefault(split if split in _SPLIT_WORDS else entry.name, []).append(file)
        elif entry.suffix in suffixes and entry.stem not in _NOT_SPLIT_STEMS:
            shard = _SHARD.fullmatch(entry.stem)
            splits.setdefault(shard["split"] if shard else entry.stem, []).append(entry)
    if splits:
        for name, files in splits.items():
            _check_one_source(folder, name, files)
        return {name: tuple(files) for name, files in splits.items()}
    for name in _HUB_CONFIGS:
        if (folder / name).is_dir():
            return find_splits(folder / name, suffixes)
    raise DataError(f"the folder {folder} has no split file such as train{suffixes[0]} or test{suffixes[-1]}")


def _row_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return [file for file in _list_folder(folder) if file.suffix in suffixes and not file.name.startswith(".")]


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as e:
        raise DataError(f"the folder {folder} cannot be read: {e.strerror}") from e


def _check_one_source(folder: Path, split: str, files: Sequence[Path]) -> None:
    """Reject a split stored twice, as in two formats: its rows would be doubled."""
    sources: dict[tuple[bool, str, str], Path] = {}
    for file in files:
        shard = _SHARD.fullmatch(file.stem)
        inside = file.parent != folder
        part = shard["total"] if shard and (not inside or file.parent.name == split) else "" if inside else file.stem
        sources.setdefault((inside, part, file.suffix), file)
    if len(sources) > 1:
        names = " and ".join(str(file.relative_to(folder)) for file in list(sources.values())[:2])
        raise DataError(f"the folder {folder} has the split {split!r} twice, as {names}: remove one of them")


def _splits_said(path: Path) -> set[str]:
    """Return the splits that a file's name and its first row name, validation by each of its names."""
    said = {path.stem, _split_in_name(path.stem)}
    if path.suffix in (".json", ".jsonl", ".parquet"):
        extra = next((row.get("extra_info") for row, _ in read_rows(path) if isinstance(row, dict)), None)
        said.add(str(extra.get("split") or "") if isinstance(extra, dict) else "")
    return {name for name in said if name} | {word for word, split in _SPLIT_WORDS.items() if split in said}


def _split_in_name(name: str) -> str:
    """Return the split that a file's name mentions, or "".

    >>> _split_in_name("hotpot_dev_distractor_v1")
    'validation'
    """
    return next((_SPLIT_WORDS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _SPLIT_WORDS), "")


@contextlib.contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder to write into, which replaces `target` in one step if the block succeeds.

    Raises:
        DataError: The folder cannot be written, or holds something other than prepared data.
    """
    try:
        if target.exists() and not target.is_dir():
            raise DataError(f"{target} is a file, but prepared data is a folder: choose another path")
        inside = {file.suffix for file in target.iterdir()} if target.exists() else set()
        if inside and not inside & {".jsonl", ".json", ".parquet"}:  # the user's own work
            raise DataError(
                f"{target} holds something other than prepared data and would be replaced: choose another path"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{target.name[:100]}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent, ignore_cleanup_errors=True) as name:
            yield Path(name)
            Path(name).chmod(0o755)
            move_folder(Path(name), target)
    except OSError as e:
        raise DataError(f"the data cannot be written to {str(target)[:200]}: {e.strerror}") from e


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to a file, one JSON object per line."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)


def find_local_splits(path: str, *, task: str, suffixes: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """Return the files to prepare by split, which a file's name may mention if no other file's does.

    A file that mentions none is "train" if it is given alone, and keeps its own name in a folder.

    Raises:
        DataError: There is no such file or folder.
    """
    source = user_path(path)
    if not source.exists():
        raise DataError(f"there is no file or folder {path!r} to prepare {task} from")
    if source.is_file():
        return {_split_in_name(source.stem) or "train": (source,)}
    splits = find_splits(source, suffixes)
    mentioned = [_split_in_name(name) for name in splits]
    return {
        split if split and mentioned.count(split) == 1 else name: splits[name]
        for name, split in zip(splits, mentioned, strict=True)
    }


def fetch_splits(task: str) -> dict[str, Any]:
    """Fetch a task's data set from the Hugging Face hub, at its pinned revision, and return the rows of each split.

    Raises:
        DataError: It cannot be fetched.
        MissingExtraError: Fetching needs Hugging Face's `datasets`.
    """
    with needs_extra("data"):
        from datasets import load_dataset
    source = RELEASED[task]
    files = {"data_files": dict(source["data_files"])} if "data_files" in source else {}
    try:
        loaded = load_dataset(source["hub"], source.get("config"), revision=source["revision"], **files)
    except (OSError, ValueError, RuntimeError) as e:
        raise DataError(
            f"could not fetch {source['hub']} from the Hugging Face hub ({type(e).__name__}: {str(e)[:200]}); to work "
            f"offline, pass the released files: agentr1 prepare {task} --from PATH"
        ) from e
    return {str(split): rows for split, rows in loaded.items()}
