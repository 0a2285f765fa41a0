"""Tasks by split and index: what an environment draws from, and the rows of data files as such tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, DataError, TaskIndexError, needs_extra
from agent_envs.files import open_data, unpacked_limit
from agent_envs.json_stream import JSONStream
from agent_envs.per_process import Shared

T = TypeVar("T")

FileStamp = tuple[str, int, int]
"""A file's resolved path, its modification time in nanoseconds and its size: the key for caching what it holds."""


class TaskSource(Protocol):
    """The tasks of one split, by index."""

    @property
    def name(self) -> str:
        """Where the tasks come from: "generated", "official" or the path as given."""

    @property
    def split(self) -> str:
        """The split's name ("all" for a single file)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


def wrong_return(owner: object, method: str, expected: str, value: object) -> ConfigError:
    """Return the error for a method of the user's that returned something else than expected."""
    return ConfigError(f"{type(owner).__name__}.{method} must return {expected}; got {shown(value)}")


def checked_tasks(env: object, tasks: TaskSource) -> TaskSource:
    """Return what an environment's ``open_tasks`` returned; an error says that it is no tasks, or none at all."""
    if not all(hasattr(tasks, name) for name in ("__len__", "__getitem__", "name", "split")):
        raise wrong_return(env, "open_tasks", "tasks with a name and a split, such as ListedTasks", tasks)
    if not len(tasks):
        raise DataError(f"the split {tasks.split!r} of {type(env).__name__} has no tasks")
    return tasks


def task_id_of(task: Any) -> str:
    """Return a task's ``task_id``; a ConfigError says that it has none."""
    try:
        return task.task_id
    except AttributeError as e:
        raise ConfigError(f"a task must have a task_id, as a Problem has; got {shown(task)}") from e


class IndexedTasks(Generic[T], Shared):
    """Base class of the tasks of one split. Subclasses implement ``__len__`` and ``get``.

    Args:
        name: Where the tasks come from, for ``info["source"]``: "generated", "official" or the path as given.
        split: The split's name.
        cache: How many of the latest tasks are kept, for tasks that are costly to make.
    """

    documents = 0
    """How many documents, products or papers the tasks search; 0 if none, or if the arguments say it."""

    def __init__(self, name: str, split: str, *, cache: int = 0) -> None:
        self.name = name
        self.split = split
        self._get = functools.lru_cache(cache)(self.get) if cache else self.get

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, index: int) -> T:
        """Return the task at an index that is known to be within the split."""
        raise NotImplementedError

    def content(self, index: int) -> Any:
        """Return all that makes up a task, answers included: what `agentr1 eval` takes the digest of its panel over.

        By default that is the task itself. If a task only says where its content is, override this; None is content
        that is not known.
        """
        return self[index]

    def __getitem__(self, index: int) -> T:
        if not 0 <= index < len(self):
            raise TaskIndexError(f"split {self.split!r} has tasks 0 to {len(self) - 1}, got index {index}")
        return self._get(int(index))

    def __iter__(self) -> Iterator[T]:
        return map(self._get, range(len(self)))


class ListedTasks(IndexedTasks[T]):
    """Tasks that are all there, such as the rows of a file.

    Args:
        tasks: The tasks in order.
        name, split: As for `IndexedTasks`.
    """

    def __init__(self, tasks: Sequence[T], name: str, split: str) -> None:
        super().__init__(name, split)
        self._tasks = tuple(tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, index: int) -> T:
        return self._tasks[index]


class FileTasks(ListedTasks[T]):
    """The rows of files as tasks, read once per process and again when a file changes.

    A pickle holds the paths, and the rows are read again where it is loaded.

    >>> import tempfile
    >>> def parse_row(row, where, task_id):
    ...     return (task_id, row["question"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.jsonl")
    ...     _ = file.write_text('{"question": "1 + 1"}')
    ...     FileTasks([file], parse_row, task="sums", split="train", name="official")[0]
    ('sums/train/0', '1 + 1')

    Args:
        files: The .jsonl, .json or .parquet files of the split, in order.
        parse_row: Makes a task from a row, a description of where the row is (for errors) and the task's id. It must be
            hashable and picklable, as functions of a module are; it raises DataError for a row it cannot use.
        task: First part of the task ids, which read TASK/SPLIT/INDEX.
        split, name: As for `IndexedTasks`.

    Raises:
        DataError: A file cannot be read, holds a bad row (the message names file and line), or all files are empty.
        MissingExtraError: A parquet file needs pyarrow.
    """

    def __init__(
        self, files: Sequence[Path], parse_row: Callable[[Any, str, str], T], *, task: str, split: str, name: str
    ) -> None:
        super().__init__(_parse_files(file_stamps(files), parse_row, f"{task}/{split}"), name, split)
        self._task = task
        self._files = tuple(files)
        self._parse_row = parse_row

    def __reduce__(self) -> tuple[Any, ...]:
        reopen = functools.partial(FileTasks, task=self._task, split=self.split, name=self.name)
        return reopen, (self._files, self._parse_row)


@functools.lru_cache(maxsize=16)
def _parse_files(stamps: tuple[FileStamp, ...], parse_row: Callable[[Any, str, str], T], prefix: str) -> tuple[T, ...]:
    rows = (pair for path, _, _ in stamps for pair in read_rows(Path(path)))
    tasks = tuple(parse_row(row, where, f"{prefix}/{index}") for index, (row, where) in enumerate(rows))
    if not tasks:
        raise DataError(f"there are no rows in {', '.join(path for path, _, _ in stamps)}")
    return tasks


def file_stamps(files: Sequence[Path]) -> tuple[FileStamp, ...]:
    """Return the current state of some files, as a key for what was read from them; a DataError if one is gone."""
    stats = []
    for file in files:
        try:
            stats.append((file.resolve(strict=True), file.stat()))
        except (OSError, RuntimeError, ValueError) as e:
            broken = " (broken symbolic link)" if file.is_symlink() else ""
            raise DataError(f"{file} cannot be read{broken}: {getattr(e, 'strerror', None) or e}") from e
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in stats)


def is_verl_row(row: Any) -> bool:
    """Return whether a row has the layout of verl's data sets, which Agent-R1's data release has too."""
    return isinstance(row, dict) and "prompt" in row and "reward_model" in row


def read_rows(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the raw rows of a .jsonl, .json or .parquet file, each with where it is, for error messages.

    A .jsonl or .json file holds one row after another, on a line each or on several, or an array of them.

    Raises:
        DataError: The file has another suffix or is corrupt; the message names the file and the line or row.
        MissingExtraError: A parquet file needs pyarrow.
    """
    try:
        if path.suffix == ".parquet":
            yield from _read_parquet(path)
        elif path.suffix in (".json", ".jsonl"):
            stream = JSONStream(path)
            for row in stream.rows():
                yield row, stream.where
        else:
            raise DataError(f"{path}: expected a .jsonl, .json or .parquet file")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror or e}") from e


def _read_parquet(path: Path) -> Iterator[tuple[Any, str]]:
    with needs_extra("data"):
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    with open_data(path) as file:
        left, number = unpacked_limit(file), 0
        try:
            for batch in ParquetFile(file).iter_batches(batch_size=64):
                left -= batch.nbytes
                if left < 0:
                    raise DataError(f"{path}, row {number + 1}: unpacks to far more than the file's size")
                for row in batch.to_pylist():
                    number += 1
                    yield row, f"{path}, row {number}"
        except (ArrowException, OSError) as e:
            raise DataError(f"{path}: not a readable parquet file ({e})") from e
