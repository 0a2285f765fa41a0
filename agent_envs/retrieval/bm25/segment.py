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
import threading
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_envs.errors import BackendError, MissingExtraError
from agent_envs.files import open_data
from agent_envs.retrieval.analysis.analyzer import term_of, tokenize

if TYPE_CHECKING:
    from agent_envs.retrieval.bm25.numba_search import TokenTable

_TERMS_BYTES = 1 << 25  # of all segments' terms that are in memory during the merge, about
_LEAST_BYTES = 1 << 14
_COMPILED_FROM = 1 << 20  # characters of a segment; with fewer, loading numba costs more than it saves
_REMEMBERED_TOKENS = 1 << 21  # of all segments that a process has written; a quarter of a gigabyte


def frequency_type(largest: int) -> str:
    """Return the narrowest dtype for numbers up to `largest`."""
    return "<u1" if largest < 1 << 8 else "<u2" if largest < 1 << 16 else "<u4"


class TermNumbers(dict[str, int]):
    """Token -> number of its term among all that were met, or -1 if it is not indexed.

    It goes on from segment to segment: most tokens of a segment were in the ones before.

    Args:
        compiled: Whether ASCII texts of large segments are read by compiled code, if numba is installed. The numbers
            are other ones then, the segments the same.
    """

    def __init__(self, *, compiled: bool = False) -> None:
        super().__init__()
        self.terms: list[str] = []
        """The terms by number."""
        self._numbers: dict[str, int] = {}
        self._compiled = compiled
        self._table: TokenTable | None = None
        self._of_table = np.empty(0, np.int32)  # the number of the term of each of the table's tokens

    def __missing__(self, token: str) -> int:
        term = term_of(token)
        number = -1
        if term:
            number = self._numbers.setdefault(term, len(self.terms))
            if number == len(self.terms):
                self.terms.append(term)
        self[token] = number
        return number

    def forget(self) -> None:
        """Start over if there are very many."""
        if len(self) > _REMEMBERED_TOKENS:
            self.clear()
            self._numbers.clear()
            self.terms.clear()
            self._table, self._of_table = None, self._of_table[:0]

    def of(self, contents: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the terms of some texts, -1 for what is not indexed, and the text that each is of.

        The texts are numbered from 0; their order is not kept. Both arrays are integers, shape [tokens].
        """
        if self._table is None and self._compiled and sum(map(len, contents)) >= _COMPILED_FROM:
            with suppress(MissingExtraError):
                from agent_envs.retrieval.bm25.numba_search import TokenTable

                self._table = TokenTable()
            self._compiled = self._table is not None
        if self._table is None:
            return self._read(contents, range(len(contents)))
        plain = [i for i, text in enumerate(contents) if text.isascii()]
        tokens, counts = self._table.number([contents[i].encode() for i in plain])
        new = self._table.tokens(len(self._of_table))
        self._of_table = np.append(self._of_table, np.fromiter(map(self.__getitem__, new), np.int32, len(new)))
        read = np.array(plain, np.int64)
        rest = sorted({*range(len(contents))} - {*read[counts >= 0].tolist()})
        others, where = self._read(contents, rest)
        places = np.repeat(read, np.maximum(counts, 0))
        return np.concatenate([self._of_table[tokens], others]), np.concatenate([places, where])

    def _read(self, contents: Sequence[str], which: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return what `of` returns, of some texts."""
        tokens: list[int] = []
        ends = np.empty(len(which), np.int64)
        for i, number in enumerate(which):
            tokens += map(self.__getitem__, tokenize(contents[number]))
            ends[i] = len(tokens)
        return np.array(tokens, np.int32), np.repeat(np.array(which, np.int64), np.diff(ends, prepend=0))


def write_segment(name: str, contents: Sequence[str], first: int, numbers: TermNumbers) -> None:
    """Write the files of a segment, with `name` before their names, for documents that are numbered from `first`."""
    numbers.forget()
    token, doc = numbers.of(contents)
    known = token >= 0
    token, doc = token[known], doc[known]
    lengths = np.bincount(doc, minlength=len(contents)).astype(np.int32)
    own = np.flatnonzero(np.bincount(token, minlength=len(numbers.terms))).tolist()  # the terms of this segment
    own.sort(key=numbers.terms.__getitem__)
    terms = [numbers.terms[number] for number in own]
    rank = np.empty(len(numbers.terms), np.int64)
    rank[own] = np.arange(len(terms))
    pairs = (rank[token] << 32) | doc  # one number for term and document
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
        self._numbers = TermNumbers()  # if this process writes
        self._own = threading.local()  # the helper process of a thread
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(processes) if processes else None

    def write(self, name: str, contents: list[str], first: int) -> Future[None]:
        """Start to write a segment; the arguments are those of `write_segment`."""
        if self._threads is not None:
            return self._threads.submit(self._hand_over, (name, contents, first))
        done: Future[None] = Future()
        write_segment(name, contents, first, self._numbers)
        done.set_result(None)
        return done

    def close(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            "from agent_envs.retrieval.bm25.segment import serve_segments; serve_segments()"
        )
        process = self._own.process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps([os.path.abspath(p) for p in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # only this process gets interrupts, and it ends the others
        )
        self._processes.append(process)
        return process

    def _hand_over(self, task: tuple[str, list[str], int]) -> None:
        try:
            process: Any = vars(self._own).get("process") or self._start()
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError as e:
            raise BackendError(f"a helper process of the index build ended: {e}") from e
        if answer != b"done\n":
            problem = answer.decode(errors="replace").strip() or "it ended; see its error above"
            raise BackendError(f"a helper process of the index build failed: {problem}")


def serve_segments() -> None:
    """Run a helper process: write the segments that standard input asks for, until it ends."""
    numbers = TermNumbers(compiled=True)
    while True:
        try:
            task: tuple[str, list[str], int] = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            write_segment(*task, numbers)
        except OSError as e:  # a full disk
            sys.stdout.buffer.write(f"{e.strerror}\n".encode())
        else:
            sys.stdout.buffer.write(b"done\n")
        sys.stdout.buffer.flush()


class TermReader:
    """Reads the sorted terms of one of several segments in portions, from its file of terms.

    The file is open only while it is read: there may be more segments than files that can be open.
    """

    def __init__(self, path: Path, segments: int) -> None:
        self._path, self._at = path, 0
        self._bytes = max(_LEAST_BYTES, _TERMS_BYTES // segments)
        self.terms: list[bytes] = []  # read but not yet taken
        self.more = True  # whether the file may contain more

    def fill(self) -> bool:
        """Read on if no terms are left; return whether there are terms."""
        if not self.terms and self.more:
            with open_data(self._path) as file:
                file.seek(self._at)
                self.terms = file.read(self._bytes).split(b"\n")
                self.terms[-1] += file.readline().removesuffix(b"\n")
                self._at = file.tell()
            if not self.terms[-1]:
                self.terms.pop()
            self.more = bool(self.terms)
        return bool(self.terms)

    def take(self, last: bytes | None) -> list[bytes]:
        """Remove and return the terms up to and including `last`, or all terms."""
        end = len(self.terms) if last is None else bisect_right(self.terms, last)
        taken, self.terms = self.terms[:end], self.terms[end:]
        return taken
