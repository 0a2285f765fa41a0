"""The passages that question-answering tasks search: each corpus is opened once per process.

Small corpora are indexed in memory in a second. Larger ones are indexed on disk, once for each state of their source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.datasets.fields import VERL_SOURCES
from agent_envs.datasets.indexes import BYTES_IN_MEMORY, shared_index, stamps_digest
from agent_envs.datasets.paths import user_path
from agent_envs.datasets.qa.generated.articles import article_rows
from agent_envs.datasets.qa.generated.encyclopaedia import World
from agent_envs.datasets.qa.rows import QARow, find_qa_files, read_qa
from agent_envs.errors import ConfigError
from agent_envs.retrieval import BM25Retriever, LuceneRetriever, Retriever, open_retriever, read_corpus
from agent_envs.retrieval.corpus import corpus_files
from agent_envs.tasks import file_stamps

ENGINES = ("bm25", "lucene")
CORPUS = "hpqa_corpus.jsonl"
"""What the processed data release calls each of its corpora."""

ARTICLES_IN_MEMORY = 20_000


def passages_of(rows: Iterable[QARow]) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of some rows as rows of a corpus, without repetitions and numbered in order."""
    seen: set[bytes] = set()
    for row in rows:
        for title, text in row.paragraphs:
            digest = hashlib.blake2b(f"{title}\0{text}".encode("utf-8", "replace"), digest_size=12).digest()
            if digest not in seen:
                yield {"id": f"{len(seen):07d}", "title": title, "text": text}
                seen.add(digest)


def rows_retriever(dataset: str, data: str, split: str, engine: str = "bm25") -> Retriever:
    """Return a retriever over the paragraphs of a split's rows, or of all splits if the data is prepared.

    Rows without paragraphs, as in the processed data release, are searched for in the release's corpus beside them.
    `dataset`, `data` and `split` are those of `qa_rows`; `engine` is "bm25" or "lucene".

    Raises:
        ConfigError: The rows have no paragraphs, and there is no corpus.
    """
    files, _ = find_qa_files(dataset, data, split)
    folder = files[0].parent
    if (folder / "index" / "index.json").is_file():
        return corpus_retriever(folder / ("index" if engine == "bm25" else "passages.jsonl"), engine)
    if not next(read_qa(files)).paragraphs:
        name = f"{'hotpotqa' if dataset == 'hotpotqa' else VERL_SOURCES[dataset]}_corpus/{CORPUS}"  # in the release
        corpus = next(filter(Path.is_file, (folder / CORPUS, folder / name, folder.parent / name)), None)
        if corpus is None:
            raise ConfigError(
                f"the rows of {data} have no paragraphs to search: name a corpus, such as corpus='{CORPUS}', or a "
                f"retriever=; the release's own is found at {name} beside the rows"
            )
        return corpus_retriever(corpus, engine)
    return _from_files("rows", files, lambda: passages_of(read_qa(files)), engine)


def generated_retriever(world: World, engine: str = "bm25") -> Retriever:
    """Return a retriever over the articles of a generated world; `engine` is "bm25" or "lucene"."""
    name = f"encyclopaedia-{world.version}-{world.split}-{world.articles}"
    return _index(name, lambda: article_rows(world), engine, small=world.articles <= ARTICLES_IN_MEMORY)


def corpus_retriever(corpus: str | os.PathLike[str], engine: str = "bm25") -> Retriever:
    """Return a retriever over a passages.jsonl or a folder of such files, or the index that either engine wrote."""
    path = user_path(corpus)
    if (path / "index.json").is_file() or any(path.glob("segments_*")):
        return open_retriever(path)
    return _from_files("corpus", corpus_files(path), lambda: read_corpus(path), engine)


def _from_files(
    kind: str, files: Sequence[Path], passages: Callable[[], Iterable[Mapping[str, Any]]], engine: str
) -> Retriever:
    stamps = file_stamps(files)
    small = sum(size for _, _, size in stamps) <= BYTES_IN_MEMORY
    return _index(f"{kind}-{stamps_digest(stamps)}", passages, engine, small=small)


def _index(name: str, passages: Callable[[], Iterable[Mapping[str, Any]]], engine: str, *, small: bool) -> Retriever:
    """Return an index of the passages, in memory if they are few and the engine can."""
    if engine == "bm25":
        return shared_index(name, passages, BM25Retriever.build, open_retriever, small=small)

    def build(rows: Iterable[Mapping[str, Any]], folder: Path, progress: bool) -> Retriever:
        return LuceneRetriever.build(rows, folder)

    return shared_index(f"{engine}-{name}", passages, build, open_retriever, small=False)
