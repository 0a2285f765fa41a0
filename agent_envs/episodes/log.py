"""A file of episodes that grows as they end, and loses none when the process is killed at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from agent_envs.episodes.record import Episode
from agent_envs.errors import BackendError, ConfigError, DataError
from agent_envs.files import FileLock, JSONLines, write_text

__all__ = ["EpisodeLog"]


class EpisodeLog:
    """The folder of a run of episodes: `run.json` with its settings, `episodes.jsonl` with a line per episode.

    A line is written whole, or is the torn last one, which the next start removes. One process at a time may have a
    folder open.

    Args:
        folder: Where; made if it is not there.
        settings: What has to be the same for the run to be continued, as JSON-able types.

    Raises:
        ConfigError: The folder cannot be written to, is open elsewhere, or holds a run with other settings; says
            which.
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
        try:
            self._lock = FileLock(self.folder / ".lock", wait=False)
        except BlockingIOError as e:
            raise ConfigError(
                f"another process is at work in {self.folder}; wait for it or choose another folder"
            ) from e
        except OSError as e:
            raise ConfigError(f"{self.folder}: not a folder that can be written to: {e.strerror}") from e
        try:
            self._remember(json.loads(json.dumps(dict(settings), default=str)))
            self._rows.append()  # creates the file, or cuts off a half line
        except BaseException:
            self.close()
            raise

    def read(self) -> Iterator[tuple[Episode, dict[str, Any]]]:
        """The episodes so far with what was written beside them, in the order in which they ended.

        Raises:
            DataError: A line is no episode; names the file and the line.
        """
        for number, row in self._rows.numbered():
            try:
                yield Episode.from_dict(row), row
            except ValueError as e:
                raise DataError(f"{self.path}, line {number}: not an episode: {e}") from e

    def append(self, episode: Episode, **beside: Any) -> None:
        """Write an episode and JSON-able values beside its own fields. It is safe once this returns.

        Raises:
            BackendError: The file cannot be written: the disk is full, say.
        """
        with _writing(self.path):
            self._rows.append({**episode.to_dict(), **beside})

    def drop(self, unwanted: Callable[[Episode], bool]) -> int:
        """Remove episodes; how many. The file is replaced at once, so a kill leaves the old or the new one.

        Raises:
            BackendError: The new one cannot be written.
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
        """Let go of the folder."""
        self._lock.close()

    def __enter__(self) -> EpisodeLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _remember(self, settings: dict[str, Any]) -> None:
        path = self.folder / "run.json"
        if not path.exists():
            if self.path.exists() and self.path.stat().st_size:
                raise ConfigError(f"{self.path} holds episodes of something else; choose another folder")
            self.save(path.name, settings)
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
            changed = [
                f"{name} was {before.get(name)!r}, now {settings.get(name)!r}"
                for name in sorted({*before, *settings})
                if before.get(name) != settings.get(name)
            ]
        except (ValueError, AttributeError) as e:
            raise DataError(f"{path} cannot be read: {e}") from e
        if changed:
            raise ConfigError(
                f"{self.folder} holds a run with other settings ({'; '.join(changed)}); choose another folder, or, "
                f"where the difference does not matter, change it in {path}"
            )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise BackendError(f"{path} cannot be written: {e.strerror}") from e
