"""BM25 without Java, with exactly Lucene's scores and order of ties.

In Lucene 10 (BM25Similarity, as Anserini and pyserini use it), the score of a document is the float64 sum, rounded to
float32, of one float32 number per term of the query,

    w - w / (1 + f * n),    w = boost * idf,    idf = ln(1 + (N - df + 0.5) / (df + 0.5)),
                            n = 1 / (k1 * (1 - b + b * length / average length)),

where boost and f are the numbers of times the term occurs in the query and in the document, and lengths keep only four
bits. Equal scores are ordered by external id. For boost 1 these numbers are computed when the index is built.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent_envs.checks import choice
from agent_envs.errors import DataError
from agent_envs.per_process import Shared
from agent_envs.retrieval.analysis.analyzer import ANALYZER, term_of, tokenize
from agent_envs.retrieval.bm25.build import FORMAT, VERSION, IndexBuilder, check_parameters, impacts_of, inverse_norms
from agent_envs.retrieval.corpus import file_marks, read_objects
from agent_envs.retrieval.retriever import Hit, Retriever, check_request
from agent_envs.retrieval.storage import Blob, DocumentStore, map_array, new_folder, read_manifest

_ENGINES = ("auto", "numba", "numpy")
_NUMBA_FROM = 50_000  # documents; with fewer, loading numba costs more than it saves
_SMALL_CORPUS = 16 << 20  # bytes
_REMEMBERED_TOKENS = 1 << 17
_SLACK = 1.0 - 1e-6


class _Postings(NamedTuple):
    """One term of a query: its documents, their impacts, and the largest impact."""

    docs: np.ndarray
    impacts: np.ndarray
    bound: float


class BM25Retriever(Retriever, Shared):
    """Searches an index in a folder, which is mapped into memory and shared by all threads and processes.

    Make one with `build` or `open`.

    >>> retriever = BM25Retriever.build([{"id": "a", "text": "red apples"}, {"id": "b", "text": "a red, red rose"}])
    >>> [doc_id for doc_id, score in retriever.search("Rose red")]
    ['b', 'a']
    >>> retriever.document("a")["text"]
    'red apples'

    Args:
        folder: The index.
        engine: "numba" (the extra `search`), "numpy", or "auto": numba if it is installed and the corpus is large
            enough to gain from it. Results are the same.
        verify: Whether to compare the checksums of all files (about a second per GB).

    Raises:
        DataError: There is no index, or it has another version or was changed.
    """

    def __init__(self, folder: str | Path, *, engine: str = "auto", verify: bool = True) -> None:
        choice("engine", engine, _ENGINES)
        folder = Path(folder)
        manifest = read_manifest(folder, FORMAT, VERSION, verify=verify)
        if manifest["analyzer"] != ANALYZER:
            raise DataError(f"{folder} was built with the analyzer {manifest['analyzer']!r}; expected {ANALYZER!r}")
        self.path: Path | None = folder
        self.k1: float = manifest["k1"]
        self.b: float = manifest["b"]
        self.documents = DocumentStore(folder)
        self._term = lru_cache(_REMEMBERED_TOKENS)(partial(_term_number, Blob(folder, "terms")))
        self._idf = map_array(folder / "terms.idf", "<f4")
        self._largest = map_array(folder / "terms.max", "<f4")
        self._offsets = map_array(folder / "postings.offsets", "<i8")
        self._docs = map_array(folder / "postings.docs", "<i4")
        self._impacts = map_array(folder / "postings.impacts", "<f4")
        self._frequencies = map_array(folder / "postings.frequencies", manifest["frequency_type"])
        self._norms = map_array(folder / "documents.norms", "u1")
        self._ranks = map_array(folder / "ids.rank", "<i4")
        self._inverse = inverse_norms(self.k1, self.b, manifest["average_length"])
        self._engine = engine
        self._compiled: Any = None  # top_documents, once loaded
        self._free: list[np.ndarray] = []  # unused score arrays, all 0; append and pop are atomic
        self._free_windows: list[tuple[np.ndarray, ...]] = []  # unused scratch arrays of the compiled search
        if engine == "numba":
            self._load_numba()

    @classmethod
    def open(cls, path: str | Path, *, engine: str = "auto", verify: bool = True) -> BM25Retriever:
        """Open the index at `path`; the arguments are those of the class."""
        return cls(path, engine=engine, verify=verify)

    @classmethod
    def build(
        cls,
        docs: Iterable[Mapping[str, Any]] | str | Path,
        path: str | Path | None = None,
        k1: float = 0.9,
        b: float = 0.4,
        *,
        overwrite: bool = False,
        progress: bool = False,
        processes: int = 2,
        engine: str = "auto",
    ) -> BM25Retriever:
        """Index rows and open the index.

        Args:
            docs: Rows {"id", "title", "text"}, {"id", "text"} or {"id", "contents"}, read as a stream; or a .jsonl file
                or a folder of them, whose interrupted build resumes where it stopped, unless `overwrite`.
            path: The index's folder; None for one that lives as long as the retriever.
            k1: How slowly repeated terms saturate.
            b: How much document length counts.
            overwrite: Whether to replace an existing index.
            progress: Whether to show a progress bar.
            processes: Number of helper processes for files that are not small.
            engine: As in the class.

        Raises:
            ConfigError: `path` exists, or k1 or b is out of range.
            DataError: A row is invalid, an id occurs twice, or there are no rows.
            BackendError: A helper process failed.
        """
        check_parameters(k1, b)
        target = None if path is None else Path(path)
        files = file_marks(docs) if isinstance(docs, (str, Path)) else []
        if sum(size for _, size, _ in files) < _SMALL_CORPUS:
            processes = 0  # it would take as long to start them
        with new_folder(target, overwrite=overwrite, resume=bool(files) and not overwrite) as folder:
            with closing(IndexBuilder(folder, k1, b, source=files, processes=processes)) as builder:
                rows: Iterable[tuple[Any, bytes | None, str]] = (
                    read_objects(docs, skip=builder.documents)
                    if isinstance(docs, (str, Path))
                    else ((row, None, "") for row in docs)
                )
                builder.add_all(rows, progress=progress)
                builder.finish(progress=progress)
            if target is None:
                retriever = cls(folder, engine=engine, verify=False)
                retriever.path = None
                return retriever
        return cls(target, engine=engine, verify=False)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.documents)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError("an index that was built without a path cannot be pickled")
        return partial(type(self), engine=self._engine, verify=False), (self.path.resolve(),)

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id, as it was indexed."""
        return self.documents.document(doc_id)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the best k documents, or fewer if fewer contain a term of the query, which has no operators."""
        numbers, scores = self.search_numbers(query, k)
        return list(zip(self.documents.ids(numbers.tolist()), scores.tolist(), strict=True))

    def search_numbers(self, query: str, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Search; return the numbers of the documents, in the order of indexing from 0, and their scores."""
        check_request(query, k)
        terms = [number for number in map(self._term, tokenize(query)) if number >= 0]
        if not terms:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        counts = Counter(terms)
        k = min(k, len(self))
        return self._search_numba(counts, k) if self._use_numba(counts) else self._search_numpy(counts, k)

    def _use_numba(self, counts: Counter[int]) -> bool:
        if self._compiled is None:
            if self._engine != "auto" or len(self) < _NUMBA_FROM:
                return False
            if importlib.util.find_spec("numba") is None:
                self._engine = "numpy"
                return False
            self._load_numba()
        if len(counts) * len(self) > 1 << 34:  # the table of terms and windows would be too large
            return False
        return max(counts.values()) <= 2 or all(n & (n - 1) == 0 for n in counts.values())

    def _load_numba(self) -> None:
        from agent_envs.retrieval.bm25 import numba_search

        self._compiled = numba_search.top_documents
        self._window = numba_search.WINDOW

    def _search_numba(self, counts: Counter[int], k: int) -> tuple[np.ndarray, np.ndarray]:
        try:
            scratch = self._free_windows.pop()
        except IndexError:
            size = self._window
            scratch = np.zeros(size), np.empty(size + 1, np.int32), np.empty(size + 1, np.int32)
        best: tuple[np.ndarray, np.ndarray] = self._compiled(
            np.fromiter(counts, np.int64, len(counts)),
            np.fromiter(counts.values(), np.float64, len(counts)),
            self._offsets, self._docs, self._impacts, self._largest, self._ranks, k, *scratch,
        )  # fmt: skip
        if len(self._free_windows) < (os.cpu_count() or 1):
            self._free_windows.append(scratch)
        return best

    def _postings(self, term: int, boost: int) -> _Postings:
        begin, end = int(self._offsets[term]), int(self._offsets[term + 1])
        docs, impacts = self._docs[begin:end], self._impacts[begin:end]
        if boost == 1:
            return _Postings(docs, impacts, float(self._largest[term]))
        weight = np.float32(boost) * self._idf[term]
        impacts = impacts_of(weight, self._frequencies[begin:end], self._inverse[self._norms[docs]])
        return _Postings(docs, impacts, float(impacts.max()))

    def _search_numpy(self, counts: Counter[int], k: int) -> tuple[np.ndarray, np.ndarray]:
        """MaxScore over whole lists of postings (Turtle and Flood 1995).

        Terms add to an array of scores in the order of their bounds, until the remaining terms cannot lift a new
        document among the best k; these are then looked up only for the documents that still can reach them.
        """
        postings = sorted((self._postings(t, n) for t, n in counts.items()), key=lambda p: -p.bound)
        rest = sum(p.bound for p in postings)
        try:
            scores = self._free.pop()
        except IndexError:
            scores = np.zeros(len(self))
        met = np.empty(0, np.int32)
        limit = 0.0  # a document below this score is not among the best
        used = 0
        for docs, impacts, bound in postings:
            if len(met) >= k and len(docs) > 500:  # long enough to gain from a limit
                limit = np.partition(scores[met], len(met) - k)[len(met) - k] * _SLACK
                if rest < limit:
                    break
            before = scores[docs]
            scores[docs] = before + impacts
            met = np.concatenate([met, docs[before == 0]]) if len(met) else docs
            rest -= bound
            used += 1
        candidates, sums = met, scores[met]
        scores[met] = 0
        if len(self._free) < (os.cpu_count() or 1):
            self._free.append(scores)
        if used < len(postings):
            candidates, sums = _look_up(candidates, sums, postings[used:], rest, limit)
        totals = sums.astype(np.float32)
        if len(totals) > k:
            enough = totals >= np.partition(totals, len(totals) - k)[len(totals) - k]
            candidates, totals = candidates[enough], totals[enough]
        order = np.lexsort((self._ranks[candidates], -totals))[:k]
        return candidates[order], totals[order]


def _term_number(terms: Blob, token: str) -> int:
    """Return the number of a token's term in the index, or -1."""
    term = term_of(token)
    return terms.find(term.encode("utf-8", "surrogatepass")) if term else -1


def _look_up(
    docs: np.ndarray, scores: np.ndarray, postings: Sequence[_Postings], rest: float, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Add the impacts of some terms to the scores of documents, and drop documents that cannot reach the limit.

    `docs` has each candidate once, `scores` their float64 scores so far; `rest` is the sum of the terms' bounds.
    """
    for p in postings:
        enough = scores + rest >= limit
        docs, scores = docs[enough], scores[enough]
        at = np.minimum(np.searchsorted(p.docs, docs), len(p.docs) - 1)
        scores += np.where(p.docs[at] == docs, p.impacts[at], np.float32(0))
        rest -= p.bound
    return docs, scores
