"""The passages that question-answering tasks are searched in, indexed once per process or once on disk.

Small corpora are indexed in a second and live with the process. Larger ones are written to `data_dir() / "indexes"`,
once for each state of their source, and opened from there by every process.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent_envs.datasets.encyclopaedia import World
from agent_envs.datasets.qa import QARow, find_qa_files, read_qa
from agent_envs.datasets.rows import Stamp, file_stamps
from agent_envs.errors import ConfigError
from agent_envs.retrieval import BM25Retriever, Retriever, open_retriever

__all__ = ["generated_retriever", "passages_of", "rows_retriever"]

ARTICLES_IN_MEMORY = 20_000
BYTES_IN_MEMORY = 32 << 20
_lock = threading.Lock()


def passages_of(rows: Iterable[QARow]) -> Iterator[dict[str, str]]:
    """The paragraphs of some rows as rows of a corpus, each title and text once, numbered in order."""
    seen: set[bytes] = set()
    for row in rows:
        for title, text in row.paragraphs:
            digest = hashlib.blake2b(f"{title}\0{text}".encode("utf-8", "replace"), digest_size=12).digest()
            if digest not in seen:
                yield {"id": f"{len(seen):07d}", "title": title, "text": text}
                seen.add(digest)


def rows_retriever(dataset: str, data: str, split: str) -> Retriever:
    """A retriever over the paragraphs of a split's rows; of all splits where the data is prepared.

    Raises:
        DataError: The files cannot be read, or their rows have no paragraphs.
        ConfigError: There is no such split.
    """
    files, _ = find_qa_files(dataset, data, split)
    if (files[0].parent / "index" / "index.json").is_file():
        return open_retriever(files[0].parent / "index")
    with _lock:
        return _rows_retriever(file_stamps(files))


@functools.lru_cache(maxsize=8)
def _rows_retriever(stamps: tuple[Stamp, ...]) -> Retriever:
    passages = passages_of(read_qa(Path(name) for name, _, _ in stamps))
    if sum(size for _, _, size in stamps) <= BYTES_IN_MEMORY:
        return BM25Retriever.build(passages)
    return _on_disk(f"rows-{hashlib.blake2b(repr(stamps).encode(), digest_size=12).hexdigest()}", passages)


def generated_retriever(world: World) -> Retriever:
    """A retriever over the articles of a generated world."""
    with _lock:
        return _generated_retriever(world.split, world.articles, world.version)


@functools.lru_cache(maxsize=8)
def _generated_retriever(split: str, articles: int, version: int) -> Retriever:
    rows = World(split, articles).rows()
    if articles <= ARTICLES_IN_MEMORY:
        return BM25Retriever.build(rows)
    return _on_disk(f"encyclopaedia-{version}-{split}-{articles}", rows)


def _on_disk(name: str, passages: Iterable[dict[str, str]]) -> Retriever:
    """The index of that name, built where it is not there yet; it appears whole or not at all."""
    from agent_envs.datasets.prepare import data_dir

    folder = data_dir() / "indexes" / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            BM25Retriever.build(passages, folder, progress=True)
        except ConfigError:
            if not folder.exists():  # otherwise another process was faster
                raise
    return open_retriever(folder)
