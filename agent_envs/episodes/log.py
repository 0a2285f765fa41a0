"""A folder of episodes that grows as they end, and loses none of them if the process is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agent_envs.episodes.record import Episode
from agent_envs.episodes.run_folder import keep_settings, locked_folder
from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.files import JSONLines, write_text

__all__ = ["EpisodeLog"]


class EpisodeLog:
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
        with ExitStack() as stack:
            stack.enter_context(locked_folder(self.folder))
            run = self.folder / "run.json"
            if not run.exists() and self.path.exists() and self.path.stat().st_size:
                raise ConfigError(f"{self.path} holds episodes of an unknown run; choose another folder")
            with _writing(run):
                keep_settings(run, settings)
            self._rows.append()  # creates the file, or removes a half-written line
            self._open = stack.pop_all()

    def read(self) -> Iterator[tuple[Episode, dict[str, Any]]]:
        """Yield each episode with the row that holds it and its extra values, in the order in which they ended.

        Raises:
            DataError: A line is not an episode; names the file and the line.
        """
        for number, row in self._rows.numbered():
            try:
                yield Episode.from_dict(row), row
            except ValueError as e:
                raise DataError(f"{self.path}, line {number}: not an episode: {e}") from e

    def append(self, episode: Episode, **extra: Any) -> None:
        """Write an episode, with extra values beside its own fields. Once this returns, it is in the file.

        Raises:
            BackendError: The file cannot be written, for example because the disk is full.
        """
        with _writing(self.path):
            self._rows.append({**episode.to_dict(), **extra})

    def drop(self, unwanted: Callable[[Episode], bool]) -> int:
        """Remove episodes and return how many. The file is replaced in one go, so a kill leaves the old or the new one.

        Raises:
            BackendError: The new file cannot be written.
        """
        dropped = 0

        def kept() -> Iterator[dict[str, Any]]:
            nonlocal dropped
            for episode, row in self.read():
                if unwanted(episode):
                    dropped += 1
                else:
                    yield row

        with _writing(self.path):
            self._rows.replace(kept())
        return dropped

    def save(self, name: str, data: Mapping[str, Any]) -> None:
        """Write a JSON file into the folder, whole or not at all.

        Raises:
            BackendError: It cannot be written.
        """
        with _writing(self.folder / name):
            write_text(self.folder / name, json.dumps(data, indent=1, default=str) + "\n")

    def close(self) -> None:
        """Let other processes use the folder."""
        self._open.close()

    def __enter__(self) -> EpisodeLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BackendError(f"{path} cannot be written: {e.strerror}") from e
