"""Compiled loops, imported only if numba is used: the search of `BM25Retriever`, and the tokens of ASCII texts.

MaxScore over windows of documents (Turtle and Flood 1995; windows as in Mackenzie, Petri and Moffat 2021). A window's
bound is the sum of the largest impacts of the terms that occur in it. Windows are visited in the order of their bounds,
until the k-th best score beats a bound. Within a window, terms add to an array of scores in the order of their bounds,
until the remaining terms cannot lift a new document among the best k; these terms are then looked up only for documents
that still can reach them. Sums are float64 over float32 impacts, as in Lucene, and a document is dropped only if it
stays behind by more than rounding.

The tokens are what `agent_envs.retrieval.analysis.analyzer.tokenize` finds in ASCII: runs of letters, digits and
underscores, which go on after one of `.:'` between two letters and one of `.,;'` between two digits. They are numbered
in the order of their first occurrence, by a hash table with open addressing that compares bytes where hashes (FNV-1a)
are equal.
"""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from agent_envs.errors import needs_extra
from agent_envs.retrieval.analysis.analyzer import MAX_TOKEN_LENGTH

with needs_extra("search"):
    import numba

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


_SLOTS = 1 << 22  # twice as many as tokens; what is not used takes no memory
_OTHER, _LETTER, _DIGIT, _UNDERSCORE = range(4)
_LETTER_MARK, _DIGIT_MARK = 1, 2


def _table(values: dict[str, int]) -> np.ndarray:
    """Return a number for each byte, from the numbers of characters; 0 for others."""
    table = np.zeros(256, np.uint8)
    for characters, value in values.items():
        table[list(characters.encode())] |= value
    return table


_KINDS = _table({string.ascii_letters: _LETTER, string.digits: _DIGIT, "_": _UNDERSCORE})
_MARKS = _table({".:'": _LETTER_MARK, ".,;'": _DIGIT_MARK})  # what a byte may stand between


@compiled
def _number_tokens(data, ends, slots, starts, lengths, hashes, known, arena, out, counts):  # type: ignore[no-untyped-def]
    """Number the tokens of documents; return the number of known tokens, and the end of `out`."""
    mask = np.uint64(len(slots) - 1)
    arena_end = starts[known - 1] + lengths[known - 1] if known else 0
    written = 0
    for document in range(len(ends)):
        begin = ends[document - 1] if document else 0
        end = ends[document]
        room = (end - begin) // 2 + 1  # tokens that it may have
        if 2 * (known + room) > len(slots) or arena_end + end - begin > len(arena):
            counts[document] = -1
            continue
        at, before = begin, written
        while at < end:
            if _KINDS[data[at]] == _OTHER:
                at += 1
                continue
            start = at
            value = np.uint64(14695981039346656037)
            while True:
                while at < end and _KINDS[data[at]] != _OTHER:
                    value = (value ^ np.uint64(data[at])) * np.uint64(1099511628211)
                    at += 1
                if at + 1 >= end:
                    break
                left, mark, right = _KINDS[data[at - 1]], _MARKS[data[at]], _KINDS[data[at + 1]]
                letters = mark & _LETTER_MARK and left == _LETTER and right == _LETTER
                digits = mark & _DIGIT_MARK and left == _DIGIT and right == _DIGIT
                if not (letters or digits):
                    break
                value = (value ^ np.uint64(data[at])) * np.uint64(1099511628211)
                at += 1
            size = at - start
            if size > MAX_TOKEN_LENGTH:  # it has to be cut
                written = before - 1
                break
            value ^= value >> np.uint64(29)
            slot = value & mask
            while True:
                number = slots[slot] - 1
                if number < 0:
                    number = known
                    slots[slot] = known + 1
                    hashes[known], starts[known], lengths[known] = value, arena_end, size
                    arena[arena_end : arena_end + size] = data[start:at]
                    arena_end += size
                    known += 1
                    break
                if hashes[number] == value and lengths[number] == size:
                    same, there = True, starts[number]
                    for i in range(size):
                        if arena[there + i] != data[start + i]:
                            same = False
                            break
                    if same:
                        break
                slot = (slot + np.uint64(1)) & mask
            out[written] = number
            written += 1
        counts[document] = written - before
        written = max(written, before)
    return known, written


class TokenTable:
    """Numbers of tokens.

    >>> table = TokenTable()
    >>> table.number([b"red apples", b"3.14 red"])
    (array([0, 1, 2, 0], dtype=int32), array([2, 2], dtype=int32))
    >>> table.tokens(1)
    ['apples', '3.14']
    """

    def __init__(self) -> None:
        self._known = 0
        self._slots = np.zeros(_SLOTS, np.int32)  # of each its token's number and 1, or 0
        self._starts, self._lengths = np.zeros(_SLOTS // 2, np.int64), np.zeros(_SLOTS // 2, np.int32)
        self._hashes, self._arena = np.zeros(_SLOTS // 2, np.uint64), np.zeros(16 * _SLOTS, np.uint8)

    def __len__(self) -> int:
        return self._known

    def number(self, texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the tokens of ASCII texts, and how many each text has.

        A text with a token that is too long, or for which there is no room left, has -1 and no numbers.

        Returns:
            Numbers, int32 [tokens], and counts, int32 [texts].
        """
        data = np.frombuffer(b"".join(texts), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        counts = np.zeros(len(texts), np.int32)
        out = np.empty(len(data) // 2 + len(texts) + 1, np.int32)
        self._known, written = _number_tokens(
            data, ends, self._slots, self._starts, self._lengths, self._hashes, self._known, self._arena, out, counts
        )
        return out[:written], counts

    def tokens(self, first: int) -> list[str]:
        """Return the tokens from a number on."""
        if first >= self._known:
            return []
        starts, lengths = self._starts[first : self._known], self._lengths[first : self._known]
        text = self._arena[starts[0] : starts[-1] + lengths[-1]].tobytes().decode("ascii")
        begins = (starts - starts[0]).tolist()
        return [text[begin : begin + size] for begin, size in zip(begins, lengths.tolist(), strict=True)]
