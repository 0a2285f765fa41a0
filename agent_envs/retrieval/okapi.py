"""BM25 as the package rank_bm25 0.2 scores it (BM25Okapi), to the bit: the search of Agent-R1's small shop.

    score = sum over the words of the query of idf f (k1 + 1) / (f + k1 (1 - b + b length / average length))

Words are runs of ASCII letters and digits in lower case. The idf is ln(N - n + 0.5) - ln(n + 0.5); where it would be
negative, for a word in more than half of the documents, it is a quarter of the mean idf of all words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from operator import add

import numpy as np

_WORD = re.compile("[a-z0-9]+")
_K1, _B, _EPSILON = 1.5, 0.75, 0.25  # rank_bm25's


class Okapi:
    """An index of some documents in memory, of which at least one has a word.

    >>> Okapi(["red fox", "red owl", "blue jay"]).scores("Fox!").round(2).tolist()
    [0.51, 0.0, 0.0]
    """

    def __init__(self, docs: Iterable[str]) -> None:
        postings: dict[str, tuple[list[int], list[int]]] = {}  # word -> its documents, and how often they have it
        lengths: list[int] = []
        for place, text in enumerate(docs):
            words = Counter(_WORD.findall(text.lower()))
            for word, count in words.items():
                documents, counts = postings.setdefault(word, ([], []))
                documents.append(place)
                counts.append(count)
            lengths.append(words.total())
        self._size = total = len(lengths)
        idf = {w: math.log(total - len(d) + 0.5) - math.log(len(d) + 0.5) for w, (d, _) in postings.items()}
        least = _EPSILON * (reduce(add, idf.values()) / len(idf))  # not sum(), which rounds otherwise since Python 3.12
        norms = _K1 * (1 - _B + _B * np.array(lengths) / (sum(lengths) / total))
        self._impacts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, (documents, counts) in postings.items():
            f = np.array(counts)
            weight = idf[word] if idf[word] >= 0 else least
            self._impacts[word] = np.array(documents), weight * (f * (_K1 + 1) / (f + norms[documents]))

    def scores(self, query: str) -> np.ndarray:
        """Return the score of every document, [documents]; a word that a query repeats counts as often."""
        scores = np.zeros(self._size)
        for word in _WORD.findall(query.lower()):
            if word in self._impacts:
                documents, impacts = self._impacts[word]
                scores[documents] += impacts
        return scores
