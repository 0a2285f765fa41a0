"""The folder of a run that can be resumed: one process at a time uses it, with the settings it began with.

A folder of episodes grows as they end, and loses none of them if the process is killed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agent_envs.episodes.record import Episode, stored_episodes, stored_row
from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.files import FileLock, JSONLines, read_object, write_text
from agent_envs.pictures.folder import PictureFolder

_log = logging.getLogger(__name__)


@contextmanager
def locked_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Create the folder if needed and keep other processes out of it until the block ends.

    Raises:
        ConfigError: The folder cannot be written to, or another process is using it.
    """
    path = Path(folder)
    try:
        lock = FileLock(path / ".lock", wait=False)
    except BlockingIOError as e:
        raise ConfigError(f"another process is using {path}; wait for it or choose another folder") from e
    except (OSError, ValueError) as e:  # a null byte in its name, say
        raise ConfigError(f"cannot write to the folder {path}: {getattr(e, 'strerror', e)}") from e
    with lock:
        yield path


def read_settings(path: Path) -> dict[str, Any] | None:
    """Return the settings in a run's file, None if there is no such file; a DataError if it holds something else."""
    return read_object(path, "a run's settings") if path.exists() else None


def keep_settings(
    path: Path, settings: Mapping[str, Any], *, may_change: Collection[str] = (), writes: Collection[str] = ()
) -> None:
    """Write a run's settings to a file, or compare them with those already in it.

    Args:
        path: The file, directly in the run's folder.
        settings: Values that JSON can hold; others are written as text.
        may_change: Settings that may differ when the run is resumed, such as its length; the file gets the new values.
            `versions` always may; a difference is logged.
        writes: Names in the folder that the run writes; a folder without settings must have none of them. Where
            there is nothing but settings yet, as after a wrong name of a model, others take their place.

    Raises:
        ConfigError: The folder holds a run with other settings (the message lists the differences), or files that the
            run would replace and no settings.
        DataError: The file cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.json")
    ...     keep_settings(path, {"seed": 0, "steps": 10}, may_change={"steps"})
    ...     keep_settings(path, {"seed": 0, "steps": 20}, may_change={"steps"})
    ...     json.loads(path.read_text())
    {'seed': 0, 'steps': 20}
    """
    new = json.loads(json.dumps(dict(settings), default=str))
    old = read_settings(path)
    written = [name for name in writes if os.path.lexists(path.parent / name)]
    if old is None and written:
        names = f"{', '.join(written)} without {path.name}"
        raise ConfigError(f"{path.parent} holds files of an unknown run: {names}; choose another folder")
    if old is not None and (not writes or {*os.listdir(path.parent)} - {path.name, ".lock"}):
        if old.get("versions", {}) != new.get("versions", {}):
            _log.warning("%s: begun with %s, resumed with %s", path, old.get("versions"), new.get("versions"))
        changed = [
            f"{name} was {old.get(name)!r}, now {new.get(name)!r}"
            for name in sorted({*old, *new} - {*may_change, "versions"})
            if old.get(name) != new.get(name)
        ]
        if changed:
            raise ConfigError(
                f"{path.parent} holds a run with other settings ({'; '.join(changed)}); choose another folder, delete "
                f"this one, or edit {path} if the difference does not matter"
            )
        if old == new:
            return
    write_text(path, json.dumps(new, indent=1) + "\n")


class EpisodeLog(AbstractContextManager["EpisodeLog", None]):
    """The folder of a run: its settings in `run.json`, and `episodes.jsonl` with a line per episode.

    One process at a time may have a folder open; use it in a `with` statement.

    Args:
        folder: The folder, created if needed.
        settings: What must be the same when the run is resumed: values that JSON can hold; others become text.

    Raises:
        ConfigError: The folder cannot be written to, another process is using it, or it holds something else: a run
            with other settings, or episodes without settings.
        DataError: A file in it cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, EpisodeLog(folder, {"seed": 0}) as log:
    ...     list(log.read())
    []
    """

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "episodes.jsonl"
        self._rows = JSONLines(self.path)
        self._pictures = PictureFolder(self.path)
        with ExitStack() as stack:
            stack.enter_context(locked_folder(self.folder))
            run = self.folder / "run.json"
            with _writing(run):
                keep_settings(run, settings, writes=("episodes.jsonl", "summary.json"))
            self._rows.append()  # creates the file, or removes a half-written line
            self._open = stack.pop_all()

    def read(self) -> Iterator[tuple[Episode, dict[str, Any]]]:
        """Return what `stored_episodes` yields, in the order in which the episodes ended."""
        return stored_episodes(self.path)

    def append(self, episode: Episode, **extra: Any) -> None:
        """Write an episode, with extra values beside its own fields. Once this returns, it is in the file.

        A BackendError says that the file cannot be written, for example because the disk is full.
        """
        with _writing(self.path):
            self._rows.append(stored_row(self._pictures, episode, **extra))

    def drop(self, unwanted: Callable[[Episode], bool]) -> None:
        """Remove episodes. The file is replaced in one go: a kill or a BackendError leaves the old or the new one."""
        with _writing(self.path):
            self._rows.replace(row for episode, row in self.read() if not unwanted(episode))

    def save(self, name: str, data: Mapping[str, Any]) -> None:
        """Write a JSON file into the folder, whole or not at all; a BackendError if it cannot be written."""
        with _writing(self.folder / name):
            write_text(self.folder / name, json.dumps(data, indent=1, default=str) + "\n")

    def __exit__(self, *_: object) -> None:
        self._open.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BackendError(f"{path} cannot be written: {e.strerror}") from e


_OTHER = ("metrics.jsonl", "starts.jsonl")  # files of a run folder that hold no episodes


def episode_paths(sources: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the episode files that are named or are in the named folders, compressed ones (.jsonl.gz) included.

    Raises:
        ConfigError: A path does not exist, or a folder has no such files.
    """
    paths: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            patterns = (f"{folder}*.jsonl{suffix}" for folder in ("", "episodes/") for suffix in ("", ".gz"))
            files = sorted(path for pattern in patterns for path in source.glob(pattern) if path.name not in _OTHER)
            if not files:
                raise ConfigError(f"{source}: there is no .jsonl file of episodes in this folder")
            paths += files
        elif source.is_file():
            paths.append(source)
        else:
            raise ConfigError(f"{source}: there is no such file or folder")
    return paths


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the episodes of a file as ``Episode.to_dict`` wrote them, each with the number of its line.

    Raises:
        DataError: The file cannot be read, or a line is not an episode; names the file and the line. An incomplete last
            line is skipped.
    """
    for number, record in JSONLines(path).numbered():
        if not isinstance(record.get("steps"), list):
            raise DataError(f"{path}, line {number}: not an episode: expected an object with steps")
        yield number, record
