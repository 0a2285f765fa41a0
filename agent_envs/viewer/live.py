"""The server behind `agentr1 view --serve`: the page of a run that goes on."""

from __future__ import annotations

from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import ConfigError
from agent_envs.viewer.feed import EpisodeFeed
from agent_envs.viewer.server import PageServer
from agent_envs.viewer.shape import FIELDS
from agent_envs.viewer.write import file_names

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
        curves = feed.curves()
        rows = feed.rows[first : first + _ROWS]
        return {
            "generation": feed.generation,
            "first": first,
            "rows": rows,
            "more": more or first + len(rows) < len(feed.rows),
            "files": file_names(feed.files),
            "curves": None if given.get("curves") == feed.curves_version else curves,
            "curves_version": feed.curves_version,
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
