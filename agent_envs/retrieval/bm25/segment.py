"""Segments of a BM25 index: the postings of some documents, written here or by helper processes.

The files of a segment, with its number as NAME: NAME.terms, the sorted terms, one a line; NAME.counts.npy, the number
of documents of each term; NAME.docs.npy and NAME.frequencies.npy, the postings; NAME.lengths.npy, the number of terms
of each document.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import numpy as np

from agent_envs.errors import BackendError
from agent_envs.retrieval.analysis.analyzer import term_of, tokenize

__all__ = ["SegmentWriter", "TermReader", "frequency_type", "serve_segments", "write_segment"]

_TERMS_BYTES = 1 << 20  # of each segment's terms that are in memory during the merge

_term_of = lru_cache(1 << 19)(term_of)


def frequency_type(largest: int) -> str:
    """Return the narrowest dtype for numbers up to `largest`."""
    return "<u1" if largest < 1 << 8 else "<u2" if largest < 1 << 16 else "<u4"


class _TermNumbers(dict[str, int]):
    """Token -> number of its term in this segment, or -1 if it is not indexed."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary: dict[str, int] = {}

    def __missing__(self, token: str) -> int:
        term = _term_of(token)
        number = self.vocabulary.setdefault(term, len(self.vocabulary)) if term else -1
        self[token] = number
        return number


def write_segment(name: str, contents: Sequence[str], first: int) -> None:
    """Write the files of a segment, with `name` before their names, for documents that are numbered from `first`."""
    numbers = _TermNumbers()
    tokens: list[int] = []  # numbers of terms, -1 for what is not indexed
    ends = np.empty(len(contents), np.int64)
    for i, text in enumerate(contents):
        tokens += map(numbers.__getitem__, tokenize(text))
        ends[i] = len(tokens)
    terms = sorted(numbers.vocabulary)
    rank = np.empty(len(terms), np.int64)
    rank[[numbers.vocabulary[t] for t in terms]] = np.arange(len(terms))
    token = np.array(tokens, np.int32)
    doc = np.repeat(np.arange(len(contents)), np.diff(ends, prepend=0))
    kept = token >= 0
    doc = doc[kept]
    lengths = np.bincount(doc, minlength=len(contents)).astype(np.int32)
    pairs = (rank[token[kept]] << 32) | doc  # one number for term and document
    pairs.sort()
    begins = np.flatnonzero(np.diff(pairs, prepend=-1))
    frequencies = np.diff(begins, append=len(pairs))
    pairs = pairs[begins]
    arrays: dict[str, np.ndarray] = {
        "counts": np.bincount(pairs >> 32, minlength=len(terms)).astype(np.int64),
        "docs": ((pairs & 0xFFFFFFFF) + first).astype(np.int32),
        "frequencies": frequencies.astype(frequency_type(int(frequencies.max(initial=0)))),
        "lengths": lengths,
    }
    Path(f"{name}.terms").write_bytes("\n".join([*terms, ""]).encode("utf-8", "surrogatepass"))
    for kind, values in arrays.items():
        np.save(f"{name}.{kind}.npy", values)


class SegmentWriter:
    """Writes segments in helper processes, which start with the first segment; in this process if there are none."""

    def __init__(self, processes: int) -> None:
        self._limit = processes
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(max(processes, 1))

    def write(self, name: str, contents: list[str], first: int) -> Future[None]:
        """Start to write a segment; the arguments are those of `write_segment`."""
        if not self._limit:
            done: Future[None] = Future()
            write_segment(name, contents, first)
            done.set_result(None)
            return done
        while len(self._processes) < self._limit:
            self._start()
        return self._threads.submit(self._hand_over, (name, contents, first))

    def close(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()

    def _start(self) -> None:
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            "from agent_envs.retrieval.bm25.segment import serve_segments; serve_segments()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps([os.path.abspath(p) for p in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # only this process gets interrupts, and it ends the others
        )
        self._processes.append(process)
        self._idle.put(process)

    def _hand_over(self, task: tuple[str, list[str], int]) -> None:
        process = self._idle.get()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError as e:
            raise BackendError(f"a helper process of the index build ended: {e}") from e
        if answer != b"done\n":
            problem = answer.decode(errors="replace").strip() or "it ended; see its error above"
            raise BackendError(f"a helper process of the index build failed: {problem}")
        self._idle.put(process)


def serve_segments() -> None:
    """Run a helper process: write the segments that standard input asks for, until it ends."""
    while True:
        try:
            task: tuple[str, list[str], int] = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            write_segment(*task)
        except OSError as e:  # a full disk
            sys.stdout.buffer.write(f"{e.strerror}\n".encode())
        else:
            sys.stdout.buffer.write(b"done\n")
        sys.stdout.buffer.flush()


class TermReader:
    """Reads the sorted terms of a segment in portions, from its file of terms."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.terms: list[bytes] = []  # read but not yet taken
        self.more = True  # whether the file may contain more

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def fill(self) -> bool:
        """Read on if no terms are left; return whether there are terms."""
        if not self.terms and self.more:
            self.terms = self._file.read(_TERMS_BYTES).split(b"\n")
            self.terms[-1] += self._file.readline().removesuffix(b"\n")
            if not self.terms[-1]:
                self.terms.pop()
            self.more = bool(self.terms)
        return bool(self.terms)

    def take(self, last: bytes | None) -> list[bytes]:
        """Remove and return the terms up to and including `last`, or all terms."""
        end = len(self.terms) if last is None else bisect_right(self.terms, last)
        taken, self.terms = self.terms[:end], self.terms[end:]
        return taken
