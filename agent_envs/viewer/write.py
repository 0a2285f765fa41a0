"""Writes episodes as an HTML page: a list with filters, and every step of each episode.

The page holds the rows of its list and the episodes, each in compressed chunks; the browser opens a chunk of episodes
when one of them is viewed. Everything in an episode is shown as plain text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import math
import os
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from agent_envs.episodes.curves import read_run
from agent_envs.episodes.run_folder import read_records
from agent_envs.errors import DataError
from agent_envs.files import replacing
from agent_envs.viewer.shape import FIELDS, Numbered, RowMaker, origins, shown_episode

DATA = "<!--DATA-->"
"""Where a template takes the data of the page."""

_TITLES = {"view": "Episodes", "play": "Play"}
_SCRIPTS = {
    "view": ("base", "data", "cards", "tokens", "curves", "list", "compare", "view"),
    "play": ("base", "cards", "scenes", "play"),
}


@functools.cache
def template(name: str, *, sources: str) -> str:
    """Return a page without its data, which goes where `DATA` stands.

    Args:
        name: "view" or "play".
        sources: Directives of the policy beyond script and style, such as ``"connect-src 'self'"``.
    """
    style = "\n".join(_asset(f"{part}.css") for part in ("base", name))
    script = '"use strict";\n' + "\n".join(_asset(f"{part}.js") for part in _SCRIPTS[name])
    page = _asset("frame.html")
    hashes = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    policy = f"default-src 'none'; {hashes}; {sources}; base-uri 'none'; form-action 'none'"
    parts = {"POLICY": policy, "TITLE": _TITLES[name], "STYLE": style, "SCRIPT": script}
    for place, text in ({"BODY": _asset(f"{name}.html")} | parts).items():
        before, _, after = page.partition(f"<!--{place}-->")
        page = before + text + after
    return page


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("agent_envs.viewer").joinpath("assets", name).read_text(encoding="utf-8")


def plain_json(value: Any) -> str:
    """Encode a value for a browser, whose JSON has no infinite numbers and no NaN: strings replace them.

    >>> plain_json([1.5, float("inf")])
    '[1.5,"inf"]'
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"))


def inert_json(value: Any) -> str:
    r"""Encode a value so that it can stand in a script element that holds data.

    >>> inert_json("</script>")
    '"\\u003c/script>"'
    """
    return plain_json(value).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_PER_CHUNK = 20  # episodes
_ROWS = 5000  # rows of the list that are packed together
_MOST_POINTS = 500  # of a curve, about the pixels of its picture


def numbered_records(paths: Sequence[Path]) -> Iterator[Numbered]:
    """Yield the episodes of files in order. A DataError names the file and the line that is not an episode."""
    for origin in origins(paths):
        for line, record in read_records(origin.path):
            yield Numbered(record, origin, line)


def write_view(
    episodes: Iterable[Numbered],
    path: str | os.PathLike[str],
    *,
    title: str = "Episodes",
    shaper: Callable[[Numbered], Mapping[str, Any]] = shown_episode,
    curves: Sequence[Mapping[str, Any]] = (),
) -> int:
    """Write the page.

    Args:
        episodes: The episodes in the order of the list.
        path: The page; it appears whole or not at all.
        shaper: Makes what the page shows of an episode; by default without answers and texts of tokens.

    Returns:
        The number of episodes.

    Raises:
        DataError: A record is not an episode.
    """
    rows: list[list[Any]] = []
    files: dict[int, Path] = {}
    maker, left = RowMaker(), iter(episodes)
    before, _, after = template("view", sources="img-src data:").partition(DATA)
    with replacing(Path(path)) as partial, partial.open("w", encoding="utf-8") as out:
        out.write(before)
        for number in itertools.count():
            chunk = []
            for episode in itertools.islice(left, _PER_CHUNK):
                chunk.append(shaper(episode))
                rows.append(maker.row(chunk[-1], episode.origin, episode.line))
                files[episode.origin.number] = episode.origin.path
            if not chunk:
                break
            out.write(_packed(f"chunk{number}", chunk))
        for number, start in enumerate(range(0, len(rows), _ROWS)):
            out.write(_packed(f"rows{number}", rows[start : start + _ROWS]))
        meta = {
            "title": title,
            "fields": FIELDS,
            "count": len(rows),
            "per_chunk": _PER_CHUNK,
            "files": file_names(files),
            "curves": list(curves),
        }
        out.write(f'<script type="application/json" id="meta">{inert_json(meta)}</script>\n')
        out.write(after)
    return len(rows)


def _packed(name: str, values: Iterable[Any]) -> str:
    lines = "\n".join(map(plain_json, values)).encode("ascii")
    packed = base64.b64encode(zlib.compress(lines, 1)).decode("ascii")
    return f'<script type="text/plain" id="{name}">{packed}</script>\n'


def file_names(files: Mapping[int, Path]) -> dict[int, str]:
    """Return the names of files as a shell takes them; "" for one that nobody should paste."""
    names = {number: str(path) for number, path in files.items()}
    return {number: shlex.quote(name) if name.isprintable() else "" for number, name in names.items()}


def training_curves(sources: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Return the curves of the sources that are folders of training runs, to be drawn.

    Each has ``run``, its name, and ``curves``: steps and values by phase ("training", "held-out") and measure, of a
    long run as many as can be told apart.
    """
    charts = []
    for source in map(Path, sources):
        if (source / "metrics.jsonl").is_file():
            try:
                run = read_run(source, episodes=False)
            except DataError:  # no metrics yet, or a file that says something else by this name
                continue
            curves = {  # points at equal distances, the last one included
                phase: {name: [*c[: -1 : -(-len(c) // _MOST_POINTS)], c[-1]] for name, c in measures.items()}
                for phase, measures in run.curves.items()
            }
            charts.append({"run": run.name, "curves": curves})
    return charts
