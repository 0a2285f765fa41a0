"""The server behind `agentr1 view --serve`: the page of a run that goes on."""

from __future__ import annotations

from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import ConfigError
from agent_envs.viewer.feed import EpisodeFeed
from agent_envs.viewer.server import PageServer
from agent_envs.viewer.shape import FIELDS
from agent_envs.viewer.write import file_names

__all__ = ["live_server"]

_ROWS = 2000  # of an answer
_LONGEST = 1000  # characters that are looked for


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
    - ``GET /episode?generation=G&number=N``: what the page shows of an episode;
    - ``GET /search?generation=G&words=TEXT&first=N``: ``found``, and ``next`` to go on with, -1 at the end.

    Where the generation is not the feed's, the answer to ``/news`` begins anew, and the others are refused.
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

    def episode(given: dict[str, Any]) -> Any:
        _same_generation(given)
        return feed.episode(_number(given, "number"))

    def search(given: dict[str, Any]) -> dict[str, Any]:
        _same_generation(given)
        found, following = feed.search(str(given.get("words", ""))[:_LONGEST], _number(given, "first"))
        return {"found": found, "next": following}

    def _same_generation(given: dict[str, Any]) -> None:
        if _number(given, "generation") != feed.generation:
            raise ConfigError("the files have been replaced; the page reads them again")

    meta = {"title": title, "fields": FIELDS, "live": True, "pause": pause}
    asked = {"news": news, "episode": episode, "search": search}
    return PageServer("view", meta, asked=asked, host=host, port=port, token=token)


def _number(given: dict[str, Any], name: str) -> int:
    text = str(given.get(name, ""))
    if not text.isdecimal() or len(text) > 15:
        raise ConfigError(f"{name} must be a number, got {shown(text)}")
    return int(text)
