"""Writes episodes as an HTML page: a list with filters, and every step of each episode.

The page holds the rows of its list and the episodes, each in compressed chunks; the browser opens a chunk of episodes
when one of them is viewed. Beyond `_INSIDE` bytes the episodes lie in files beside the page, which a browser loads in
frames: a hundred thousand episodes open nearly as fast as ten. Everything in an episode is shown as plain text.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import secrets
import shlex
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent_envs.episodes.curves import read_run
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines, move_folder, replacing
from agent_envs.viewer.page import DATA, data_page, inert_json, plain_json, template
from agent_envs.viewer.shape import FIELDS, Numbered, RowMaker, origins, shown_episode

__all__ = ["file_names", "numbered_records", "training_curves", "write_view"]

_PER_CHUNK = 20  # episodes
_ROWS = 5000  # rows of the list that are packed together
_INSIDE = 32 << 20  # packed bytes of episodes that a page holds itself
_MOST_POINTS = 500  # of a curve, about the pixels of its picture
_BESIDE = 1 << 20  # packed bytes of a file beside the page
_DATA_FILE = re.compile(r"\d+\.html")


def numbered_records(paths: Sequence[Path]) -> Iterator[Numbered]:
    """Yield the episodes of files in order. A DataError names the file and the line that is not an episode."""
    for origin in origins(paths):
        for line, record in JSONLines(origin.path).numbered():
            if not isinstance(record.get("steps"), list):
                raise DataError(f"{origin.path}, line {line}: not an episode: expected an object with steps")
            yield Numbered(record, origin, line)


def write_view(
    episodes: Iterable[Numbered],
    path: str | os.PathLike[str],
    *,
    title: str = "Episodes",
    shaper: Callable[[Numbered], Mapping[str, Any]] = shown_episode,
    curves: Sequence[Mapping[str, Any]] = (),
    inside: int = _INSIDE,
) -> int:
    """Write the page, and files beside it in ``NAME_files`` if the episodes are many.

    Args:
        episodes: The episodes in the order of the list.
        path: The page; it appears whole or not at all.
        title: The page's title.
        shaper: Makes what the page shows of an episode; by default without answers and texts of tokens.
        curves: What `training_curves` returned.
        inside: Most packed bytes of episodes that the page holds itself.

    Returns:
        The number of episodes.

    Raises:
        ConfigError: ``NAME_files`` is there and holds something else.
        DataError: A record is not an episode.
    """
    target = Path(path)
    beside = target.with_name(f"{target.name.removesuffix('.html')}_files")
    _check_replaceable(beside)
    rows: list[list[Any]] = []
    files: dict[int, Path] = {}
    before, _, after = template("view", sources="img-src data:; frame-src 'self' file:").partition(DATA)
    with ExitStack() as stack:
        partial = stack.enter_context(replacing(target))
        out = stack.enter_context(partial.open("w", encoding="utf-8"))
        build = secrets.token_hex(8)
        store = _Store(build, stack, inside, beside)
        for chunk in _packed(_lines(episodes, shaper, rows, files)):
            store.add(chunk)
        store.finish()
        meta = {
            "title": title, "fields": FIELDS, "count": len(rows), "per_chunk": _PER_CHUNK, "build": build,
            "frames": store.frames, "frame_path": f"{beside.name}/", "files": file_names(files), "curves": list(curves),
        }  # fmt: skip
        out.write(before)
        for number, start in enumerate(range(0, len(rows), _ROWS)):
            out.write(_data(f"rows{number}", _pack([plain_json(row) for row in rows[start : start + _ROWS]])))
        for number, chunk in enumerate(store.inside):
            out.write(_data(f"chunk{number}", chunk))
        out.write(f'<script type="application/json" id="meta">{inert_json(meta)}</script>\n')
        out.write(after)
        out.close()
        if store.folder is not None:
            move_folder(store.folder, beside)
        elif beside.exists():
            shutil.rmtree(beside)  # of the page that is replaced
    return len(rows)


class _Store:
    """The packed episodes: within the page as long as they are few, else in files beside it."""

    def __init__(self, build: str, stack: ExitStack, most_inside: int, beside: Path) -> None:
        self.inside: list[str] = []
        self.frames: list[int] = []
        """The first chunk of each file beside the page."""
        self.folder: Path | None = None
        self._build, self._stack, self._most, self._beside = build, stack, most_inside, beside
        self._waiting: list[str] = []
        self._chunks = self._size = 0

    def add(self, chunk: str) -> None:
        self._size += len(chunk)
        if self.folder is None:
            self.inside.append(chunk)
            if self._size <= self._most:
                return
            self.folder = self._beside.with_name(f".{self._beside.name[:100]}-{self._build}")
            self.folder.mkdir()
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)  # what an error leaves
            chunks, self.inside, self._size = self.inside, [], 0
            for earlier in chunks:
                self.add(earlier)
            return
        self._waiting.append(chunk)
        if self._size >= _BESIDE:
            self._write()

    def finish(self) -> None:
        if self._waiting:
            self._write()

    def _write(self) -> None:
        assert self.folder is not None
        text = data_page("\n".join([self._build, *self._waiting]))
        (self.folder / f"{len(self.frames)}.html").write_text(text, encoding="ascii")
        self.frames.append(self._chunks)
        self._chunks += len(self._waiting)
        self._waiting, self._size = [], 0


def _check_replaceable(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir() or not all(_DATA_FILE.fullmatch(p.name) for p in folder.iterdir()):
        raise ConfigError(
            f"{folder} is where the page keeps its episodes, and holds something else; choose another --out"
        )


def _data(name: str, packed: str) -> str:
    return f'<script type="text/plain" id="{name}">{packed}</script>\n'


def _lines(
    episodes: Iterable[Numbered],
    shaper: Callable[[Numbered], Mapping[str, Any]],
    rows: list[list[Any]],
    files: dict[int, Path],
) -> Iterator[str]:
    """Yield what the page shows of each episode as a line of JSON; its row and its file are noted."""
    maker = RowMaker()
    for episode in episodes:
        shown = shaper(episode)
        rows.append(maker.row(shown, episode.origin, episode.line))
        files[episode.origin.number] = episode.origin.path
        yield plain_json(shown)


def _packed(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines in compressed chunks, in order. Threads compress while the next lines are made."""
    waiting: deque[Future[str]] = deque()
    with ThreadPoolExecutor(max_workers=2) as pool:
        while chunk := list(itertools.islice(lines, _PER_CHUNK)):
            waiting.append(pool.submit(_pack, chunk))
            if len(waiting) > 8:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


def _pack(lines: Sequence[str]) -> str:
    return base64.b64encode(zlib.compress("\n".join(lines).encode("ascii"), 1)).decode("ascii")


def file_names(files: Mapping[int, Path]) -> dict[int, str]:
    """Return the names of files as a shell takes them; "" for one that nobody should paste."""
    names = {number: str(path) for number, path in files.items()}
    return {number: shlex.quote(name) if name.isprintable() else "" for number, name in names.items()}


def training_curves(sources: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Return the curves of the sources that are folders of training runs, to be drawn.

    Each has ``run``, its name, and ``curves``: steps and values by phase ("training", "held-out") and measure, of a
    long run as many as can be told apart.
    """
    found = []
    for source in map(Path, sources):
        if (source / "metrics.jsonl").is_file():
            try:
                run = read_run(source, episodes=False)
            except DataError:  # no metrics yet, or a file that says something else by this name
                continue
            curves = {
                phase: {name: _thinned(curve) for name, curve in measures.items()}
                for phase, measures in run.curves.items()
            }
            found.append({"run": run.name, "curves": curves})
    return found


def _thinned(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return points of a curve at equal distances, its last one included."""
    return [*curve[: -1 : -(-len(curve) // _MOST_POINTS)], curve[-1]]
