"""A corpus of papers on disk: BM25 with Lucene's results for search, arrays of neighbours for citations.

    index.json              format, version, and size and checksum of the files beside it
    index/                  an index of title and abstract (`agent_envs.retrieval.BM25Retriever`)
    graph.offsets, .papers  the neighbours of each paper by number: the papers it cites, then those that cite it
    dates                   yyyymmdd of each paper, 0 if it is unknown

The files are mapped into memory, so processes that open the same folder share them.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agent_envs.errors import ConfigError, UnknownPaperError
from agent_envs.per_process import Shared
from agent_envs.retrieval.bm25.retriever import BM25Retriever
from agent_envs.retrieval.papers.paper import Paper, PaperRow, date_number, normal_date
from agent_envs.retrieval.storage import map_array, new_folder, offsets_of, read_manifest, write_array, write_manifest

FORMAT = "agent_envs.papers"
VERSION = 1
_REMEMBERED_PAPERS = 1 << 14
_REMEMBERED_QUERIES = 1 << 12


class LocalPapers(Shared):
    """A corpus of papers, searched and expanded in this process. Make one with `build`, or open its folder.

    >>> rows = [
    ...     PaperRow(Paper("a", "Deep parsing", "", "2020")),
    ...     PaperRow(Paper("b", "Deeper parsing", "Deep, too.", "2021"), references=("a", "b", "nowhere")),
    ... ]
    >>> papers = LocalPapers.build(rows)
    >>> [paper.id for paper in papers.search("deep")], [paper.id for paper in papers.search("deep", before="2020-06")]
    (['a', 'b'], ['a'])
    >>> [(paper.id, paper.title) for paper in papers.expand("a")]
    [('b', 'Deeper parsing')]

    DataError: there is no corpus that `build` made in this version, or a file has another size.
    """

    blocking = False

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = Path(folder)
        read_manifest(folder, FORMAT, VERSION, verify=False)
        self.path: Path | None = folder
        self.retriever = BM25Retriever.open(folder / "index", verify=False)
        self._offsets = map_array(folder / "graph.offsets", "<i8")
        self._neighbours = map_array(folder / "graph.papers", "<i4")
        self._dates = map_array(folder / "dates", "<i4")
        self._paper = lru_cache(_REMEMBERED_PAPERS)(self._read)
        self._found = lru_cache(_REMEMBERED_QUERIES)(self._search)

    @classmethod
    def build(
        cls,
        rows: Iterable[PaperRow],
        path: str | os.PathLike[str] | None = None,
        *,
        overwrite: bool = False,
        progress: bool = False,
    ) -> LocalPapers:
        """Index a stream of papers in a new folder (None for one that lives as long as the object) and open the corpus.

        Of several rows with the same id, the first gives the text and all give edges. Edges to papers outside the
        corpus or to the paper itself, and repeated edges, are left out.

        Raises:
            ConfigError: `path` exists.
            BackendError: Another process is building there.
            DataError: A row is invalid, or there are no rows.
        """
        target = None if path is None else Path(path)
        with new_folder(target, overwrite=overwrite) as folder:
            graph = _Graph()
            BM25Retriever.build(graph.documents(rows), folder / "index", progress=progress)
            write_manifest(folder, {"format": FORMAT, "version": VERSION, "files": graph.write(folder)})
            if target is None:
                papers = cls(folder)
                papers.path = None
                return papers
        return cls(target)  # only now: Windows moves no folder whose files are open

    def __len__(self) -> int:
        return len(self.retriever)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            raise TypeError("a corpus that was built without a path cannot be pickled")
        return type(self), (self.path.resolve(),)

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """Return the best k papers by BM25 of title and abstract, ties by id; none if no word of the query is known."""
        return [self._paper(number) for number in self._found(query, k, before)]

    def _search(self, query: str, k: int, before: str | None) -> tuple[int, ...]:
        if not before:
            return tuple(self.retriever.search_numbers(query, k)[0].tolist())
        latest, wanted = date_number(normal_date(before), latest=True), k
        while True:
            # Search for more and more until enough of them are early enough.
            wanted *= 2
            numbers, _ = self.retriever.search_numbers(query, wanted)
            early = numbers[self._dates[numbers] <= latest]
            if len(early) >= k or len(numbers) < wanted:
                return tuple(early[:k].tolist())

    def expand(self, paper_id: str) -> list[Paper]:
        """Return the papers that a paper cites, then those that cite it, each in the order of the corpus."""
        try:
            number = self.retriever.documents.number(paper_id)
        except ConfigError as e:
            raise UnknownPaperError(f"there is no paper with the id {paper_id[:100]!r}") from e
        begin, end = self._offsets[number], self._offsets[number + 1]
        return [self._paper(n) for n in self._neighbours[begin:end].tolist()]

    def _read(self, number: int) -> Paper:
        row = self.retriever.documents.row(number)
        return Paper(row["id"], row["title"], row["text"], row["date"])


class _Graph:
    """Collects dates and edges while papers are indexed."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}  # node numbers of papers and of all ids in edges
        self._numbers = array("q")  # the paper number of each node, -1 if there is no such paper
        self._dates = array("q")
        self._from, self._to = array("q"), array("q")

    def _node(self, paper_id: str) -> int:
        node = self._ids.setdefault(paper_id, len(self._ids))
        if node == len(self._numbers):
            self._numbers.append(-1)
        return node

    def documents(self, rows: Iterable[PaperRow]) -> Iterator[dict[str, str]]:
        """Yield the documents to index."""
        for row in rows:
            paper = row.paper
            own = self._node(paper.id)
            for other in map(self._node, row.references):
                self._from.append(own)
                self._to.append(other)
            for other in map(self._node, row.citations):
                self._from.append(other)
                self._to.append(own)
            if self._numbers[own] < 0:
                self._numbers[own] = len(self._dates)
                self._dates.append(date_number(paper.date))
                yield {"id": paper.id, "title": paper.title, "text": paper.abstract, "date": paper.date}

    def write(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write the arrays; return their entries for the manifest."""
        count = len(self._dates)
        numbers = np.array(self._numbers, np.int64)
        citing, cited = numbers[np.array(self._from, np.int64)], numbers[np.array(self._to, np.int64)]
        real = (citing >= 0) & (cited >= 0) & (citing != cited)
        citing, cited = citing[real], cited[real]
        # (paper, whether the other cites it, the other): references come first; of equal pairs the first is kept
        paper, kind, other = (
            np.concatenate(pair)
            for pair in ((citing, cited), (np.zeros_like(citing), np.ones_like(cited)), (cited, citing))
        )
        order = np.lexsort((other, kind, paper))
        paper, other = paper[order], other[order]
        _, first = np.unique(paper * count + other, return_index=True)
        first.sort()
        paper, other = paper[first], other[first]
        offsets = offsets_of(np.bincount(paper, minlength=count))
        return {
            **write_array(folder, "graph.offsets", offsets.astype("<i8")),
            **write_array(folder, "graph.papers", other.astype("<i4")),
            **write_array(folder, "dates", np.array(self._dates, "<i4")),
        }
