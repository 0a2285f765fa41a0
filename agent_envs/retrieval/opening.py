"""Opens retrievers by what a user writes (a folder, a file, an address), and shares each within the process."""

from __future__ import annotations

import os
from pathlib import Path

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, DataError
from agent_envs.per_process import PerProcess
from agent_envs.retrieval.bm25.retriever import BM25Retriever
from agent_envs.retrieval.dense import DenseRetriever
from agent_envs.retrieval.encoder import SentenceEncoder
from agent_envs.retrieval.http import HTTPRetriever
from agent_envs.retrieval.lucene import LuceneRetriever
from agent_envs.retrieval.papers.service import parse_options
from agent_envs.retrieval.retriever import Retriever

_opened: PerProcess[Retriever] = PerProcess()


def open_retriever(source: str | Path, *, progress: bool = False) -> Retriever:
    """Return the retriever for a source; the same one each time, until the source changes.

    Args:
        source: "dense:FOLDER" (see `DenseRetriever`), with the options of `SentenceEncoder` as in
            "dense:FOLDER#model=NAME&device=cuda"; "http://..." (a search server, which gets the token in the
            environment variable AGENT_ENVS_SEARCH_TOKEN, if there is one); the folder of an index (BM25 or Lucene), or
            a corpus: a .jsonl file or a folder of them. Every process indexes a corpus itself, in a temporary folder;
            build the index of a large one once with `agentr1 index`.
        progress: Whether to show a progress bar while a corpus is indexed.

    Raises DataError if the source does not exist or cannot be used, ConfigError if the address is invalid.
    """
    text = os.fspath(source)
    dense, options = text.startswith("dense:"), ""
    if dense:
        text, _, options = text.removeprefix("dense:").partition("#")
    elif "://" in text:
        if not text.startswith(("http://", "https://")):
            raise ConfigError(f"cannot open {shown(text)}: expected http://, https:// or a path")
        token = os.environ.get("AGENT_ENVS_SEARCH_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else None
        return _opened.get((text, token), lambda: HTTPRetriever(text, headers=headers))
    try:
        path = Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as e:
        raise DataError(f"{text[:100]!r} is not a usable path: {e}") from e
    manifest = path / "index.json"
    try:
        stat = (manifest if manifest.exists() else path).stat()
    except OSError as e:
        raise DataError(f"there is no corpus and no index at {shown(text)}") from e
    key = (str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino, dense, options)
    return _opened.get(key, lambda: _made(path, options, progress, dense=dense))


def open_encoder(options: str) -> SentenceEncoder:
    """Return an encoder by the options of `SentenceEncoder`, written name=value&name=value."""
    return SentenceEncoder(**parse_options(options, SentenceEncoder, what="dense:"))


def _made(path: Path, options: str, progress: bool, *, dense: bool) -> Retriever:
    if dense:
        encoder = open_encoder(options)
        return DenseRetriever(path, encoder, query_prefix=encoder.instruction)
    if path.is_dir() and (path / "index.json").exists():
        return BM25Retriever.open(path)
    if path.is_dir() and any(path.glob("segments_*")):
        return LuceneRetriever(path)
    return BM25Retriever.build(path, progress=progress)
