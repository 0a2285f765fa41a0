"""Where the rewards of paper search are decided: the reward of a call, and how well a pool fits the answers.

The rewards of a call follow Agent-R1's paper search recipe and PaperScout. A paper is new if the pool did not contain
it before the call; the calls of a turn count in the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from agent_envs.retrieval.papers.paper import title_key
from agent_envs.rewards import total

OK, REPEATED, UNKNOWN, ERROR = "ok", "repeated", "unknown", "error"

MIN_SCORE = 0.01  # the least score with which a paper joins the pool
SUCCESS_RECALL = 0.9  # the least recall that counts as success

_USELESS = -0.5
_BEST = 3
_RELEVANT = 0.4
_COSTS: Mapping[str, float] = MappingProxyType({"search": 0.1, "expand": 0.05})
_DEPTHS = (20, 50, 100)


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """The outcome of a call."""

    kind: str
    """The name that was called; "search" and "expand" are rewarded."""
    status: str
    """OK, REPEATED (made before), UNKNOWN (the paper to expand is not in the pool) or ERROR (could not run)."""
    scores: tuple[float, ...] = ()
    """The scores of the papers that it added to the pool."""


def agentr1(call: ScoredCall, cost: float = 0.0) -> float:
    """Return the reward of a call in Agent-R1: the 3 best scores of its new papers, minus a cost (0 as released).

    A repeated call or an unknown paper earns -0.5, and a call that fails or finds nothing new 0.

    >>> agentr1(ScoredCall("search", OK, (0.2, 0.9, 0.5, 0.7))), agentr1(ScoredCall("expand", REPEATED))
    (2.1, -0.5)
    """
    if call.status in (REPEATED, UNKNOWN):
        return _USELESS
    if not call.scores:
        return 0.0
    return total(sorted(call.scores, reverse=True)[:_BEST]) - cost


def paperscout(call: ScoredCall) -> float:
    """Return the reward of a call in PaperScout: as in Agent-R1, but a score counts 1 from 0.4 on and 0 below.

    A search costs 0.1 and an expand 0.05, if they find something new.

    >>> paperscout(ScoredCall("search", OK, (0.4, 0.9, 0.39))), paperscout(ScoredCall("expand", OK))
    (1.9, 0.0)
    """
    relevant = tuple(float(score >= _RELEVANT) for score in call.scores)
    return agentr1(replace(call, scores=relevant), _COSTS.get(call.kind, 0.0))


CALL_REWARDS = MappingProxyType({"agentr1": agentr1, "paperscout": paperscout, "f1": lambda call: 0.0})


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean of precision and recall, 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def retrieval_metrics(ranked: Sequence[str], golds: Iterable[str]) -> dict[str, float]:
    """Return precision, recall, recall_at_20, _50 and _100, and f1 of titles, best first; 0 if none is found or wanted.

    Titles are compared by `title_key`, and each counts once, however often it is found.
    """
    wanted = set(map(title_key, golds))
    keys = list(dict.fromkeys(map(title_key, ranked)))
    hits = [key in wanted for key in keys]
    precision = sum(hits) / len(keys) if keys else 0.0
    recall = sum(hits) / len(wanted) if wanted else 0.0
    at = {f"recall_at_{k}": sum(hits[:k]) / len(wanted) if wanted else 0.0 for k in _DEPTHS}
    return {"precision": precision, "recall": recall, **at, "f1": f1(precision, recall)}
