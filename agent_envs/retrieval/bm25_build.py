"""Building a BM25 index: one pass over the rows in segments of bounded size, then one merge over the terms.

A segment holds the postings of some documents, sorted by term. After each segment what was done is written down, so
that a build that was stopped goes on from there. The merge reads every segment once, in the order of the terms, and
writes, for each posting, the score it adds: the float32 number that Lucene's BM25Similarity computes as it searches.

Files of an index besides those of `storage`:

    terms.bin, terms.offsets        terms in the order of their UTF-8 bytes
    terms.idf, terms.max            float32 each: inverse document frequency, the largest impact among the postings
    postings.offsets                where each term's postings begin
    postings.docs                   int32 document numbers, ascending within a term
    postings.impacts                float32 scores of a query that names the term once
    postings.frequencies            how often the term occurs in the document; unsigned, of the width the manifest says
    documents.norms                 a byte for each document: its length as Lucene keeps it
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from tqdm import tqdm

from agent_envs.errors import ConfigError, DataError
from agent_envs.retrieval.analysis import ANALYZER, term_of, tokenize
from agent_envs.retrieval.corpus import row_contents, row_id
from agent_envs.retrieval.storage import (
    FileWriter,
    encode_row,
    offsets_of,
    write_array,
    write_id_order,
    write_manifest,
)

__all__ = ["FORMAT", "VERSION", "IndexBuilder", "check_parameters", "impacts_of", "inverse_norms", "norm_lengths"]

FORMAT = "agent_envs.bm25"
VERSION = 1

_SEGMENT_TOKENS = 4_000_000
_GROUP_POSTINGS = 4_000_000
_TERMS_BYTES = 1 << 20  # of each segment's terms in memory while they are merged
_STATE = "state.json"
_TINY = np.float32(1e-30)  # no impact is 0, so that a score of 0 means that a document was not met


def check_parameters(k1: float, b: float) -> None:
    """Raise ConfigError unless k1 is finite and not negative and b lies in 0..1, which is what Lucene takes."""
    if not (0 <= k1 < float("inf") and 0 <= b <= 1):
        raise ConfigError(f"BM25 needs k1 >= 0 and 0 <= b <= 1, got k1={k1!r}, b={b!r}")


def norm_lengths() -> np.ndarray:
    """Length of a document for each of the 256 norms (Lucene's SmallFloat.byte4ToInt), int64."""

    def decoded(code: int) -> int:
        bits, shift = code & 7, (code >> 3) - 1
        return bits if shift == -1 else (bits | 8) << shift

    return np.array([code if code < 24 else 24 + decoded(code - 24) for code in range(256)], np.int64)


def inverse_norms(k1: float, b: float, average_length: float) -> np.ndarray:
    """1 / (k1 * (1 - b + b * length / average)) for each of the 256 norms, float32 at every step as in Lucene."""
    f = np.float32
    with np.errstate(divide="ignore"):
        norms = f(1) / (f(k1) * ((f(1) - f(b)) + f(b) * norm_lengths().astype(f) / f(average_length)))
    return np.asarray(norms, f)


def _frequency_type(largest: int) -> str:
    return "<u1" if largest < 1 << 8 else "<u2" if largest < 1 << 16 else "<u4"


class _TermNumbers(dict[str, int]):
    """Token as written -> number of its term in this segment, -1 where it is not indexed."""

    def __init__(self, term: Any) -> None:
        super().__init__()
        self.vocabulary: dict[str, int] = {}
        self._term = term

    def __missing__(self, token: str) -> int:
        term = self._term(token)
        number = self.vocabulary.setdefault(term, len(self.vocabulary)) if term else -1
        self[token] = number
        return number


class IndexBuilder:
    """Builds an index in a folder of its own.

    Args:
        folder: An empty folder, or one that a stopped build of the same rows has left.
        k1: How slowly repeated terms stop counting.
        b: How much long documents are marked down.
        source: What the rows are, as JSON; a stopped build goes on only where this is what it was.
        segment_tokens: Tokens in a segment; memory is about 60 bytes for each.
    """

    def __init__(
        self, folder: Path, k1: float, b: float, *, source: object = None, segment_tokens: int = _SEGMENT_TOKENS
    ) -> None:
        check_parameters(k1, b)
        self.folder, self.k1, self.b = folder, float(k1), float(b)
        self._segment_tokens = segment_tokens
        self._settings = json.loads(json.dumps([VERSION, ANALYZER, segment_tokens, source]))
        self._term = lru_cache(1 << 19)(term_of)
        self._segments, self.documents, sizes = self._read_state()
        self._writers = {name: FileWriter(folder / name, sizes.get(name, 0)) for name in ("documents.bin", "ids.bin")}

    def close(self) -> None:
        """Close the files it writes to."""
        for writer in self._writers.values():
            writer.close()

    def _read_state(self) -> tuple[int, int, dict[str, int]]:
        try:
            state = json.loads((self.folder / _STATE).read_text(encoding="utf-8"))
            if state["settings"] == self._settings:
                return state["segments"], state["documents"], state["bytes"]
        except (FileNotFoundError, ValueError):
            pass
        return 0, 0, {}

    def add_all(self, rows: Iterable[Mapping[str, Any]], *, progress: bool = False) -> None:
        """Index rows; a builder that goes on from a stopped build has to be given what follows `documents`.

        Raises:
            DataError: A row without id or text, or one that JSON cannot hold.
        """
        segment = _Segment(self._term)
        bar = tqdm(rows, initial=self.documents, unit=" documents", unit_scale=True, disable=not progress)
        for number, row in enumerate(bar, self.documents):
            where = f"document {number}"
            doc_id, contents = row_id(row, where), row_contents(row, where)
            segment.documents.append(encode_row(row, where))
            segment.ids.append(doc_id.encode("utf-8", "surrogatepass"))
            segment.add(contents)
            if len(segment.tokens) >= self._segment_tokens:
                self._flush(segment)
                segment = _Segment(self._term)
        if segment.ids:
            self._flush(segment)

    def _part(self, name: str, segment: int) -> Path:
        return self.folder / f"part-{segment:05d}.{name}"

    def _flush(self, segment: _Segment) -> None:
        """Write a segment, and then that it is written."""
        number = self._segments
        terms, counts, docs, frequencies, lengths = segment.postings(self.documents)
        self._part("terms", number).write_bytes("\n".join([*terms, ""]).encode("utf-8", "surrogatepass"))
        for name, values in (("counts", counts), ("docs", docs), ("frequencies", frequencies), ("lengths", lengths)):
            np.save(self._part(f"{name}.npy", number), values)
        for name, items in (("documents", segment.documents), ("ids", segment.ids)):
            np.save(self._part(f"{name}.npy", number), np.fromiter(map(len, items), np.int64, len(items)))
            self._writers[f"{name}.bin"].write(b"".join(items))
            self._writers[f"{name}.bin"].flush()
        self._segments += 1
        self.documents += len(segment.ids)
        state = {
            "settings": self._settings,
            "segments": self._segments,
            "documents": self.documents,
            "bytes": {name: writer.size for name, writer in self._writers.items()},
        }
        (self.folder / f"{_STATE}.new").write_text(json.dumps(state), encoding="utf-8")
        os.replace(self.folder / f"{_STATE}.new", self.folder / _STATE)

    def finish(self, *, progress: bool = False) -> None:
        """Merge the segments, write the manifest, remove the segments.

        Raises:
            DataError: There are no documents, or an id occurs twice.
        """
        if not self.documents:
            raise DataError("there are no documents to index")
        files = {name: writer.close() for name, writer in self._writers.items()}

        def save(name: str, values: np.ndarray) -> None:
            files.update(write_array(self.folder, name, values))

        for name in ("documents", "ids"):
            save(f"{name}.offsets", offsets_of(self._all(f"{name}.npy")).astype("<i8"))
        files.update(write_id_order(self.folder))

        lengths = self._all("lengths.npy").astype(np.int64)
        norms = (np.searchsorted(norm_lengths(), lengths, side="right") - 1).astype(np.uint8)
        save("documents.norms", norms)
        # Documents without a term are not there for Lucene's statistics.
        field_documents, tokens = int((lengths > 0).sum()), int(lengths.sum())
        average = float(np.float32(tokens / field_documents)) if field_documents else 1.0

        term_lengths, numbers = self._vocabulary(files)
        terms = len(term_lengths)
        save("terms.offsets", offsets_of(term_lengths).astype("<i8"))
        counts = [np.load(self._part("counts.npy", s)) for s in range(self._segments)]
        found = np.zeros(terms, np.int64)  # documents with the term
        for number, count in zip(numbers, counts, strict=True):
            found[number] += count
        offsets = offsets_of(found)
        idf = np.log(1 + (field_documents - found + 0.5) / (found + 0.5)).astype("<f4")
        save("terms.idf", idf)
        save("postings.offsets", offsets.astype("<i8"))
        dtype = self._write_postings(
            offsets, idf, norms, inverse_norms(self.k1, self.b, average), numbers, counts, files, progress
        )
        for path in [*self.folder.glob("part-*"), self.folder / _STATE]:
            path.unlink()
        write_manifest(
            self.folder,
            {
                "format": FORMAT,
                "version": VERSION,
                "analyzer": ANALYZER,
                "k1": self.k1,
                "b": self.b,
                "documents": self.documents,
                "average_length": average,
                "tokens": tokens,
                "terms": terms,
                "postings": int(offsets[-1]),
                "frequency_type": dtype,
                "files": files,
            },
        )

    def _all(self, name: str) -> np.ndarray:
        return np.concatenate([np.load(self._part(name, s)) for s in range(self._segments)])

    def _vocabulary(self, files: dict[str, Any]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Write the terms of all segments; their lengths, and for each segment the numbers of its terms.

        All segments are read side by side, so much of each at a time that the terms up to some term are complete.
        """
        lengths = array("q")
        with ExitStack() as files_open:
            terms = files_open.enter_context(FileWriter(self.folder / "terms.bin"))
            readers = [files_open.enter_context(_TermReader(self._part("terms", s))) for s in range(self._segments)]
            numbers = [array("q") for _ in readers]
            while sum(reader.fill() for reader in readers):
                last = min((r.terms[-1] for r in readers if r.more), default=None)
                taken = [reader.take(last) for reader in readers]
                union = sorted(set().union(*taken))
                number = dict(zip(union, range(len(lengths), len(lengths) + len(union)), strict=True))
                for found, part in zip(numbers, taken, strict=True):
                    found.extend(map(number.__getitem__, part))
                lengths.extend(map(len, union))
                terms.write(b"".join(union))
            files["terms.bin"] = terms.close()
        return np.array(lengths, np.int64), [np.array(n, np.int64) for n in numbers]

    def _write_postings(
        self,
        offsets: np.ndarray,
        idf: np.ndarray,
        norms: np.ndarray,
        inverse: np.ndarray,
        numbers: list[np.ndarray],
        counts: list[np.ndarray],
        files: dict[str, Any],
        progress: bool,
    ) -> str:
        """Merge postings, some terms at a time; the dtype of the frequencies."""
        segments = range(self._segments)
        starts = [offsets_of(count) for count in counts]
        docs = [np.load(self._part("docs.npy", s), mmap_mode="r") for s in segments]
        frequencies = [np.load(self._part("frequencies.npy", s), mmap_mode="r") for s in segments]
        dtype = max((f.dtype.str.replace("|", "<") for f in frequencies), key=lambda d: int(d[-1]))
        names = ("postings.docs", "postings.impacts", "postings.frequencies", "terms.max")
        with ExitStack() as opened:
            writers = {name: opened.enter_context(FileWriter(self.folder / name)) for name in names}
            bar = tqdm(total=int(offsets[-1]), unit=" postings", unit_scale=True, disable=not progress, leave=False)
            first, terms = 0, len(offsets) - 1
            while first < terms:
                last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _GROUP_POSTINGS, side="right")) - 1)
                size = int(offsets[last] - offsets[first])
                group_docs, group_frequencies = np.empty(size, "<i4"), np.empty(size, dtype)
                fill = offsets[first:last] - offsets[first]  # where each term's next posting goes
                for s in segments:
                    low, high = np.searchsorted(numbers[s], (first, last))
                    if low == high:
                        continue
                    begin, end = int(starts[s][low]), int(starts[s][high])
                    local, count = numbers[s][low:high] - first, counts[s][low:high]
                    goal = np.repeat(fill[local] - (starts[s][low:high] - begin), count) + np.arange(end - begin)
                    group_docs[goal] = docs[s][begin:end]
                    group_frequencies[goal] = frequencies[s][begin:end]
                    fill[local] += count
                weight = np.repeat(idf[first:last], np.diff(offsets[first : last + 1]))
                impacts = impacts_of(weight, group_frequencies, inverse[norms[group_docs]])
                writers["postings.docs"].write(group_docs)
                writers["postings.impacts"].write(impacts)
                writers["postings.frequencies"].write(group_frequencies)
                writers["terms.max"].write(np.maximum.reduceat(impacts, offsets[first:last] - offsets[first]))
                bar.update(size)
                first = last
            bar.close()
            files.update({name: writer.close() for name, writer in writers.items()})
        return dtype


def impacts_of(weight: np.ndarray | np.float32, frequencies: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """What postings add to a score: weight - weight / (1 + frequency * inverse norm), float32 at every step."""
    one = np.float32(1)
    return np.maximum(weight - weight / (one + frequencies.astype(np.float32) * inverse), _TINY)


class _TermReader:
    """Sorted terms of a segment, some at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.terms: list[bytes] = []  # read and not yet taken
        self.more = True  # whether the file may have more

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def fill(self) -> bool:
        """Read on if there is nothing left; whether there is something."""
        if not self.terms and self.more:
            self.terms = self._file.read(_TERMS_BYTES).split(b"\n")
            self.terms[-1] += self._file.readline().removesuffix(b"\n")
            if not self.terms[-1]:
                self.terms.pop()
            self.more = bool(self.terms)
        return bool(self.terms)

    def take(self, last: bytes | None) -> list[bytes]:
        """The terms up to and including `last`, or all of them."""
        end = len(self.terms) if last is None else bisect_right(self.terms, last)
        taken, self.terms = self.terms[:end], self.terms[end:]
        return taken


class _Segment:
    """Documents whose postings are still in memory."""

    def __init__(self, term: Any) -> None:
        self.ids: list[bytes] = []
        self.documents: list[bytes] = []
        self.tokens: list[int] = []  # numbers of terms, -1 for what is not indexed
        self._numbers = _TermNumbers(term)
        self._lengths = array("q")

    def add(self, contents: str) -> None:
        before = len(self.tokens)
        self.tokens += map(self._numbers.__getitem__, tokenize(contents))
        self._lengths.append(len(self.tokens) - before)

    def postings(self, first: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Terms in order; postings of each, their documents (counted from `first`) and frequencies; lengths."""
        terms = sorted(self._numbers.vocabulary)
        rank = np.empty(len(terms), np.int64)
        rank[[self._numbers.vocabulary[t] for t in terms]] = np.arange(len(terms))
        tokens = np.array(self.tokens, np.int32)
        doc = np.repeat(np.arange(len(self.ids)), np.frombuffer(self._lengths, np.int64))
        kept = tokens >= 0
        doc = doc[kept]
        lengths = np.bincount(doc, minlength=len(self.ids)).astype(np.int32)
        pairs = (rank[tokens[kept]] << 32) | doc  # one number for term and document
        pairs.sort()
        begins = np.flatnonzero(np.diff(pairs, prepend=-1))
        frequencies = np.diff(begins, append=len(pairs))
        pairs = pairs[begins]
        counts = np.bincount(pairs >> 32, minlength=len(terms)).astype(np.int64)
        docs = ((pairs & 0xFFFFFFFF) + first).astype(np.int32)
        largest = int(frequencies.max(initial=0))
        return terms, counts, docs, frequencies.astype(_frequency_type(largest)), lengths
