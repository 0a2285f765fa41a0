"""The search tool: a query in, the best passages of a corpus out."""

from __future__ import annotations

from typing import NamedTuple

from agent_envs.checks import choice, integer
from agent_envs.errors import ToolError
from agent_envs.per_process import Shared
from agent_envs.retrieval import HTTPRetriever, Retriever, document_title
from agent_envs.tools.base import Tool, string_parameter

LAYOUTS = ("numbered", "information")
MAX_QUERY = 4096  # characters; no sensible query is longer
NOTHING = "No passage matches the query; try other words."
_WAIT = 3600.0  # seconds; a retriever over a network has its own limits, which tell a broken server from a bad query


class Passage(NamedTuple):
    """A passage as it was shown."""

    title: str
    """The title of its article, "" if the corpus has none."""
    text: str
    """Its text, cut to what was shown."""


class SearchResults(str):
    """The text of a search's results, with its query and passages as attributes; `str(results)` is the text alone."""

    query: str
    passages: tuple[Passage, ...]

    def __new__(cls, text: str, query: str, passages: tuple[Passage, ...]) -> SearchResults:
        """Return the text with its query ("" if nothing was searched for) and its passages."""
        results = super().__new__(cls, text)
        results.query, results.passages = query, passages
        return results


def check_query(query: str) -> None:
    """Raise a ToolError if a query is empty or too long."""
    if not query.strip():
        raise ToolError("the query is empty; expected words to search for")
    if len(query) > MAX_QUERY:
        raise ToolError(f"the query has {len(query)} characters; at most {MAX_QUERY} are searched for")


def find_passages(retriever: Retriever, query: str, top_k: int, passage_chars: int | None = None) -> list[Passage]:
    """Return the best `top_k` passages for a query, each cut to `passage_chars` characters (None for all of it).

    Raises:
        ToolError: The query is empty or too long; the message is for the policy.
        BackendError: The search engine is broken.
    """
    check_query(query)
    pairs = (document_title(retriever.document(doc_id)) for doc_id, _ in retriever.search(query, top_k))
    return [Passage(title, text[:passage_chars]) for title, text in pairs]


class SearchTool(Tool, Shared):
    """Searches a corpus.

    >>> from agent_envs.retrieval import StaticRetriever
    >>> documents = [{"id": "p1", "title": "Paris", "text": "Paris is a city."}]
    >>> tool = SearchTool(StaticRetriever({}, documents, default=["p1"]))
    >>> tool.call(query="capital of France")
    '[1] Paris\\nParis is a city.'

    Args:
        retriever: The search engine; shared by all tools of a process.
        top_k: Passages per query.
        passage_chars: Characters shown of each passage.
        layout: "numbered" (`[1] title`, a line break, the text) or "information", as Search-R1 shows passages.
    """

    name = "search"
    description = "Search the encyclopaedia for passages."
    parameters = string_parameter("query", "What to search for, in a few words.")

    def __init__(
        self, retriever: Retriever, *, top_k: int = 5, passage_chars: int = 1200, layout: str = "numbered"
    ) -> None:
        check_limits(top_k, passage_chars)
        self.retriever = retriever
        self.top_k, self.passage_chars = top_k, passage_chars
        self.layout = choice("layout", layout, LAYOUTS)
        self.blocking = isinstance(retriever, HTTPRetriever)
        self.timeout = _WAIT if self.blocking else None

    def call(self, *, query: str) -> SearchResults:  # type: ignore[override]
        passages = find_passages(self.retriever, query, self.top_k, self.passage_chars)
        return SearchResults(self.show(passages), query, tuple(passages))

    def show(self, passages: list[Passage]) -> str:
        """Return passages as text."""
        if self.layout == "information":
            shown = "\n".join(f'Doc {n}(Title: "{p.title}") {p.text}' for n, p in enumerate(passages, start=1))
            return f"<information>{shown or NOTHING}</information>"
        return "\n".join(f"[{n}] {p.title}\n{p.text}" for n, p in enumerate(passages, start=1)) or NOTHING


def check_limits(top_k: int, passage_chars: int) -> None:
    """Check that both are integers of at least 1."""
    integer("top_k", top_k, minimum=1)
    integer("passage_chars", passage_chars, minimum=1)
