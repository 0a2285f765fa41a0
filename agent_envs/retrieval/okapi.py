"""BM25 as the package rank_bm25 0.2 scores it (BM25Okapi), to the bit: the search of Agent-R1's small shop.

    score = sum over the words of the query of idf f (k1 + 1) / (f + k1 (1 - b + b length / average length))

Words are runs of ASCII letters and digits in lower case. The idf is ln(N - n + 0.5) - ln(n + 0.5); where it would be
negative, for a word in more than half of the documents, it is `epsilon` times the mean idf of all words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from agent_envs.checks import number, shown
from agent_envs.errors import ConfigError, DataError
from agent_envs.retrieval.bm25.build import check_parameters
from agent_envs.retrieval.corpus import row_contents, row_id
from agent_envs.retrieval.retriever import Hit, Retriever, Shared, check_request

_WORD = re.compile("[a-z0-9]+")


class OkapiRetriever(Retriever, Shared):
    """Searches some documents in memory; finds those with a word of the query, ties by their place.

    Args:
        docs: Rows as for `BM25Retriever.build`.
        k1, b: As there.
        epsilon: The idf of words in more than half of the documents, as a share of the mean.

    Raises DataError for an invalid row, an id that occurs twice, and no rows.

    >>> birds = [{"id": "b", "text": "red owl"}, {"id": "c", "text": "blue jay"}]
    >>> [doc_id for doc_id, _ in OkapiRetriever([{"id": "a", "text": "red fox"}, *birds]).search("Fox!")]
    ['a']
    """

    def __init__(
        self, docs: Iterable[Mapping[str, Any]], *, k1: float = 1.5, b: float = 0.75, epsilon: float = 0.25
    ) -> None:
        check_parameters(k1, b)
        number("epsilon", epsilon, minimum=0)
        self._rows: dict[str, dict[str, Any]] = {}
        found: dict[str, tuple[list[int], list[int]]] = {}  # of each word the documents, and how often they have it
        lengths: list[int] = []
        for place, row in enumerate(docs):
            words = Counter(_WORD.findall(row_contents(row, f"document {place}").lower()))
            self._rows[row_id(row, f"document {place}", place)] = dict(row)
            for word, count in words.items():
                documents, counts = found.setdefault(word, ([], []))
                documents.append(place)
                counts.append(count)
            lengths.append(words.total())
        if len(self._rows) < len(lengths):
            raise DataError("an id occurs twice")
        if not found:
            raise DataError("there are no documents with words to index")
        self._ids = list(self._rows)
        total = len(lengths)
        idf = {w: math.log(total - len(d) + 0.5) - math.log(len(d) + 0.5) for w, (d, _) in found.items()}
        least = epsilon * (reduce(add, idf.values()) / len(idf))  # not sum(), which rounds otherwise since Python 3.12
        norms = k1 * (1 - b + b * np.array(lengths) / (sum(lengths) / total))
        self._postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, (documents, counts) in found.items():
            f = np.array(counts)
            weight = idf[word] if idf[word] >= 0 else least
            self._postings[word] = np.array(documents), weight * (f * (k1 + 1) / (f + norms[documents]))

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._ids)

    def scores(self, query: str) -> np.ndarray:
        """Return the score of every document, [documents]; a word that a query repeats counts as often."""
        scores = np.zeros(len(self))
        for word in _WORD.findall(query.lower()):
            if word in self._postings:
                documents, impacts = self._postings[word]
                scores[documents] += impacts
        return scores

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the k documents with the highest scores that are not 0."""
        check_request(query, k)
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")
        return [(self._ids[place], float(scores[place])) for place in order[scores[order] != 0][:k]]

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id."""
        try:
            return dict(self._rows[doc_id])
        except KeyError as e:
            raise ConfigError(f"no document has the id {shown(doc_id)}") from e
