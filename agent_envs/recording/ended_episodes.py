"""The episodes that have ended: a file of them, and an index by which it need not be read again at every start."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from agent_envs.episodes.record import Episode
from agent_envs.errors import DataError
from agent_envs.files import JSONLines

__all__ = ["EndedEpisodes"]

_log = logging.getLogger(__name__)


class EndedEpisodes:
    """``episodes.jsonl`` and what its episodes were ended by. One thread at a time.

    After long runs the file has gigabytes. The index beside it has a short line per episode: its name, what ended it
    and where its line lies. It is only a memory: what it lacks is read from the file, and where it does not fit the
    file, because somebody has edited that, all of the file is read.

    Args:
        path: The file of episodes.
        index: The index.

    Raises:
        DataError: The file holds something else than episodes.
        OSError: The index cannot be written.
    """

    def __init__(self, path: Path, index: Path) -> None:
        self._path, self._index = path, index
        self._rows, self._entries = JSONLines(path), JSONLines(index)
        self._digests: dict[str, str | None] = {}
        self._end = 0  # bytes of the file that have been taken in
        if not path.exists():
            index.unlink(missing_ok=True)
            return
        if not self._remembered():
            self._digests, self._end = {}, 0
            index.unlink(missing_ok=True)
        self._read_on()

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, episode_id: object) -> bool:
        return episode_id in self._digests

    def digest(self, episode_id: str) -> str | None:
        """The `EpisodeEnd.digest` of what ended an episode; None where that is not known."""
        return self._digests.get(episode_id)

    def add(self, record: Episode, digest: str) -> None:
        """Write an episode down.

        Raises:
            OSError: It cannot be written; it has not ended then.
        """
        self._rows.append(record.to_dict())
        begin, self._end = self._end, self._path.stat().st_size
        self._digests[record.episode_id] = digest
        try:
            self._entries.append(_entry(record.episode_id, digest, begin, self._end))
        except OSError as e:
            _log.warning("%s cannot be written, the next start reads all episodes: %s", self._index, e)

    def _remembered(self) -> bool:
        """Take in the index; whether it fits the file as far as it goes."""
        entry, size = None, self._path.stat().st_size
        try:
            for _, entry in self._entries.after():
                if entry["begin"] != self._end or not self._end < entry["end"] <= size:
                    return False
                self._digests[entry["episode_id"]], self._end = entry["ended_by"], entry["end"]
            if entry is None:
                return True
            with self._path.open("rb") as file:
                file.seek(entry["begin"])
                line = file.read(entry["end"] - entry["begin"])
            return line.endswith(b"\n") and json.loads(line)["episode_id"] == entry["episode_id"]
        except FileNotFoundError:
            return True
        except (DataError, ValueError, KeyError, TypeError):
            return False

    def _read_on(self) -> None:
        """Take in what the index lacks."""
        found = []
        for end, record in self._rows.after(self._end):
            try:
                name, digest = record["episode_id"], record["reset_info"].get("ended_by")
            except (KeyError, TypeError, AttributeError) as e:
                raise DataError(f"{self._path} holds a line that is no episode: {e!r}") from e
            found.append(_entry(name, digest, self._end, end))
            self._digests[name], self._end = digest, end
        if found:
            self._entries.append(*found)


def _entry(episode_id: str, digest: str | None, begin: int, end: int) -> dict[str, Any]:
    return {"episode_id": episode_id, "ended_by": digest, "begin": begin, "end": end}
