"""Selectors that need no service: by gold answers, by common words, and one that caches another selector's scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from agent_envs.checks import shown
from agent_envs.errors import BackendError, ConfigError
from agent_envs.retrieval.analysis.analyzer import analyze
from agent_envs.retrieval.papers.paper import Paper, Selector, title_key
from agent_envs.retrieval.papers.prompted import PromptedSelector
from agent_envs.retrieval.retriever import Recent, Shared

__all__ = ["CachedSelector", "GoldSelector", "LexicalSelector"]

_K1, _B = 0.9, 0.4
_AVERAGE_LENGTH = 100.0  # terms of a title and an abstract


class GoldSelector:
    """Scores 1 for the known answers to a query, compared by the letters of their titles, and 0 for other papers.

    >>> selector = GoldSelector(["Deep Parsing"])
    >>> selector.scores("any", [Paper("1", "Deep parsing."), Paper("2", "Deep Purple")])
    [1.0, 0.0]

    A paper with one of the answers' known `ids` is an answer, too.
    """

    def __init__(self, titles: Iterable[str], ids: Iterable[str] = ()) -> None:
        self._keys = frozenset(map(title_key, titles))
        self._ids = frozenset(ids)

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return 1.0 or 0.0 for each paper."""
        return [float(paper.id in self._ids or title_key(paper.title) in self._keys) for paper in papers]


class LexicalSelector:
    """Scores BM25 of title and abstract as a share of the maximum for the query: from 0 to 1.

    All words of the query have the same weight, so that a score says how much of the query a paper covers.

    >>> papers = [Paper("1", "Parsing", "Deep parsing of text."), Paper("2", "Parsing"), Paper("3", "Seas")]
    >>> [round(score, 2) for score in LexicalSelector().scores("deep parsing", papers)]
    [0.71, 0.32, 0.0]
    """

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return the score of each paper."""
        wanted = _terms(query)
        return [_share(wanted, _terms(f"{paper.title}\n{paper.abstract}")) for paper in papers]


@lru_cache(maxsize=4096)
def _terms(text: str) -> Counter[str]:
    return Counter(analyze(text))


def _share(wanted: Counter[str], found: Counter[str]) -> float:
    if not wanted:
        return 0.0
    norm = _K1 * (1 - _B + _B * found.total() / _AVERAGE_LENGTH)
    score = 0.0  # not sum(), which rounds differently since Python 3.12
    for term in wanted:
        score += found[term] / (found[term] + norm)
    return score / len(wanted)


class CachedSelector(Shared):
    """Asks another selector once per query and paper. Failures are not cached.

    Of more than `size` scores the least recently used ones are dropped.
    """

    def __init__(self, selector: Selector, size: int = 1 << 20) -> None:
        if not isinstance(selector, Selector):
            raise ConfigError(f"selector must be a name such as 'gold' or a Selector, got {shown(selector)}")
        self.selector = selector
        self._failed = selector.on_error if isinstance(selector, PromptedSelector) else None
        self._scores: Recent[tuple[str, str, str], float] = Recent(size)

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """Return the score of each paper; those that are not cached are requested in one call, each once.

        Raises BackendError if the selector fails, or does not return one finite number per paper.
        """
        keys = [(query, paper.id, paper.title) for paper in papers]
        known = self._scores.find(keys)
        missing = {key: paper for key, paper in zip(keys, papers, strict=True) if key not in known}
        if missing:
            result = self.selector.scores(query, list(missing.values()))
            try:
                fresh = dict(zip(missing, map(float, result), strict=True))
            except (TypeError, ValueError, OverflowError) as e:
                raise BackendError(f"the selector returned {result!r:.80} for {len(missing)} papers") from e
            if not all(map(math.isfinite, fresh.values())):
                raise BackendError(f"the selector returned {result!r:.80}, which are not all finite numbers")
            self._scores.keep({key: score for key, score in fresh.items() if score != self._failed})
            known |= fresh
        return [known[key] for key in keys]
