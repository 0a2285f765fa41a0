"""A solver of generated queries that acts only on what the environment has shown.

It searches for what the query names and for other names of the topic that it reads in abstracts, and expands the most
promising papers: surveys, and those that other papers say they build on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from agent_envs.datasets.papersearch.generated.literature import WORDS
from agent_envs.envs.papersearch.episode import PaperState, Pooled

STEPS = 5  # the number of turns that the solver plans for: the limit of the registered id

FormatCall = Callable[[str, dict[str, Any]], str]
_Call = tuple[str, str]  # tool and argument


def _pattern(form: str) -> re.Pattern[str]:
    """Compile a form to a pattern with its slots as groups."""
    return re.compile(re.sub(r"\\{(\w)\\}", r"(?P<\1>[^.,;?()]+?)", re.escape(form)), re.IGNORECASE)


_QUERY_PATTERNS = [
    (kind, _pattern(form)) for kind in ("setting", "followups", "pair", "topic") for form in WORDS["queries"][kind]
]
_ALIAS_PATTERNS = [_pattern(form) for form in (*WORDS["aliases"], *WORDS["surveys"])]
_BASE_PATTERNS = [_pattern(form) for form in WORDS["builds"]]
_SURVEY_TITLES = [_pattern(form) for form in WORDS["survey_titles"]]


def parse_query(query: str) -> tuple[str, dict[str, str]] | None:
    """Return the kind of a query and what it names; None for a query that was not generated.

    >>> parse_query("Which papers study red graphs or blue graphs?")
    ('pair', {'a': 'red graphs', 'b': 'blue graphs'})
    """
    for kind, pattern in _QUERY_PATTERNS:
        if match := pattern.fullmatch(query.strip()):
            return kind, match.groupdict()
    return None


def expert_text(
    query: str,
    state: PaperState,
    format_call: FormatCall,
    max_calls: int,
    abstract_words: int = 400,
    *,
    ends_alone: bool = False,
) -> str:
    """Return the solver's next text, which follows from the first `abstract_words` words of the papers shown.

    `ends_alone` says whether the end is a text without calls.
    """
    last = state.turns >= STEPS - 1
    room = max_calls if not last else 0 if ends_alone else max(max_calls - 1, 0)
    done = len(state.gains) >= 3 and not any(state.gains[-2:])
    calls = [] if done else _wanted(query, state, abstract_words)[:room]
    texts = [format_call(tool, {"query" if tool == "search" else "paper_id": argument}) for tool, argument in calls]
    if last or not texts:
        texts.append(format_call("finish", {}))
    return "\n".join(texts)


def _wanted(query: str, state: PaperState, abstract_words: int) -> list[_Call]:
    """Return the calls worth making, the best first."""
    kind, named = parse_query(query) or ("topic", {"a": query})
    texts = {i: " ".join(state.pool[i].paper.abstract.split()[:abstract_words]) for i in state.shown}
    queries = _queries(kind, named, list(texts.values()))
    searches = [("search", query) for query in queries if query not in state.searched]
    if kind == "followups":
        first = [i for i in texts if re.search(rf"\b{re.escape(named['x'])}\b", state.pool[i].paper.title)]
        expansions = [("expand", i) for i in first if not state.pool[i].expanded]
        return expansions or (searches if not first else [])
    return searches + [("expand", p.paper.id) for p in _by_promise(state, texts)]


def _queries(kind: str, named: dict[str, str], texts: list[str]) -> Iterator[str]:
    """Yield search queries: the names in the query, then other names from the texts."""
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
    """Return the papers that were shown but not expanded, the most promising first."""
    bases = Counter(m["Y"] for text in texts.values() for p in _BASE_PATTERNS for m in p.finditer(text))

    def promise(pooled: Pooled) -> float:
        title = pooled.paper.title
        survey = any(pattern.fullmatch(title) for pattern in _SURVEY_TITLES)
        cited = max((bases[word] for word in re.findall(r"\w+", title)), default=0)
        return 100.0 * survey + cited

    papers = [state.pool[i] for i in texts if not state.pool[i].expanded]
    return sorted(papers, key=promise, reverse=True)


def wrong_text(query: str, state: PaperState, format_call: FormatCall, right: str, rng: np.random.Generator) -> str:
    """Return a well-formed text with a mistake: a vague search, a repeated expansion, or an early end."""
    vague = [*WORDS["methods"], *WORDS["themes"], query.split()[-1].strip("?.")]
    searches = [format_call("search", {"query": vague[int(rng.integers(len(vague)))]}) for _ in range(2)]
    expanded = [i for i, pooled in state.pool.items() if pooled.expanded]
    wrong = [searches[0], "\n".join(searches)]
    if expanded:
        wrong.append(format_call("expand", {"paper_id": expanded[int(rng.integers(len(expanded)))]}))
    if state.pool:
        wrong.append(format_call("finish", {}))
    wrong = [text for text in wrong if text != right]
    return wrong[int(rng.integers(len(wrong)))]
