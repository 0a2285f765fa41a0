"""A solver of generated queries that acts on what the environment has shown it, and on nothing else.

It searches for what the query names; reads in the abstracts what else a topic is called, and searches for that; and
expands the papers from which most is to be expected: surveys, and those that others say they build on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from agent_envs.datasets.papersearch.generated.words import (
    ALIASES,
    BUILDS,
    METHODS,
    QUERIES,
    SURVEY_TITLES,
    SURVEYS,
    THEMES,
)
from agent_envs.envs.papersearch.episode import PaperState, Pooled, query_key

__all__ = ["STEPS", "expert_text", "parse_query", "wrong_text"]

STEPS = 5
"""Turns that the solver counts on: the limit of the registered id."""

FormatCall = Callable[[str, dict[str, Any]], str]
_Call = tuple[str, str]  # tool and argument


def _pattern(form: str) -> re.Pattern[str]:
    """What a form reads as, with its slots as groups.

    >>> _pattern("Which papers study {a} for {s}?").fullmatch("Which papers study red graphs for legal text?")["s"]
    'legal text'
    """
    return re.compile(re.sub(r"\\{(\w)\\}", r"(?P<\1>[^.,;?()]+?)", re.escape(form)), re.IGNORECASE)


_QUERY_PATTERNS = [
    (kind, _pattern(form)) for kind in ("setting", "followups", "pair", "topic") for form in QUERIES[kind]
]
_ALIAS_PATTERNS = [_pattern(form) for form in (*ALIASES, *SURVEYS)]
_BASE_PATTERNS = [_pattern(form) for form in BUILDS]
_SURVEY_TITLES = [_pattern(form) for form in SURVEY_TITLES]


def parse_query(query: str) -> tuple[str, dict[str, str]] | None:
    """What kind of query it is, and what it names; None for one that was not generated.

    >>> parse_query("Which papers study red graphs or blue graphs?")
    ('pair', {'a': 'red graphs', 'b': 'blue graphs'})
    """
    for kind, pattern in _QUERY_PATTERNS:
        if match := pattern.fullmatch(query.strip()):
            return kind, match.groupdict()
    return None


def expert_text(
    query: str, state: PaperState, format_call: FormatCall, max_calls: int, abstract_words: int = 400
) -> str:
    """The next text of a solver that reads the query and what was shown so far.

    Args:
        query: The query.
        state: What has happened; of the papers only those that were shown are read.
        format_call: Writes a call.
        max_calls: Calls per turn.
        abstract_words: Words of each abstract that were shown.
    """
    finish = format_call("finish", {})
    last = state.turns >= STEPS - 1
    room = max(max_calls - 1, 0) if last else max_calls
    calls = [] if _is_done(state) else _wanted(query, state, abstract_words)[:room]
    texts = [format_call(tool, {"query" if tool == "search" else "paper_id": asked}) for tool, asked in calls]
    if last or not texts:
        texts.append(finish)
    return "\n".join(texts)


def _is_done(state: PaperState) -> bool:
    """Whether two turns in a row brought nothing."""
    return len(state.gains) >= 3 and not any(state.gains[-2:])


def _wanted(query: str, state: PaperState, abstract_words: int) -> list[_Call]:
    """The calls worth making, the best first."""
    kind, named = parse_query(query) or ("topic", {"a": query})
    texts = {i: " ".join(state.pool[i].paper.abstract.split()[:abstract_words]) for i in state.shown}
    searches = [
        ("search", q) for q in _queries(kind, named, list(texts.values())) if query_key(q) not in state.searched
    ]
    if kind == "followups":
        first = [i for i in texts if re.search(rf"\b{re.escape(named['x'])}\b", state.pool[i].paper.title)]
        expansions = [("expand", i) for i in first if not state.pool[i].expanded]
        return expansions or (searches if not first else [])
    expansions = [("expand", p.paper.id) for p in _by_promise(state, texts)]
    return searches + expansions


def _queries(kind: str, named: dict[str, str], texts: list[str]) -> Iterator[str]:
    """What to search for: the names in the query, then other names that were read about."""
    if kind == "followups":
        yield named["x"]
        return
    names = [named[slot] for slot in ("a", "b") if slot in named]
    setting = f" {named['s']}" if "s" in named else ""
    others = [m["B"] for text in texts for p in _ALIAS_PATTERNS for m in p.finditer(text)]
    for name in names + [name for name, _ in Counter(others).most_common(2 * len(names))]:
        if setting:
            yield name + setting
        yield name
        if name in names:
            yield f"{name} survey"


def _by_promise(state: PaperState, texts: dict[str, str]) -> list[Pooled]:
    """The papers that were shown and not expanded, those first from which most is to be expected."""
    bases = Counter(m["Y"] for text in texts.values() for p in _BASE_PATTERNS for m in p.finditer(text))

    def promise(pooled: Pooled) -> float:
        title = pooled.paper.title
        survey = any(pattern.fullmatch(title) for pattern in _SURVEY_TITLES)
        cited = max((bases[word] for word in re.findall(r"\w+", title)), default=0)
        return 100.0 * survey + cited

    papers = [state.pool[i] for i in texts if not state.pool[i].expanded]
    return sorted(papers, key=promise, reverse=True)


def wrong_text(query: str, state: PaperState, format_call: FormatCall, right: str, rng: np.random.Generator) -> str:
    """A well-formed text that errs: a search for too little, an expansion once more, or an early end.

    Args:
        query: The query.
        state: What has happened.
        format_call: Writes a call.
        right: What the expert would write.
        rng: Source of the error.
    """
    vague = [*METHODS, *THEMES, query.split()[-1].strip("?.")]
    searches = [format_call("search", {"query": vague[int(rng.integers(len(vague)))]}) for _ in range(2)]
    expanded = [i for i, pooled in state.pool.items() if pooled.expanded]
    wrong = [searches[0], "\n".join(searches)]
    if expanded:
        wrong.append(format_call("expand", {"paper_id": expanded[int(rng.integers(len(expanded)))]}))
    if state.pool:
        wrong.append(format_call("finish", {}))
    wrong = [text for text in wrong if text != right]
    return wrong[int(rng.integers(len(wrong)))]
