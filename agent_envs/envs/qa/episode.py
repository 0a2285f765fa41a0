"""The state of an episode of question answering, and the tools that open and read pages (ReAct)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_envs.errors import ToolError
from agent_envs.messages import ToolCall
from agent_envs.retrieval import Retriever
from agent_envs.rewards.short_answers import normalize_answer
from agent_envs.tools import Tool
from agent_envs.tools.base import string_parameter
from agent_envs.tools.search import Passage, SearchResults, find_passages

SHOWN = 5  # sentences of a page that opening it shows
SEARCHED = 50  # passages among which the page of an entity is looked for
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(0-9])")
_PREDICATE = re.compile(r" (?:is|was|are|were) ")
_LONGEST_KEYWORD = 200


@dataclass(slots=True)
class QAState:
    """The state of an episode."""

    queries: list[str] = field(default_factory=list)
    """The search queries in order."""
    pages: dict[str, str] = field(default_factory=dict)
    """The text seen of each article by title; the articles in the order in which they were first seen."""
    found_by: list[tuple[str, tuple[Passage, ...]]] = field(default_factory=list)
    """Each query ("" for look-ups) and the passages that it found."""
    turns: list[str] = field(default_factory=list)
    """The policy's texts."""
    observed: list[str] = field(default_factory=list)
    """The tool results."""
    answer: str = ""
    """The final answer."""
    scores: dict[str, float] = field(default_factory=dict)
    """The scores of the final answer by name."""
    page: tuple[str, tuple[str, ...]] = ("", ())
    """ReAct: the title and the sentences of the open page."""
    lookup: tuple[str, tuple[int, ...], int] = ("", (), 0)
    """ReAct: the last keyword, the indices of the sentences that contain it, and how many of these were shown."""
    looked_up: list[tuple[str, str]] = field(default_factory=list)
    """ReAct: the title and the keyword of each look-up."""

    def note(self, shown: str) -> None:
        """Add a tool result. Text of an article that was seen before stays."""
        self.observed.append(str(shown))
        if not isinstance(shown, SearchResults):
            return
        self.found_by.append((shown.query, shown.passages))
        if shown.query:
            self.queries.append(shown.query)
        for passage in shown.passages:
            seen = self.pages.get(passage.title)
            if seen is None:
                self.pages[passage.title] = passage.text
            elif passage.text not in seen:
                self.pages[passage.title] = f"{seen} {passage.text}"


def search_calls(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """Return the calls that search, as released: those with a query, of `search` or `wiki_search`."""
    queries = [call.arguments.get("query") for call in calls if call.name in ("search", "wiki_search")]
    return [ToolCall("search", {"query": query}) for query in queries if isinstance(query, str) and query.strip()]


def sentences_of(text: str) -> tuple[str, ...]:
    """Return the sentences of a text."""
    return tuple(sentence.strip() for sentence in _SENTENCE_END.split(text) if sentence.strip())


class OpenPageTool(Tool):
    """Opens the page of an entity, as ReAct's search does: returns its first sentences or similar titles."""

    name = "search"
    description = "Open the page of an entity: its first sentences, or similar titles where there is none."
    parameters = string_parameter("entity", "The entity's name.")

    def __init__(self, env: Any, retriever: Retriever) -> None:
        self.env = env
        self.retriever = retriever

    def call(self, *, entity: str) -> SearchResults:  # type: ignore[override]
        """Open the page, or list similar titles."""
        passages = find_passages(self.retriever, entity, max(self.env.top_k, SEARCHED))
        title = _best_title(entity, passages)
        if title is None:
            similar = list(dict.fromkeys(p.title for p in passages[: self.env.top_k] if p.title))
            names = ", ".join(map(repr, similar)) or "none"
            return SearchResults(f"Could not find [{entity[:200]}]. Similar: {names}.", entity, ())
        # A page may consist of several passages of the corpus.
        sentences = tuple(s for p in passages if p.title == title for s in sentences_of(p.text))
        shown = " ".join(sentences[:SHOWN])[: self.env.passage_chars]
        self.env.state.page = (title, sentences)
        self.env.state.lookup = ("", (), 0)
        return SearchResults(shown, entity, (Passage(title, shown),))


def _best_title(entity: str, found: list[Passage]) -> str | None:
    """Return the title that an entity's name refers to: the same, the same without its bracket, or that of an alias."""
    wanted = normalize_answer(entity)
    if not wanted:
        return None
    for passage in found:
        if normalize_answer(passage.title) == wanted:
            return passage.title
    for passage in found:
        if normalize_answer(passage.title.partition(" (")[0]) == wanted:
            return passage.title
    for passage in found:
        # In "Korvath, also known as Tamsel, is a town" the words before the verb name the page's subject.
        opening = next(iter(sentences_of(passage.text[:300])), "")
        names = normalize_answer(_PREDICATE.split(opening, maxsplit=1)[0])
        if passage.title and f" {wanted} " in f" {names} " and wanted not in normalize_answer(passage.title):
            return passage.title
    return None


class LookupTool(Tool):
    """Finds the next sentence of the open page with a keyword, as ReAct's lookup does."""

    name = "lookup"
    description = "Find the next sentence with a keyword on the page that is open."
    parameters = string_parameter("keyword", "The keyword.")

    def __init__(self, env: Any) -> None:
        self.env = env

    def call(self, *, keyword: str) -> SearchResults:  # type: ignore[override]
        """The next sentence with the keyword."""
        state = self.env.state
        title, sentences = state.page
        if not sentences:
            raise ToolError("no page is open; open one with search[entity]")
        if not keyword.strip() or len(keyword) > _LONGEST_KEYWORD:
            raise ToolError(f"expected a keyword of 1 to {_LONGEST_KEYWORD} characters to look up")
        state.looked_up.append((title, keyword))
        keyword_before, indices, shown = state.lookup
        if keyword_before != keyword:
            indices = tuple(n for n, s in enumerate(sentences) if keyword.lower() in s.lower())
            shown = 0
        if shown >= len(indices):
            state.lookup = (keyword, indices, shown)
            return SearchResults("No more results.", "", ())
        state.lookup = (keyword, indices, shown + 1)
        sentence = sentences[indices[shown]][: self.env.passage_chars]
        return SearchResults(f"(Result {shown + 1} / {len(indices)}) {sentence}", "", (Passage(title, sentence),))
