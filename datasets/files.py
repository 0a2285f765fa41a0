"""Files of task rows: which files hold a split, reading them row by row, and putting prepared data in place.

A file is one split, "all"; in a folder every split file (`train.jsonl`, `test.parquet`, the hub's
`train-00000-of-00001.parquet`) and every sub-folder with such files is one. A file whose name only contains a split's
name (`hotpot_dev_distractor_v1.json`) stands for that split too, where no other does.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, DataError, MissingExtraError, did_you_mean

__all__ = [
    "Stamp",
    "data_name",
    "fetch_splits",
    "file_stamps",
    "find_files",
    "find_local_splits",
    "find_splits",
    "given_path",
    "read_rows",
    "replaced_folder",
]

Stamp = tuple[str, int, int]
"""A file's resolved path, its time of change in nanoseconds and its size: what a cache of its contents goes by."""

_SHARD = re.compile(r"(?P<split>.+?)-[0-9]{5}-of-(?P<total>[0-9]{5})")
_SPLIT_WORDS = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
_CHUNK = 1 << 20


def data_name(data: str | os.PathLike[str]) -> str:
    """The argument `data` as text.

    Raises:
        ConfigError: It is neither a text nor a path.

    >>> data_name(Path("rows.jsonl"))
    'rows.jsonl'
    """
    name = os.fspath(data) if isinstance(data, os.PathLike) else data
    if not isinstance(name, str) or not name:
        raise ConfigError(f"data must be 'generated', 'official' or a path, got {data!r}")
    return name


def find_files(data: str, split: str, *, task: str, suffixes: Sequence[str]) -> tuple[tuple[Path, ...], str]:
    """The files that hold a split, unread, and the split's name.

    Args:
        data: "official" (what `agentr1 prepare TASK` placed), or the path of a file or of a folder.
        split: A split of the folder. A single file is the split "all", and "train" stands for it too.
        task: The task's name in `agentr1 prepare`.
        suffixes: The endings of the files that are read.

    Raises:
        DataError: There is nothing at the path.
        ConfigError: There is no such split.
    """
    kinds = _one_of(suffixes)
    if not isinstance(split, str):
        raise ConfigError(f"split must be the name of one, such as 'train', got {split!r}")
    if data == "official":
        from agent_envs.datasets.prepare import data_dir

        path = data_dir() / task
        if not path.is_dir():
            raise DataError(f"the official data of {task!r} is not at {path}; fetch it with: agentr1 prepare {task}")
    else:
        path = given_path(data)
    if path.is_file():
        if path.suffix not in suffixes:
            raise DataError(f"{data}: expected a {kinds} file, or a folder with such files")
        if split not in ("train", "all"):
            raise ConfigError(f"{data} is a single file, which has one split, 'all'; got split {split!r}")
        return (path,), "all"
    if not path.is_dir():
        close = difflib.get_close_matches(data, ("generated", "official"), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise DataError(
            f"there is no file or folder {data!r} in {Path.cwd()}{hint}; data must be 'generated', 'official', or the "
            f"path of a {kinds} file or of a folder with one file per split"
        )
    splits = find_splits(path, suffixes)
    if split not in splits:
        alike = [name for name in splits if _split_word(name) == _SPLIT_WORDS.get(split)]
        if split not in _SPLIT_WORDS or len(alike) != 1:
            raise ConfigError(f"{data} has no split {split!r}.{did_you_mean(split, sorted(splits))}")
        return splits[alike[0]], split
    return splits[split], split


def find_splits(folder: Path, suffixes: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """The split files of a folder by split, the shards of one split in order.

    A folder that holds nothing but the hub's `main`, `data` or `distractor` folder stands for that. `passages`,
    `papers` and `trainer` are no splits: prepared data keeps its corpus and the trainer's rows there.

    Raises:
        DataError: There is no such file, the folder cannot be read, or two files hold the same split.
    """
    splits: dict[str, list[Path]] = {}
    for entry in _entries(folder):
        if entry.name.startswith(".") or entry.name in ("trainer", "index", "papers", "id_aliases.json"):
            continue
        if entry.is_dir():
            inside = sorted(f for f in _entries(entry) if f.suffix in suffixes and not f.name.startswith("."))
            if inside and entry.name not in _INNER:
                splits.setdefault(entry.name, []).extend(inside)
        elif entry.suffix in suffixes and entry.stem not in ("passages", "papers"):
            shard = _SHARD.fullmatch(entry.stem)
            splits.setdefault(shard["split"] if shard else entry.stem, []).append(entry)
    if splits:
        for name, files in splits.items():
            _refuse_doubles(folder, name, files)
        return {name: tuple(files) for name, files in splits.items()}
    for name in _INNER[:1] + _INNER[2:]:
        if (folder / name).is_dir():
            return find_splits(folder / name, suffixes)
    raise DataError(
        f"the folder {folder} has no split file: expected train{suffixes[0]}, test{suffixes[-1]} or the like"
    )


def given_path(data: str | os.PathLike[str]) -> Path:
    """A path as given, the home folder's `~` resolved; DataError where it can be none."""
    try:
        path = Path(data).expanduser()
        path.exists()  # raises where the system refuses the name itself
    except (OSError, RuntimeError, ValueError) as e:
        raise DataError(f"{os.fspath(data)[:100]!r} is no usable path: {_reason(e)}") from e
    return path


def _reason(error: Exception) -> str:
    """What went wrong, without the path that a system error repeats."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as e:
        raise DataError(f"the folder {folder} cannot be read: {_reason(e)}") from e


def _refuse_doubles(folder: Path, split: str, files: Sequence[Path]) -> None:
    """Two files with the same rows in two formats would double them."""
    sources: dict[tuple[Path, str, str], Path] = {}
    for file in files:
        shard = _SHARD.fullmatch(file.stem)
        part = shard["total"] if shard else file.stem if file.parent == folder else ""
        sources.setdefault((file.parent, part, file.suffix), file)
    if len(sources) > 1:
        names = " and ".join(str(file.relative_to(folder)) for file in list(sources.values())[:2])
        raise DataError(f"the folder {folder} has the split {split!r} twice, as {names}: keep one of them there")


_INNER = ("main", "socratic", "data", "distractor")


def _one_of(suffixes: Sequence[str]) -> str:
    return " or ".join([", ".join(suffixes[:-1]), suffixes[-1]] if len(suffixes) > 1 else suffixes)


def _split_word(name: str) -> str:
    """The split that a file's name speaks of, "" where it speaks of none."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((_SPLIT_WORDS[word] for word in words if word in _SPLIT_WORDS), "")


def file_stamps(files: Sequence[Path]) -> tuple[Stamp, ...]:
    """The state of some files, as a key of what was read from them.

    Raises:
        DataError: One of them is not there, as behind a link that leads nowhere.
    """
    stats = []
    for file in files:
        try:
            stats.append((file.resolve(strict=True), file.stat()))
        except (OSError, RuntimeError, ValueError) as e:
            broken = " (a link that leads nowhere)" if file.is_symlink() else ""
            raise DataError(f"{file}: the file cannot be read{broken}: {_reason(e)}") from e
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in stats)


def read_rows(path: Path) -> Iterator[tuple[Any, str]]:
    """The raw rows of a .jsonl, .json (an array) or .parquet file, each with where it stands for error messages.

    Raises:
        DataError: The file is of another type, or broken; the message has the file and the line or row.
        MissingExtraError: A parquet file needs pandas and pyarrow.
    """
    readers: dict[str, Callable[[Path], Iterator[tuple[Any, str]]]] = {
        ".parquet": _read_parquet,
        ".json": _read_array,
        ".jsonl": _read_lines,
    }
    if path.suffix not in readers:
        raise DataError(f"{path}: expected a .jsonl, .json or .parquet file")
    try:
        yield from readers[path.suffix](path)
    except OSError as e:
        raise DataError(f"{path}: the file cannot be read: {_reason(e)}") from e


def _read_lines(path: Path) -> Iterator[tuple[Any, str]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                yield json.loads(line.decode("utf-8-sig")), where
            except UnicodeDecodeError as e:
                raise DataError(f"{where}: not UTF-8 text ({e.reason} at byte {e.start})") from e
            except (ValueError, RecursionError) as e:  # an integer of over 4,300 digits is a plain ValueError
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


def _read_array(path: Path) -> Iterator[tuple[Any, str]]:
    """The elements of a JSON array, decoded one by one; a file with an object a line is read too."""
    decoder = json.JSONDecoder()
    number = 0
    with path.open(encoding="utf-8-sig") as file:
        try:
            buffer = file.read(_CHUNK).lstrip()
            if buffer[:1] == "{":
                yield from _read_lines(path)
                return
            if buffer[:1] != "[":
                raise DataError(f"{path}: expected a JSON array of rows, found {buffer[:40]!r}")
            position, ended = 1, False
            while True:
                while position < len(buffer) and buffer[position] in " \t\r\n,":
                    position += 1
                if buffer[position : position + 1] == "]":
                    return
                try:
                    value, end = decoder.raw_decode(buffer, position)
                    if not ended and end == len(buffer):
                        raise json.JSONDecodeError("a number may go on", buffer, end)
                except (ValueError, RecursionError) as e:
                    if ended:
                        raise DataError(f"{path}, row {number + 1}: not JSON ({e})") from e
                    # Twice as much each time: a row of any length costs no more than twice its reading.
                    more = file.read(max(_CHUNK, len(buffer) - position))
                    ended = not more
                    buffer, position = buffer[position:] + more, 0
                    continue
                number += 1
                yield value, f"{path}, row {number}"
                position = end
        except UnicodeDecodeError as e:
            raise DataError(f"{path}, after row {number}: not UTF-8 text ({e.reason})") from e


def _check_replaceable(target: Path) -> None:
    """Only a folder that is empty or has row files of its own may be replaced: anything else is someone's work."""
    if not target.is_dir():
        raise DataError(f"{target} is a file; prepared data is a folder, name another place")
    inside = list(target.iterdir())
    if inside and not any(file.suffix in (".jsonl", ".json", ".parquet") for file in inside):
        raise DataError(f"{target} holds other things than prepared data, and would be replaced: name another place")


@contextlib.contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A new folder to write into, which takes the place of `target` in one step where the block ends well.

    Raises:
        DataError: The place cannot be written to.
    """
    try:
        if target.exists():
            _check_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}-", dir=target.parent))
    except OSError as e:
        raise DataError(f"{str(target)[:200]}: the data cannot be written there: {_reason(e)}") from e
    try:
        yield temporary
        temporary.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
            try:
                os.replace(target, old / "old")
                os.replace(temporary, target)
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, target)
    except OSError as e:
        raise DataError(f"{str(target)[:200]}: the data cannot be written there: {_reason(e)}") from e
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find_local_splits(path: Path, *, task: str, suffixes: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    """The files to prepare by split: the one that a file's name speaks of, where no other file's does.

    A single file whose name speaks of none is "train"; in a folder it keeps its name.

    Raises:
        DataError: There is nothing at the path.
    """
    path = given_path(str(path))
    if not path.exists():
        raise DataError(f"there is no file or folder {str(path)!r} to prepare {task} from")
    if path.is_file():
        return {_split_word(path.stem) or "train": (path,)}
    splits = find_splits(path, suffixes)
    words = [_split_word(name) for name in splits]
    return {
        word if word and words.count(word) == 1 else name: splits[name]
        for name, word in zip(splits, words, strict=True)
    }


def fetch_splits(
    name: str, config: str | None, *, task: str, data_files: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The splits of a data set on the Hugging Face hub, by name; of all its files, or of those named for each split.

    Raises:
        DataError: It cannot be fetched.
        MissingExtraError: Fetching needs Hugging Face's `datasets`.
    """
    try:
        from datasets import load_dataset
    except ImportError as e:
        raise MissingExtraError("datasets", extra="data") from e
    try:
        loaded = load_dataset(name, config, **({"data_files": dict(data_files)} if data_files else {}))
    except (OSError, ValueError, RuntimeError) as e:
        raise DataError(
            f"could not fetch {name} from the Hugging Face hub ({type(e).__name__}: {str(e)[:200]}); without a "
            f"connection, give the released files: agentr1 prepare {task} --from PATH"
        ) from e
    return {str(split): rows for split, rows in loaded.items()}
