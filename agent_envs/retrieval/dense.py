"""Search by vectors from any encoder: exact inner products with numpy, or FAISS if it is installed.

The folder of an index is that of Agent-R1's corpora, which are opened unchanged:

    NAME.jsonl      the passages, a row a line; a row without an id has the number of its line, counted from 0
    NAME.npy        their vectors, [passages, dimensions]; without it
    index.bin       the same in a flat FAISS index of inner products
    index.json      of an index that was built here: what made it
"""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from agent_envs.checks import choice, shown
from agent_envs.errors import BackendError, ConfigError, DataError, needs_extra
from agent_envs.files import open_data, read_text, write_text
from agent_envs.per_process import Shared
from agent_envs.retrieval.corpus import document_title, file_marks, read_objects, row_contents, row_id
from agent_envs.retrieval.retriever import Hit, Retriever, check_request
from agent_envs.retrieval.storage import FileWriter, map_array, new_folder, write_manifest

_log = logging.getLogger(__name__)

Encoder = Callable[[list[str]], Any]
"""Texts -> array [texts, dimensions], such as a `SentenceEncoder`."""

_ENGINES = ("auto", "faiss", "numpy")
_CHUNK = 65_536  # passages per matrix product, with 64 queries
_FAISS_FLAT = struct.Struct("<4siqqq?iQ")  # kind, dimensions, passages, unused (2), trained, metric, numbers behind
_STATE = "state.json"


class DenseRetriever(Retriever, Shared):
    """Finds the passages whose vectors have the largest inner product with the query's; ties by their place.

    Make one with `build`, from its folder, or by name: `open_retriever("dense:FOLDER#model=...")`. Passages are encoded
    as "title text". Vectors and passages are mapped, so that all processes of a machine share one copy of them.

    >>> letters = lambda texts: [[text.lower().count(c) for c in "abcdefgh"] for text in texts]
    >>> retriever = DenseRetriever.build([{"id": "1", "text": "cabbage"}, {"id": "2", "text": "hedge"}], letters)
    >>> retriever.search("egg", k=1)
    [('2', 4.0)]

    Args:
        folder: The corpus and its vectors.
        encoder: Encodes queries, in the threads that search.
        query_prefix: Put before every query.
        engine: "numpy", "faiss", or "auto": FAISS if it is installed. Results are the same.

    Raises:
        DataError: A file is missing or in another format, or there is not one vector for each passage.
    """

    def __init__(self, folder: str | Path, encoder: Encoder, *, query_prefix: str = "", engine: str = "auto") -> None:
        choice("engine", engine, _ENGINES)
        self.path: Path | None = Path(folder)
        self.query_prefix = query_prefix
        self._encoder = encoder
        corpus = _corpus_of(self.path)
        self._vectors = _read_vectors(self.path, corpus.stem)
        passages, dimensions = self._vectors.shape
        _log.info("%s: %s", folder, memory_of(folder))
        self._passages = _Passages(corpus)
        if len(self._passages) != passages:
            raise DataError(f"{corpus} has {len(self._passages)} passages, but there are {passages} vectors beside it")
        first = _encode(encoder, [self._passages.text(0)], dimensions)[0]
        if np.linalg.norm(first - self._vectors[0]) > 0.1 * np.linalg.norm(first):
            _log.warning("%s: its first vector is not that of its first passage; it is another encoder's", folder)
        self._faiss: Any = None
        if engine == "faiss" or (engine == "auto" and importlib.util.find_spec("faiss") is not None):
            with needs_extra("search", "faiss-cpu"):
                import faiss
            self._faiss = faiss

    @classmethod
    def build(
        cls,
        docs: Iterable[Mapping[str, Any]] | str | Path,
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
            docs, path, overwrite, progress: As for `BM25Retriever.build`. An interrupted build of files resumes after
                the last batch if the encoder has the same `repr`.
            encoder: Encodes passages and queries.
            batch_size: Number of texts that the encoder gets at a time.
            options: `query_prefix` and `engine`, as in the class.

        Raises:
            ConfigError: `path` exists.
            DataError: A row is invalid, an id occurs twice, or there are no rows.
            BackendError: The encoder did not return one vector for each text.
        """
        target = None if path is None else Path(path)
        resume = isinstance(docs, (str, Path)) and not overwrite
        with new_folder(target, overwrite=overwrite, resume=resume) as folder:
            _write(folder, docs, encoder, batch_size, progress)
            if target is None:
                retriever = cls(folder, encoder, **options)
                retriever.path = None
                return retriever
        return cls(target, encoder, **options)

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self._passages)

    def document(self, doc_id: str) -> dict[str, Any]:
        """Return the row with this id."""
        return self._passages.row(self._passages.number(doc_id))

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """Return the k passages with the largest inner products."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Return the results of each query; all queries are encoded together."""
        for query in queries:
            check_request(query, k)
        if not queries:
            return []
        vectors = _encode(self._encoder, [self.query_prefix + query for query in queries], self._vectors.shape[1])
        k = min(k, len(self))
        step = max(1, 64 * _CHUNK // max(64, len(queries)))
        near: list[list[np.ndarray]] = [[] for _ in queries]
        for first in range(0, len(self), step):
            chunk = np.require(self._vectors[first : first + step], "<f4", ["C", "A"])  # a copy only if it has to be
            for found, numbers in zip(near, self._near(chunk, vectors, min(k, len(chunk))), strict=True):
                found.append(numbers + first)
        return [self._best(vector, np.concatenate(found), k) for vector, found in zip(vectors, near, strict=True)]

    def _near(self, chunk: np.ndarray, vectors: np.ndarray, k: int) -> list[np.ndarray]:
        """Return for each query the rows of a chunk that may be among its best k, whatever an engine's rounding."""
        if self._faiss is None:
            scores = vectors @ chunk.T  # [queries, rows]
            return [np.flatnonzero(row >= _cut(row, np.partition(row, -k)[-k])) for row in scores]
        wanted = k
        while True:
            wanted = min(2 * wanted + 16, len(chunk))
            scores, numbers = self._faiss.knn(vectors, chunk, wanted, metric=self._faiss.METRIC_INNER_PRODUCT)
            cuts = [_cut(row, row[k - 1]) for row in scores]
            if wanted == len(chunk) or all(row[-1] < cut for row, cut in zip(scores, cuts, strict=True)):
                return [of[row >= cut] for of, row, cut in zip(numbers, scores, cuts, strict=True)]

    def _best(self, vector: np.ndarray, numbers: np.ndarray, k: int) -> list[Hit]:
        """Return the best k of some passages, whose scores are computed one by one: equal vectors have equal ones."""
        scores = (np.asarray(self._vectors[numbers], np.float64) * vector).sum(axis=1).astype(np.float32)
        order = np.lexsort((numbers, -scores))[:k]
        return [(self._passages.id(int(numbers[place])), float(scores[place])) for place in order]


def memory_of(folder: str | Path) -> str:
    """Return what an index takes of the machine's memory, without opening it. Raises DataError as the class does."""
    corpus = _corpus_of(Path(folder))
    vectors = _read_vectors(corpus.parent, corpus.stem)
    return (
        f"{len(vectors)} passages; {vectors.nbytes / 1e9:.3f} GB of vectors, all of which a search reads, and "
        f"{corpus.stat().st_size / 1e9:.3f} GB of texts, mapped once for all processes; "
        f"{len(vectors) * 8e-9:.3f} GB and the encoder in each process"
    )


class _Passages:
    """The rows of a mapped corpus, by number and by id."""

    def __init__(self, path: Path) -> None:
        self._path, self._text = path, map_array(path, "u1")
        step = 1 << 26
        ends = [np.flatnonzero(self._text[a : a + step] == 10) + (a + 1) for a in range(0, len(self._text), step)]
        self._offsets = np.unique(np.concatenate([[0], *ends, [len(self._text)]]))  # the last line may have no end
        self._numbers: dict[str, int] | None = None
        if len(self) and "id" in self._read(0):
            self._numbers = {row_id(self._read(number), self._where(number)): number for number in range(len(self))}
            if len(self._numbers) < len(self):
                raise DataError(f"{path}: an id occurs twice; expected another one in each row, or none in any")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _where(self, number: int) -> str:
        return f"{self._path}, line {number + 1}"

    def _read(self, number: int) -> dict[str, Any]:
        try:
            row = json.loads(self._text[self._offsets[number] : self._offsets[number + 1]].tobytes())
        except (ValueError, RecursionError) as e:
            raise DataError(f"{self._where(number)}: not JSON ({e})") from e
        row_contents(row, self._where(number))
        return row

    def id(self, number: int) -> str:
        """Return the id of a passage."""
        return str(number) if self._numbers is None else row_id(self._read(number), self._where(number))

    def number(self, doc_id: str) -> int:
        """Return the number of a passage. Raises ConfigError if none has this id."""
        if self._numbers is not None and doc_id in self._numbers:
            return self._numbers[doc_id]
        if self._numbers is None and doc_id.isdecimal() and len(doc_id) < 12 and int(doc_id) < len(self):
            return int(doc_id)
        raise ConfigError(f"no document has the id {shown(doc_id)}")

    def row(self, number: int) -> dict[str, Any]:
        """Return a passage with its id."""
        return {"id": str(number), **self._read(number)}

    def text(self, number: int) -> str:
        """Return what is encoded of a passage: title and text."""
        return " ".join(document_title(self._read(number))).strip()


def _cut(scores: np.ndarray, kth: float) -> float:
    """Return the score that a row must have to be among the best k, less what engines may differ by."""
    return float(kth) - 1e-5 * float(np.abs(scores).max())


def _corpus_of(folder: Path) -> Path:
    files = sorted(folder.glob("*.jsonl")) if folder.is_dir() else []
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise DataError(f"{folder} must be a folder with one corpus, a .jsonl file, and its vectors; found {names}")
    return files[0]


def _read_vectors(folder: Path, name: str) -> np.ndarray:
    """Map the vectors of a corpus, [passages, dimensions]."""
    path, flat = folder / f"{name}.npy", folder / "index.bin"
    if not path.exists() and not flat.exists():
        raise DataError(
            f"{folder} has no vectors, {name}.npy or index.bin; make them with: "
            f"agentr1 index {folder / name}.jsonl --dense --out ANOTHER_FOLDER"
        )
    try:
        if path.exists():
            array: np.ndarray = np.lib.format.open_memmap(path, mode="r")
            if array.ndim != 2 or array.dtype.kind != "f":
                raise ValueError(f"got {array.dtype} {array.shape}")
            return array
        path = flat
        with open_data(path) as file:
            header = file.read(_FAISS_FLAT.size)
        kind, dimensions, passages, *_, metric, numbers = _FAISS_FLAT.unpack(header)
        if kind != b"IxFI" or metric != 0 or numbers != dimensions * passages or not numbers:
            raise ValueError(f"got a FAISS index of the kind {kind!r}")
        return np.memmap(path, "<f4", "r", len(header), (passages, dimensions))
    except (OSError, ValueError, struct.error) as e:
        raise DataError(
            f"{path} cannot be read ({e}); expected an array of numbers [passages, dimensions] in a .npy file, or a "
            "flat FAISS index of inner products"
        ) from e


def _encode(encoder: Encoder, texts: list[str], dimensions: int) -> np.ndarray:
    """Return the vectors of texts; `dimensions` is 0 where they are not known."""
    vectors = np.asarray(encoder(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BackendError(
            f"the encoder returned {vectors.shape} for {len(texts)} texts, or numbers that are not finite"
        )
    if dimensions and vectors.shape[1] != dimensions:
        raise BackendError(f"the encoder returned {vectors.shape[1]} dimensions, but the index has {dimensions}")
    return vectors


def _write(
    folder: Path, docs: Iterable[Mapping[str, Any]] | str | Path, encoder: Encoder, batch_size: int, progress: bool
) -> None:
    """Write the corpus and then its vectors, from where an interrupted build of the same files stopped."""
    settings = [repr(encoder), *(file_marks(docs) if isinstance(docs, (str, Path)) else ())]
    state: dict[str, Any] = {}
    with suppress(FileNotFoundError, ValueError):
        state = json.loads(read_text(folder / _STATE))
    if state.get("settings") != json.loads(json.dumps(settings)):
        with FileWriter(folder / "corpus.jsonl") as corpus:
            for line in _lines(docs):
                corpus.write(line + b"\n")
            state = {"settings": settings, "corpus": corpus.close(), "dimensions": 0, "done": 0, "bytes": 0}
        write_text(folder / _STATE, json.dumps(state))
    passages = _Passages(folder / "corpus.jsonl")
    if not len(passages):
        raise DataError("there are no documents to index")
    dimensions = state["dimensions"]
    bar = tqdm(total=len(passages), initial=state["done"], unit=" passages", unit_scale=True, disable=not progress)
    with bar, FileWriter(folder / "corpus.npy", state["bytes"]) as vectors:
        for first in range(state["done"], len(passages), batch_size):
            last = min(first + batch_size, len(passages))
            encoded = _encode(encoder, [passages.text(number) for number in range(first, last)], dimensions)
            if not dimensions:
                dimensions = encoded.shape[1]
                header = io.BytesIO()
                shape = {"descr": "<f4", "fortran_order": False, "shape": (len(passages), dimensions)}
                np.lib.format.write_array_header_1_0(header, shape)
                vectors.write(header.getvalue())
            vectors.write(encoded.astype("<f4"))
            vectors.flush()
            write_text(
                folder / _STATE,
                json.dumps({**state, "dimensions": dimensions, "done": last, "bytes": vectors.size}),
            )
            bar.update(last - first)
        files = {"corpus.jsonl": state["corpus"], "corpus.npy": vectors.close()}
    (folder / _STATE).unlink()
    made = {"documents": len(passages), "dimensions": dimensions, "encoder": repr(encoder)}
    write_manifest(folder, {"format": "agent_envs.dense", "version": 1, **made, "files": files})


def _lines(docs: Iterable[Mapping[str, Any]] | str | Path) -> Iterable[bytes]:
    if isinstance(docs, (str, Path)):
        for row, line, where in read_objects(docs):
            row_contents(row, where)
            yield line
        return
    for number, row in enumerate(docs):
        row_contents(row, f"document {number}")
        try:
            yield json.dumps(row).encode()
        except (TypeError, ValueError, RecursionError) as e:
            raise DataError(f"document {number}: the row cannot be written as JSON ({e})") from e
