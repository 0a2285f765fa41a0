"""Follows the files of a run that goes on, and serves its page for `agentr1 view --serve`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agent_envs.checks import shown
from agent_envs.episodes.run_folder import episode_paths
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines, open_data
from agent_envs.viewer.server import PageServer
from agent_envs.viewer.shape import FIELDS, Numbered, Origin, RowMaker, origins
from agent_envs.viewer.write import file_names, plain_json, training_curves

_LOOK = 0.5  # seconds between two looks at the files
_BUSY = 1.0  # seconds that an answer may take before it has less than what was asked for


class _File(NamedTuple):
    """How far a file has been read."""

    stamp: tuple[int, int]
    """Device and inode: another file of this name has others."""
    offset: int
    lines: int


class _Place(NamedTuple):
    offset: int
    origin: Origin
    line: int


class EpisodeFeed:
    """The episodes in some files and folders, which may grow. Not for several threads at once.

    A file that is replaced or becomes shorter is another one: all rows are then read again, and `generation` changes.
    A file that cannot be read to its end, such as a broken one, is left where it is; `problem` says why.

    Args:
        sources: Files and folders as for ``agentr1 view``; packed files are left out. A folder may still be empty.
        shaper: Makes what the page shows of an episode.
    """

    def __init__(
        self, sources: Sequence[str | os.PathLike[str]], shaper: Callable[[Numbered], Mapping[str, Any]]
    ) -> None:
        self._sources = [Path(source) for source in sources]
        for source in self._sources:
            if not source.exists():
                raise ConfigError(f"{source}: there is no such file or folder")
        self._shaper = shaper
        self.generation = 0
        self._looked = self._curves_stamp = -1.0
        self._curves: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        self.generation += 1
        self.rows: list[list[Any]] = []
        """The rows of the list so far."""
        self.problem = ""
        """Why a file could not be read on, "" if all could."""
        self._places: list[_Place] = []
        self._files: dict[Path, _File] = {}
        self.numbers: dict[Path, int] = {}
        """The files' numbers in the rows."""
        self._maker = RowMaker()

    def look(self) -> bool:
        """Read what is new, for a second at most; returns whether there is more to read."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return False
        if any(self._replaced(path) for path in self._files):
            self._begin()
        self.problem = ""
        for origin in origins(self._paths()):
            number = self.numbers.setdefault(origin.path, len(self.numbers))
            try:
                for _ in self._read(origin._replace(number=number)):
                    if time.monotonic() - now > _BUSY:
                        return True
            except (OSError, DataError) as e:
                self.problem = f"{e}"
        self._looked = now
        return False

    def _paths(self) -> list[Path]:
        paths: list[Path] = []
        for source in self._sources:
            try:
                paths += [path for path in episode_paths([source]) if path.suffix == ".jsonl"]
            except ConfigError:  # a folder without episodes yet
                continue
        return paths

    def _replaced(self, path: Path) -> bool:
        try:
            stat = path.stat()
        except OSError:
            return True
        known = self._files[path]
        return (stat.st_dev, stat.st_ino) != known.stamp or stat.st_size < known.offset

    def _read(self, origin: Origin) -> Iterator[None]:
        """Add the episodes that a file has more than at the last look, yielding after each."""
        path = origin.path
        known = self._files.get(path)
        if known is None:
            stat = path.stat()
            known = self._files[path] = _File((stat.st_dev, stat.st_ino), 0, 0)
        if path.stat().st_size == known.offset:
            return
        for end, record in JSONLines(path).after(known.offset):
            line = known.lines + 1
            if not isinstance(record.get("steps"), list):
                raise DataError(f"{path}, line {line}: not an episode: expected an object with steps")
            shown = self._shaper(Numbered(record, origin, line))
            self.rows.append(self._maker.row(shown, origin, line))
            self._places.append(_Place(known.offset, origin, line))
            known = self._files[path] = _File(known.stamp, end, line)
            yield

    def episodes(self, first: int, count: int) -> list[Mapping[str, Any]]:
        """Return what the page shows of some episodes, read again from their files.

        Args:
            first: The number of the first.
            count: How many; fewer are returned at the end, and after a second.

        Raises:
            ConfigError: There is no such episode.
            DataError: A file has changed.
        """
        if not 0 <= first < len(self._places):
            raise ConfigError(f"there are episodes 0 to {len(self._places) - 1}, got {first}")
        began, shown = time.monotonic(), []
        for offset, origin, line in self._places[first : first + count]:
            try:
                with open_data(origin.path) as file:
                    file.seek(offset)
                    record = json.loads(file.readline())
            except (OSError, ValueError) as e:
                raise DataError(f"{origin.path}, line {line}: the file has changed: {e}") from e
            shown.append(self._shaper(Numbered(record, origin, line)))
            if time.monotonic() - began > _BUSY:
                break
        return shown

    def curves(self) -> tuple[list[dict[str, Any]], str]:
        """Return the current training curves, and their version, which changes when they do."""
        logs = [source / "metrics.jsonl" for source in self._sources]
        stamp = sum(log.stat().st_mtime for log in logs if log.is_file())
        if stamp != self._curves_stamp:
            self._curves_stamp, self._curves = stamp, training_curves(self._sources)
        return self._curves, plain_json(self._curves_stamp)


_ROWS = 2000  # of an answer
_CHUNK = 20  # episodes of an answer to a search


def live_server(
    feed: EpisodeFeed,
    title: str,
    *,
    pause: float = 2.0,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> PageServer:
    """Return a server of the page that follows a feed, and asks for news every `pause` seconds. Its requests:

    - ``GET /news?generation=G&rows=N&curves=V``: the rows after the first N, and the curves if V is not their version;
    - ``GET /episodes?generation=G&first=N&count=M``: what the page shows of the episodes from N on, M at most.

    Where the generation is not the feed's, the answer to ``/news`` starts over, and ``/episodes`` is refused.
    """

    def news(given: dict[str, Any]) -> dict[str, Any]:
        more = feed.look()
        first = _number(given, "rows") if _number(given, "generation") == feed.generation else 0
        curves, version = feed.curves()
        rows = feed.rows[first : first + _ROWS]
        return {
            "generation": feed.generation,
            "first": first,
            "rows": rows,
            "more": more or first + len(rows) < len(feed.rows),
            "files": file_names({number: path for path, number in feed.numbers.items()}),
            "curves": None if given.get("curves") == version else curves,
            "curves_version": version,
            "problem": feed.problem,
        }

    def episodes(given: dict[str, Any]) -> Any:
        if _number(given, "generation") != feed.generation:
            raise ConfigError("the files have been replaced; the page reads them again")
        return feed.episodes(_number(given, "first"), _number(given, "count"))

    meta = {"title": title, "fields": FIELDS, "live": True, "pause": pause, "per_chunk": _CHUNK}
    return PageServer("view", meta, asked={"news": news, "episodes": episodes}, host=host, port=port, token=token)


def _number(given: dict[str, Any], name: str) -> int:
    text = str(given.get(name, ""))
    if not text.isdecimal() or len(text) > 15:
        raise ConfigError(f"{name} must be a number, got {shown(text)}")
    return int(text)
