"""The search of `BM25Retriever` as one compiled loop; imported only if numba is used.

MaxScore over windows of documents (Turtle and Flood 1995; windows as in Mackenzie, Petri and Moffat 2021). A window's
bound is the sum of the largest impacts of the terms that occur in it. Windows are visited in the order of their bounds,
until the k-th best score beats a bound. Within a window, terms add to an array of scores in the order of their bounds,
until the remaining terms cannot lift a new document among the best k; these terms are then looked up only for documents
that still can reach them. Sums are float64 over float32 impacts, as in Lucene, and a document is dropped only if it
stays behind by more than rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agent_envs.errors import needs_extra

with needs_extra("search"):
    import numba

__all__ = ["WINDOW", "compiled", "top_documents"]

WINDOW = 8192
"""Documents in a window; their scores fit the processor's first two caches."""

_SLACK = 1.0 - 1e-6


def compiled(function: Any) -> Any:
    """Return a function compiled for the types that it is called with; what is compiled is kept where possible."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # no place to cache the compiled code
        return numba.njit(nogil=True)(function)


@compiled
def _worse(score_a, rank_a, score_b, rank_b):  # type: ignore[no-untyped-def]
    return score_a < score_b or (score_a == score_b and rank_a > rank_b)


@compiled
def _sift_down(scores, ranks, found, size):  # type: ignore[no-untyped-def]
    """Sift down the root of a heap; the root is the worst entry."""
    score, rank, document = scores[0], ranks[0], found[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _worse(scores[child + 1], ranks[child + 1], scores[child], ranks[child]):
            child += 1
        if not _worse(scores[child], ranks[child], score, rank):
            break
        scores[at], ranks[at], found[at] = scores[child], ranks[child], found[child]
        at = child
    scores[at], ranks[at], found[at] = score, rank, document


@compiled
def _push(scores, ranks, found, size, score, rank, document):  # type: ignore[no-untyped-def]
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if not _worse(score, rank, scores[parent], ranks[parent]):
            break
        scores[at], ranks[at], found[at] = scores[parent], ranks[parent], found[parent]
        at = parent
    scores[at], ranks[at], found[at] = score, rank, document


@compiled
def _first_at_least(docs, low, high, document):  # type: ignore[no-untyped-def]
    while low < high:
        middle = (low + high) // 2
        if docs[middle] < document:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def top_documents(  # type: ignore[no-untyped-def]
    terms, boosts, offsets, docs, impacts, largest, ranks, k, accumulator, touched, candidates
):
    """Return the best k documents, best first.

    Args:
        terms: int64 numbers of the terms.
        boosts: float64, how often each occurs in the query; powers of two, which scale a float32 exactly.
        offsets, docs, impacts, largest, ranks: Arrays of the index.
        k: Number of documents to find.
        accumulator: float64 zeros, WINDOW of them; zeros again on return.
        touched, candidates: int32 scratch, WINDOW + 1 each.

    Returns:
        Numbers of the documents, int32, and their scores, float32.
    """
    n_docs = len(ranks)
    windows = (n_docs + WINDOW - 1) // WINDOW
    n = len(terms)
    bounds = np.empty(n, np.float64)
    for i in range(n):
        bounds[i] = boosts[i] * largest[terms[i]]
    order = np.argsort(-bounds)
    # Where each term's postings of each window begin, terms in the order of their bounds.
    starts = np.empty((n, windows + 1), np.int64)
    window_bounds = np.zeros(windows, np.float64)
    for i in range(n):
        at, end = offsets[terms[order[i]]], offsets[terms[order[i]] + 1]
        dense = end - at > 16 * windows
        for w in range(windows):
            starts[i, w] = at
            following = (w + 1) * WINDOW
            if dense:
                at = _first_at_least(docs, at, min(end, at + WINDOW), following)
            else:
                while at < end and docs[at] < following:
                    at += 1
            if at > starts[i, w]:
                window_bounds[w] += bounds[order[i]]
        starts[i, windows] = end
    window_order = np.argsort(-window_bounds)

    scores, heap_ranks, found = np.empty(k, np.float32), np.empty(k, np.int32), np.empty(k, np.int32)
    size = 0
    limit = 0.0  # a document below this score is not among the best
    for w in window_order:
        rest = window_bounds[w]
        if rest == 0.0 or (size == k and rest < limit):
            break
        base = w * WINDOW
        met = 0
        i = 0
        while i < n:
            begin, end = starts[i, w], starts[i, w + 1]
            if begin < end:
                if size == k and rest < limit:
                    break
                boost = boosts[order[i]]
                for p in range(begin, end):
                    d = docs[p] - base
                    score = accumulator[d]
                    touched[met] = d
                    met += score == 0.0
                    accumulator[d] = score + boost * impacts[p]
                rest -= bounds[order[i]]
            i += 1
        left = 0
        for c in range(met):
            d = touched[c]
            candidates[left] = d
            left += size < k or accumulator[d] + rest >= limit
        while i < n and left > 0:
            begin, end = starts[i, w], starts[i, w + 1]
            if begin < end:
                boost = boosts[order[i]]
                rest -= bounds[order[i]]
                if left * 8 > end - begin:
                    for p in range(begin, end):
                        d = docs[p] - base
                        if accumulator[d] != 0.0:
                            accumulator[d] += boost * impacts[p]
                else:
                    for c in range(left):
                        p = _first_at_least(docs, begin, end, base + candidates[c])
                        if p < end and docs[p] == base + candidates[c]:
                            accumulator[candidates[c]] += boost * impacts[p]
                kept = 0
                for c in range(left):
                    d = candidates[c]
                    candidates[kept] = d
                    kept += accumulator[d] + rest >= limit
                left = kept
            i += 1
        for c in range(left):
            score32 = np.float32(accumulator[candidates[c]])
            if size == k and score32 < scores[0]:
                continue
            document = np.int32(base + candidates[c])
            rank = ranks[document]
            if size < k:
                _push(scores, heap_ranks, found, size, score32, rank, document)
                size += 1
            elif _worse(scores[0], heap_ranks[0], score32, rank):
                scores[0], heap_ranks[0], found[0] = score32, rank, document
                _sift_down(scores, heap_ranks, found, size)
        if size == k:
            limit = scores[0] * _SLACK
        for c in range(met):
            accumulator[touched[c]] = 0.0

    best_scores, best = np.empty(size, np.float32), np.empty(size, np.int32)
    for at in range(size - 1, -1, -1):
        best_scores[at], best[at] = scores[0], found[0]
        scores[0], heap_ranks[0], found[0] = scores[at], heap_ranks[at], found[at]
        _sift_down(scores, heap_ranks, found, at)
    return best, best_scores
