"""The state of an episode of paper search: the pool of papers, the tools that fill it, and how papers are shown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent_envs.envs.papersearch.reward import MIN_SCORE, OK, REPEATED, UNKNOWN
from agent_envs.errors import BackendError, NotRecordedError, UnknownPaperError
from agent_envs.messages import ToolCall
from agent_envs.retrieval.papers import Paper, PaperBackend, within_date
from agent_envs.text import clean_text
from agent_envs.tools import Tool
from agent_envs.tools.base import string_parameter
from agent_envs.tools.search import check_query

MAX_SHOWN_QUERY = 300
_log = logging.getLogger(__name__)
_WAIT = 3600.0  # seconds; network backends have their own limits, which tell a broken service from a bad call


@dataclass(slots=True)
class Pooled:
    """A paper in the pool."""

    paper: Paper
    score: float
    """The selector's score for the query."""
    expanded: bool = False
    """Whether its references and citations were requested."""


@dataclass(slots=True)
class PaperState:
    """The state of an episode."""

    pool: dict[str, Pooled] = field(default_factory=dict)
    """The papers by id, in the order in which they were found."""
    searched: set[str] = field(default_factory=set)
    """The queries so far, as they were written."""
    history: list[str] = field(default_factory=list)
    """The calls that ran: "[Search] query" and "[Expand] id"."""
    shown: list[str] = field(default_factory=list)
    """The ids of the papers shown with their abstracts, in order."""
    new: list[Pooled] = field(default_factory=list)
    """The papers that joined the pool in the last turn."""
    problems: list[str] = field(default_factory=list)
    """The error texts of the last turn."""
    turns: int = 0
    """The number of texts that the policy has written."""
    gains: list[int] = field(default_factory=list)
    """The number of new papers of each turn with a call."""

    def named(self, written: str) -> Pooled | None:
        """Return the paper of the pool with an id as it was shown, with brackets or without, or None."""
        if written in self.pool:
            return self.pool[written]
        shown = one_line(written)
        forms = (shown, one_line(shown.removeprefix("[").removesuffix("]")))
        return next((pooled for name, pooled in self.pool.items() if one_line(name) in forms), None)

    def write_down(self, found: Found, longest: int | None) -> None:
        """Add a call to the history, with so many characters of what was asked; None for all."""
        if found.kind in ("search", "expand"):
            self.history.append(f"[{found.kind.capitalize()}] {one_line(found.asked)[:longest]}")

    def keep(self, found: Found, scores: dict[str, float]) -> list[Pooled]:
        """Record a call that ran; return the papers that it added to the pool, best first."""
        if found.kind == "search":
            self.searched.add(found.asked)
        elif found.kind == "expand":
            self.pool[found.asked].expanded = True
        new = []
        for paper in found.papers:
            if paper.id not in self.pool and scores[paper.id] >= MIN_SCORE:
                self.pool[paper.id] = Pooled(paper, scores[paper.id])
                new.append(self.pool[paper.id])
        self.new += new
        return sorted(new, key=lambda pooled: -pooled.score)

    def has_run(self, found: Found) -> bool:
        """Return whether the same call ran earlier in this turn. (The tools check the turns before.)"""
        if found.kind == "search":
            return found.asked in self.searched
        return found.kind == "expand" and self.pool[found.asked].expanded

    def ranked(self, expanded: bool | None = None) -> list[Pooled]:
        """Return the papers, best first, ties in the order found: all, or only those that were (not) expanded."""
        chosen = [p for p in self.pool.values() if expanded is None or p.expanded == expanded]
        return sorted(chosen, key=lambda p: -p.score)

    def listed(self, each: int) -> list[Pooled]:
        """Return the best few papers of both kinds in the released order: best first, of equals the largest id."""
        kinds = (sorted(self.ranked(kind), key=_by_score, reverse=True)[:each] for kind in (True, False))
        return sorted([*next(kinds), *next(kinds)], key=_by_score, reverse=True)


def _by_score(pooled: Pooled) -> tuple[float, str]:
    return pooled.score, pooled.paper.id


class Found(str):
    """An empty tool result that carries the tool, the call's argument, the status and the papers found."""

    kind: str
    asked: str
    status: str
    papers: tuple[Paper, ...]

    def __new__(cls, kind: str, asked: str, status: str, papers: Iterable[Paper] = ()) -> Found:
        self = super().__new__(cls)
        self.kind, self.asked, self.status, self.papers = kind, asked, status, tuple(papers)
        return self


def one_line(text: str) -> str:
    """Return a text in one line, so that an id or a title cannot imitate the lines of another paper."""
    return clean_text(" ".join(text.split()))


def render_papers(papers: Iterable[Pooled], abstract_words: int, cut: str = " ...") -> str:
    """Write papers as the policy sees them; `cut` follows on what is left of an abstract.

    >>> paper = Paper("p7", "On Parsing", "We parse. We do.")
    >>> print(render_papers([Pooled(paper, 0.874)], 2))
    [p7] (0.87) [NEW] On Parsing
    Abstract: We parse. ...
    """
    lines = []
    for pooled in papers:
        paper, mark = pooled.paper, "EXP" if pooled.expanded else "NEW"
        lines.append(f"[{one_line(paper.id)}] ({pooled.score:.2f}) [{mark}] {one_line(paper.title)}")
        if abstract_words:
            words = paper.abstract.split(None, abstract_words)
            abstract = " ".join(words[:abstract_words]) + (cut if len(words) > abstract_words else "")
            lines.append(f"Abstract: {abstract or '(none)'}")
    return "\n".join(lines)


class _PaperTool(Tool):
    """A tool that asks a backend."""

    def __init__(self, env: Any, backend: PaperBackend) -> None:
        self.env = env
        self.backend = backend
        self.blocking = backend.blocking
        self.timeout = _WAIT if self.blocking else None

    @property
    def before(self) -> str | None:
        """The date after which papers do not count; None as released."""
        return None if self.env.released else self.env.task.date or None

    def _in_time(self, ask: Callable[[], list[Paper]]) -> list[Paper]:
        try:
            papers = ask()
        except UnknownPaperError:  # a search service may know papers that the citation service does not
            papers = []
        except BackendError as e:
            if not self.env.released or isinstance(e, NotRecordedError):
                raise
            _log.warning("nothing was found, as released: %s", e)
            papers = []
        return [paper for paper in papers if within_date(paper.date, self.before)]


class SearchPapersTool(_PaperTool):
    """Searches for papers."""

    name = "search"
    description = "Search for papers on a topic; the best ones that are new join the pool."
    parameters = string_parameter("query", "What to search for, in a few words.")

    def call(self, *, query: str) -> Found:  # type: ignore[override]
        """Search, unless the same was searched for before."""
        check_query(query)
        if query in self.env.state.searched:
            return Found(self.name, query, REPEATED)
        papers = self._in_time(lambda: self.backend.search(query, self.env.top_k, self.before))
        return Found(self.name, query, OK, papers[: self.env.top_k])


class ExpandTool(_PaperTool):
    """Follows the citations of a paper in the pool."""

    name = "expand"
    description = "Get the references and the citations of a paper in the pool; those that are new join the pool."
    parameters = string_parameter("paper_id", "The id of a paper, as in [id].")

    def call(self, *, paper_id: str) -> Found:  # type: ignore[override]
        """Return the neighbours of a paper that was in the pool before this turn and was not expanded yet."""
        state = self.env.state
        pooled = state.pool.get(paper_id) if self.env.released else state.named(paper_id)
        if pooled is None:
            return Found(self.name, paper_id, UNKNOWN)
        paper = pooled.paper
        if pooled.expanded:
            return Found(self.name, paper.id, REPEATED)
        papers = self._in_time(lambda: self.backend.expand(paper.id))
        return Found(self.name, paper.id, OK, [each for each in papers if each.abstract or not self.env.released])


class FinishTool(Tool):
    """Ends the search."""

    name = "finish"
    description = "End the search: the pool is the answer."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}  # type: ignore[misc]

    def call(self) -> Found:  # type: ignore[override]
        """Do nothing: the environment ends the episode."""
        return Found(self.name, "", OK)


_ARGUMENTS = {"search": "query", "expand": "paper_id"}


def usable_calls(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return the calls that count as released: searches and expansions; their argument may be a bare string."""
    usable = []
    for call in calls:
        key = _ARGUMENTS.get(call.name, "")
        asked = call.arguments.get(key, call.arguments.get(""))
        if key and isinstance(asked, str) and asked.strip():
            usable.append(ToolCall(call.name, {key: asked}))
    return usable


_REJECTIONS = {
    (REPEATED, "search"): "error: this was searched for before: {asked}",
    (REPEATED, "expand"): "error: the paper {asked} was expanded before",
    (UNKNOWN, "expand"): "error: the pool has no paper {asked}; expected the id of one that was shown",
}


def rejection(found: Found, status: str) -> str:
    """Return the text of a call that was not carried out, by its status and tool."""
    return _REJECTIONS[status, found.kind].format(asked=repr(one_line(found.asked)[:MAX_SHOWN_QUERY]))
