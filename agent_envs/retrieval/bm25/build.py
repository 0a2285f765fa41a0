"""Builds a BM25 index: one pass over the rows writes segments of bounded size, then one merge goes over the terms.

A segment holds the postings of some documents, sorted by term. Progress is recorded after each segment, so that an
interrupted build can resume. The merge reads every segment once, in the order of the terms, and writes for each posting
the score that it adds: the float32 number that Lucene's BM25Similarity computes while searching.

The files of an index, besides those of `storage`:

    terms.bin, terms.offsets        terms in the order of their UTF-8 bytes
    terms.idf, terms.max            float32 each: inverse document frequency, the largest impact among the postings
    postings.offsets                where each term's postings begin
    postings.docs                   int32 document numbers, ascending within a term
    postings.impacts                float32 scores for a query that contains the term once
    postings.frequencies            how often the term occurs in the document; unsigned, see the manifest for the width
    documents.norms                 a byte for each document: its length as Lucene encodes it
"""

from __future__ import annotations

import json
import os
import uuid
from array import array
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from agent_envs.checks import number
from agent_envs.files import read_text
from agent_envs.retrieval.analysis.analyzer import ANALYZER
from agent_envs.retrieval.bm25.segment import SegmentWriter, TermReader, frequency_type
from agent_envs.retrieval.storage import FileWriter, RowWriter, offsets_of, write_array, write_manifest

FORMAT = "agent_envs.bm25"
VERSION = 1

_SEGMENT_CHARACTERS = 16_000_000
_GROUP_POSTINGS = 4_000_000
_STATE = "state.json"
_TINY = np.float32(1e-30)  # no impact is 0, so a score of 0 means that no term occurs in the document


def check_parameters(k1: float, b: float) -> None:
    """Raise ConfigError unless k1 is finite and not negative and b is from 0 to 1, as in Lucene."""
    number("k1", k1, minimum=0)
    number("b", b, minimum=0, maximum=1)


def norm_lengths() -> np.ndarray:
    """Return the document length of each of the 256 norms (Lucene's SmallFloat.byte4ToInt), int64."""

    def decoded(code: int) -> int:
        bits, shift = code & 7, (code >> 3) - 1
        return bits if shift == -1 else (bits | 8) << shift

    return np.array([code if code < 24 else 24 + decoded(code - 24) for code in range(256)], np.int64)


def inverse_norms(k1: float, b: float, average_length: float) -> np.ndarray:
    """Return 1 / (k1 * (1 - b + b * length / average)) for each of the 256 norms, in float32 as in Lucene."""
    f = np.float32
    with np.errstate(divide="ignore"):
        norms = f(1) / (f(k1) * ((f(1) - f(b)) + f(b) * norm_lengths().astype(f) / f(average_length)))
    return np.asarray(norms, f)


class IndexBuilder:
    """Builds an index in a folder.

    Args:
        folder: An empty folder, or that of an interrupted build of the same rows.
        k1, b: As for `BM25Retriever.build`.
        source: Identifies the rows, as JSON; an interrupted build resumes only if it is unchanged.
        processes: Number of helper processes; 0 for none.
        segment_characters: Characters of text in a segment. Each process needs about 15 bytes of memory for each.
    """

    def __init__(
        self,
        folder: Path,
        k1: float,
        b: float,
        *,
        source: object = None,
        processes: int = 0,
        segment_characters: int = _SEGMENT_CHARACTERS,
    ) -> None:
        check_parameters(k1, b)
        self.folder, self.k1, self.b = folder, float(k1), float(b)
        self._segment_characters = segment_characters
        settings = json.loads(json.dumps([VERSION, ANALYZER, segment_characters, source]))
        # Segment names begin with `build`, so that a process left over from another build cannot overwrite them.
        self._state: dict[str, Any] = {"settings": settings, "build": uuid.uuid4().hex[:8], "segments": 0, "bytes": {}}
        with suppress(FileNotFoundError, ValueError):
            state = json.loads(read_text(folder / _STATE))
            if state["settings"] == settings:
                self._state = state
        self._segments = self._state["segments"]
        self._rows = RowWriter(folder, self._state["bytes"])
        self._segment_writer = SegmentWriter(processes)
        self._waiting = processes + 1
        self._begun: deque[tuple[Future[None], dict[str, Any]]] = deque()  # pending segments, and the state after each

    def close(self) -> None:
        """Close the files and end the helper processes."""
        self._segment_writer.close()
        self._rows.close()

    @property
    def documents(self) -> int:
        """The number of rows that are written."""
        return self._rows.count

    def add_all(self, rows: Iterable[tuple[Any, bytes | None, str]], *, progress: bool = False) -> None:
        """Index rows; in a resumed build, those after `documents`.

        Each comes with the JSON that it was read from, or None, and with its place for errors, or "".

        Raises DataError if a row has no id or text or is not JSON, BackendError if a helper process failed.
        """
        contents: list[str] = []
        characters = 0
        for row, raw, where in tqdm(
            rows, initial=self.documents, unit=" documents", unit_scale=True, disable=not progress
        ):
            contents.append(self._rows.add(row, raw, where))
            characters += len(contents[-1])
            if characters >= self._segment_characters:
                self._begin_segment(contents)
                contents, characters = [], 0
        if contents:
            self._begin_segment(contents)
        while self._begun:
            self._end_segment()

    def _part(self, name: str, segment: int) -> Path:
        return self.folder / f"part-{self._state['build']}-{segment:05d}.{name}"

    def _begin_segment(self, contents: list[str]) -> None:
        name = str(self._part("", self._segments))[:-1]
        done = self._segment_writer.write(name, contents, self.documents - len(contents))
        self._segments += 1
        self._begun.append((done, {**self._state, "segments": self._segments, "bytes": self._rows.flush()}))
        while len(self._begun) > self._waiting or (self._begun and self._begun[0][0].done()):
            self._end_segment()

    def _end_segment(self) -> None:
        """Wait for the oldest segment, then record that it is written."""
        done, state = self._begun.popleft()
        done.result()
        (self.folder / f"{_STATE}.new").write_text(json.dumps(state), encoding="utf-8")
        os.replace(self.folder / f"{_STATE}.new", self.folder / _STATE)

    def finish(self, *, progress: bool = False) -> None:
        """Merge the segments, write the manifest, and remove the segments.

        Raises DataError if there are no documents, or an id occurs twice.
        """
        files = self._rows.finish()

        def save(name: str, values: np.ndarray) -> None:
            files.update(write_array(self.folder, name, values))

        parts = range(self._segments)
        lengths = np.concatenate([np.load(self._part("lengths.npy", s)) for s in parts]).astype(np.int64)
        norms = (np.searchsorted(norm_lengths(), lengths, side="right") - 1).astype(np.uint8)
        save("documents.norms", norms)
        # Lucene's statistics ignore documents without a term.
        field_documents, tokens = int((lengths > 0).sum()), int(lengths.sum())
        average = float(np.float32(tokens / field_documents)) if field_documents else 1.0

        term_lengths, numbers = self._vocabulary(files)
        terms = len(term_lengths)
        save("terms.offsets", offsets_of(term_lengths).astype("<i8"))
        counts = [np.load(self._part("counts.npy", s)).astype(np.int32) for s in parts]
        documents = np.zeros(terms, np.int64)  # with the term
        for own, count in zip(numbers, counts, strict=True):
            documents[own] += count
        offsets = offsets_of(documents)
        idf = np.log(1 + (field_documents - documents + 0.5) / (documents + 0.5)).astype("<f4")
        save("terms.idf", idf)
        save("postings.offsets", offsets.astype("<i8"))
        inverse = inverse_norms(self.k1, self.b, average)
        dtype = self._write_postings(offsets, idf, norms, inverse, numbers, counts, files, progress)
        for path in [*self.folder.glob("part-*"), self.folder / _STATE]:
            path.unlink()
        manifest = {"format": FORMAT, "version": VERSION, "analyzer": ANALYZER, "k1": self.k1, "b": self.b}
        manifest |= {"documents": self.documents, "average_length": average, "tokens": tokens, "terms": terms}
        manifest |= {"postings": int(offsets[-1]), "frequency_type": dtype, "files": files}
        write_manifest(self.folder, manifest)

    def _vocabulary(self, files: dict[str, Any]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Write the terms of all segments; return their lengths, and for each segment the numbers of its terms.

        All segments are read in parallel, in portions that make the terms up to some term complete.
        """
        lengths = array("q")
        with FileWriter(self.folder / "terms.bin") as terms:
            readers = [TermReader(self._part("terms", s), self._segments) for s in range(self._segments)]
            numbers = [array("i") for _ in readers]
            while sum(reader.fill() for reader in readers):
                last = min((r.terms[-1] for r in readers if r.more), default=None)
                taken = [reader.take(last) for reader in readers]
                union = sorted(set().union(*taken))
                number = dict(zip(union, range(len(lengths), len(lengths) + len(union)), strict=True))
                for own, part in zip(numbers, taken, strict=True):
                    own.extend(map(number.__getitem__, part))
                lengths.extend(map(len, union))
                terms.write(b"".join(union))
            files["terms.bin"] = terms.close()
        return np.array(lengths, np.int64), [np.frombuffer(n, np.int32) for n in numbers]

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
        """Merge postings, some terms at a time; return the dtype of the frequencies."""
        segments = range(self._segments)
        begins = [0] * self._segments  # where the next term's postings begin in each segment
        parts = {name: [self._part(f"{name}.npy", s) for s in segments] for name in ("docs", "frequencies")}
        dtypes = [np.load(path, mmap_mode="r").dtype for path in parts["frequencies"]]
        dtype = frequency_type(max(np.iinfo(each).max for each in dtypes))
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
                    low, high = np.searchsorted(numbers[s], np.array((first, last), np.int32))
                    if low == high:
                        continue
                    local, count = numbers[s][low:high] - first, counts[s][low:high]
                    starts = offsets_of(count)
                    begin, end = begins[s], begins[s] + int(starts[-1])
                    goal = np.repeat(fill[local] - starts[:-1], count) + np.arange(end - begin)
                    # A file is open only here: there may be more segments than files that can be open.
                    group_docs[goal] = np.load(parts["docs"][s], mmap_mode="r")[begin:end]
                    group_frequencies[goal] = np.load(parts["frequencies"][s], mmap_mode="r")[begin:end]
                    begins[s] = end
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
    """Return weight - weight / (1 + frequency * inverse norm), what postings add to a score, in float32 throughout."""
    one = np.float32(1)
    return np.maximum(weight - weight / (one + frequencies.astype(np.float32) * inverse), _TINY)
