"""A retriever from what a user writes down: a folder, a file, an address. One of each per process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from agent_envs.errors import ConfigError, DataError
from agent_envs.retrieval.base import Retriever
from agent_envs.retrieval.bm25.retriever import BM25Retriever
from agent_envs.retrieval.http.client import HTTPRetriever
from agent_envs.retrieval.lucene import LuceneRetriever

__all__ = ["open_retriever"]

_lock = threading.Lock()
_opened: dict[tuple[object, ...], Retriever] = {}


def open_retriever(source: str | Path, *, progress: bool = False) -> Retriever:
    """The retriever for a source; the same one each time it is asked for, as long as the source stays as it is.

    Args:
        source: "http://..." (a search server), the folder of an index (BM25's or Lucene's), or a corpus: a .jsonl file
            or a folder of them, which is indexed in a temporary folder first, by every process anew. For a large corpus
            build an index once with `agentr1 index`.
        progress: Whether to show a progress bar if a corpus has to be indexed.

    Raises:
        DataError: Nothing is there, or it cannot be used.
        ConfigError: An address that is none.
    """
    text = os.fspath(source)
    if "://" in text:
        if not text.startswith(("http://", "https://")):
            raise ConfigError(f"cannot open {text!r}: expected http://, https:// or a path")
        key: tuple[object, ...] = (text,)
    else:
        try:
            path = Path(text).expanduser().resolve()
        except (OSError, RuntimeError, ValueError) as e:
            raise DataError(f"{text[:100]!r} is no usable path: {e}") from e
        seen = path / "index.json" if path.is_dir() and (path / "index.json").exists() else path
        try:
            stat = seen.stat()
        except OSError as e:
            raise DataError(f"there is no corpus and no index at {text}") from e
        key = (str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
    key = (*key, os.getpid())
    with _lock:
        if key not in _opened:
            _opened[key] = HTTPRetriever(text) if "://" in text else _open_path(path, progress)
        return _opened[key]


def _open_path(path: Path, progress: bool) -> Retriever:
    from agent_envs.retrieval.corpus import read_corpus

    if path.is_dir() and (path / "index.json").exists():
        return BM25Retriever.open(path)
    if path.is_dir() and any(path.glob("segments_*")):
        return LuceneRetriever.open(path)
    return BM25Retriever.build(read_corpus(path), progress=progress)
