"""The passages that question-answering tasks are searched in, indexed once per process or once on disk.

Small corpora are indexed in a second and live with the process. Larger ones are written to `data_dir() / "indexes"`,
once for each state of their source, and opened from there by every process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_envs.datasets.data_dir import data_dir, user_path
from agent_envs.datasets.qa.generated.articles import article_rows
from agent_envs.datasets.qa.generated.encyclopaedia import World
from agent_envs.datasets.qa.rows import QARow, find_qa_files, read_qa
from agent_envs.errors import ConfigError
from agent_envs.retrieval import BM25Retriever, LuceneRetriever, Retriever, open_retriever, read_corpus
from agent_envs.retrieval.corpus import corpus_files
from agent_envs.tasks import FileStamp, file_stamps

__all__ = ["ENGINES", "corpus_retriever", "generated_retriever", "passages_of", "rows_retriever"]

ENGINES = ("bm25", "lucene")

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


def rows_retriever(dataset: str, data: str, split: str, engine: str = "bm25") -> Retriever:
    """A retriever over the paragraphs of a split's rows; of all splits where the data is prepared.

    Args:
        dataset: "hotpotqa", "2wiki" or "musique".
        data: "official" or a path, as for `qa_rows`.
        split: The split.
        engine: "bm25" or "lucene".

    Raises:
        DataError: The files cannot be read, or their rows have no paragraphs.
        ConfigError: There is no such split.
        MissingExtraError: Lucene is not installed.
    """
    files, _ = find_qa_files(dataset, data, split)
    folder = files[0].parent
    if (folder / "index" / "index.json").is_file():
        return corpus_retriever(folder / ("index" if engine == "bm25" else "passages.jsonl"), engine)
    with _lock:
        return _rows_retriever(file_stamps(files), engine)


@functools.lru_cache(maxsize=8)
def _rows_retriever(stamps: tuple[FileStamp, ...], engine: str) -> Retriever:
    passages = passages_of(read_qa(Path(name) for name, _, _ in stamps))
    small = sum(size for _, _, size in stamps) <= BYTES_IN_MEMORY
    return _index(f"rows-{_digest(stamps)}", passages, engine, small=small)


def generated_retriever(world: World, engine: str = "bm25") -> Retriever:
    """A retriever over the articles of a generated world; `engine` is "bm25" or "lucene"."""
    with _lock:
        return _generated_retriever(world.split, world.articles, world.version, engine)


@functools.lru_cache(maxsize=8)
def _generated_retriever(split: str, articles: int, version: int, engine: str) -> Retriever:
    name = f"encyclopaedia-{version}-{split}-{articles}"
    return _index(name, article_rows(World(split, articles)), engine, small=articles <= ARTICLES_IN_MEMORY)


def corpus_retriever(corpus: str | os.PathLike[str], engine: str = "bm25") -> Retriever:
    """A retriever over a passages.jsonl or a folder of them, or the index in a folder, whichever engine made it.

    Raises:
        DataError: Nothing is there, or it cannot be used.
        MissingExtraError: Lucene is not installed.
    """
    path = user_path(corpus)
    if engine == "bm25" or (path / "index.json").is_file() or any(path.glob("segments_*")):
        return open_retriever(path)
    stamps = file_stamps(corpus_files(path))
    with _lock:
        return _index(f"corpus-{_digest(stamps)}", read_corpus(path), engine, small=False)


def _digest(stamps: tuple[FileStamp, ...]) -> str:
    return hashlib.blake2b(repr(stamps).encode(), digest_size=12).hexdigest()


def _index(name: str, passages: Iterable[Mapping[str, Any]], engine: str, *, small: bool) -> Retriever:
    """The index of that name, built where it is not there yet; on disk it appears whole or not at all."""
    if engine == "bm25" and small:
        return BM25Retriever.build(passages)
    folder = data_dir() / "indexes" / (name if engine == "bm25" else f"{engine}-{name}")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            if engine == "bm25":
                BM25Retriever.build(passages, folder, progress=True)
            else:
                LuceneRetriever.build(passages, folder)
        except ConfigError:
            if not folder.exists():  # otherwise another process was faster
                raise
    return open_retriever(folder)
