"""Search by vectors from any encoder: exact inner products with numpy, or FAISS if it is installed."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from agent_envs.checks import choice
from agent_envs.errors import BackendError, needs_extra
from agent_envs.retrieval.retriever import Hit, check_request
from agent_envs.retrieval.storage import (
    DocumentStore,
    FileWriter,
    RowWriter,
    map_array,
    new_folder,
    read_manifest,
    write_manifest,
)

__all__ = ["DenseRetriever", "Encoder"]

FORMAT = "agent_envs.dense"
VERSION = 1

Encoder = Callable[[list[str]], Any]
"""Texts -> array [texts, dimensions], such as `SentenceTransformer(...).encode`."""

_ENGINES = ("auto", "faiss", "numpy")
_CHUNK = 65_536  # documents per matrix product


class DenseRetriever:
    """Finds the documents whose vectors have the largest inner product with the query's.

    Make one with `build` or `open`. HotpotQA's released recipe is BAAI/bge-large-en-v1.5 with the `query_prefix`
    "Represent this sentence for searching relevant passages: ".

    >>> letters = lambda texts: [[text.lower().count(c) for c in "abcdefgh"] for text in texts]
    >>> retriever = DenseRetriever.build([{"id": "1", "text": "cabbage"}, {"id": "2", "text": "hedge"}], letters)
    >>> retriever.search("egg", k=1)
    [('2', 4.0)]

    Args:
        folder: The index.
        encoder: Encodes queries, in the threads that search.
        query_prefix: Put before every query.
        engine: "numpy" (exact), "faiss" (a flat index in memory, also exact), or "auto": FAISS if it is installed.
        verify: Whether to compare the checksums of all files.

    Raises:
        DataError: There is no index, or it has another version or was changed.
    """

    def __init__(
        self, folder: str | Path, encoder: Encoder, *, query_prefix: str = "", engine: str = "auto", verify: bool = True
    ) -> None:
        choice("engine", engine, _ENGINES)
        folder = Path(folder)
        manifest = read_manifest(folder, FORMAT, VERSION, verify=verify)
        self.path: Path | None = folder
        self.query_prefix = query_prefix
        self._encoder = encoder
        self._store = DocumentStore(folder)
        self._ranks = map_array(folder / "ids.rank", "<i4")
        # [documents, dimensions]
        self._vectors = map_array(folder / "vectors", "<f4").reshape(-1, manifest["dimensions"])
        use_faiss = engine == "faiss" or (engine == "auto" and importlib.util.find_spec("faiss") is not None)
        self._faiss: Any = None
        if use_faiss:
            with needs_extra("search", "faiss-cpu"):
                import faiss
            self._faiss = faiss.IndexFlatIP(self._vectors.shape[1])
            self._faiss.add(self._vectors)

    @classmethod
    def open(cls, path: str | Path, encoder: Encoder, **options: Any) -> DenseRetriever:
        """Open the index at `path`; the options are those of the class."""
        return cls(path, encoder, **options)

    @classmethod
    def build(
        cls,
        docs: Iterable[Mapping[str, Any]],
        encoder: Encoder,
        path: str | Path | None = None,
        *,
        batch_size: int = 256,
        overwrite: bool = False,
        progress: bool = False,
        **options: Any,
    ) -> DenseRetriever:
        """Encode rows and open the index.

        Args:
            docs, path, overwrite, progress: As for `BM25Retriever.build`.
            encoder: Encodes contents and queries.
            batch_size: Number of texts that the encoder gets at a time.
            options: `query_prefix` and `engine`, as in the class.

        Raises:
            ConfigError: `path` exists.
            DataError: A row is invalid, an id occurs twice, or there are no rows.
            BackendError: The encoder did not return one vector for each text.
        """
        target = None if path is None else Path(path)
        with new_folder(target, overwrite=overwrite) as folder:
            _write(folder, docs, encoder, batch_size, progress)
            if target is None:
                retriever = cls(folder, encoder, verify=False, **options)
                retriever.path = None
                return retriever
        return cls(target, encoder, verify=False, **options)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._store)

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id."""
        return self._store.document(doc_id)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the k documents with the largest inner products."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Return the results of each query; all queries are encoded together."""
        for query in queries:
            check_request(query, k)
        if not queries:
            return []
        vectors = _encode(self._encoder, [self.query_prefix + query for query in queries])
        if vectors.shape[1] != self._vectors.shape[1]:
            raise BackendError(
                f"the encoder returned {vectors.shape[1]} dimensions, but the index has {self._vectors.shape[1]}"
            )
        k = min(k, len(self))
        if self._faiss is not None:
            scores, numbers = self._faiss.search(vectors, k)
            candidates = list(zip(numbers, scores, strict=True))
        else:
            candidates = [self._exact(vector, k) for vector in vectors]
        results = []
        for numbers, scores in candidates:
            order = np.lexsort((self._ranks[numbers], -scores))[:k]
            results.append(list(zip(self._store.ids(numbers[order].tolist()), scores[order].tolist(), strict=True)))
        return results

    def _exact(self, vector: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return candidates that include the best k: the best k of each chunk, with all ties of the last."""
        numbers, scores = [], []
        for first in range(0, len(self), _CHUNK):
            chunk = self._vectors[first : first + _CHUNK] @ vector
            if len(chunk) > k:
                best = np.flatnonzero(chunk >= np.partition(chunk, len(chunk) - k)[len(chunk) - k])
            else:
                best = np.arange(len(chunk))
            numbers.append(best + first)
            scores.append(chunk[best])
        return np.concatenate(numbers), np.concatenate(scores)


def _encode(encoder: Encoder, texts: list[str]) -> np.ndarray:
    vectors = np.asarray(encoder(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BackendError(
            f"the encoder returned {vectors.shape} for {len(texts)} texts, or numbers that are not finite"
        )
    return vectors


def _write(folder: Path, docs: Iterable[Mapping[str, Any]], encoder: Encoder, batch_size: int, progress: bool) -> None:
    dimensions = 0
    bar = iter(tqdm(docs, unit=" documents", unit_scale=True, disable=not progress))
    with closing(RowWriter(folder)) as rows, FileWriter(folder / "vectors") as vectors:
        while contents := [rows.add(row) for row in itertools.islice(bar, batch_size)]:
            rows.flush()
            encoded = _encode(encoder, contents)
            if dimensions and encoded.shape[1] != dimensions:
                raise BackendError(f"the encoder returned {encoded.shape[1]} dimensions after {dimensions}")
            dimensions = encoded.shape[1]
            vectors.write(encoded.astype("<f4"))
        files = {**rows.finish(), "vectors": vectors.close()}
    sizes = {"documents": rows.count, "dimensions": dimensions}
    write_manifest(folder, {"format": FORMAT, "version": VERSION, **sizes, "files": files})
