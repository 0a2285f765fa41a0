"""Build a search index of documents. Run the same command again to resume a build that was stopped.

Each line is a document: {"id": ..., "title": ..., "text": ...}, {"id": ..., "text": ...} or
{"id": ..., "contents": ...}. `contents` is indexed as it stands, else the title in quotes followed by the text.

examples:
  agentr1 index wiki.jsonl.gz --out wiki-index
  agentr1 index wiki.jsonl.gz --out wiki-dense --dense --encoder device=cuda
  agentr1 serve-search wiki-index --port 8000          # for many processes or other machines
  agentr1 play --env AgentR1/HotpotQA-v0 --data hotpot_dev_fullwiki_v1.json --env-kwargs '{"corpus": "wiki-index"}'
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agent_envs.checks import integer
from agent_envs.cli.options import Folder, option
from agent_envs.errors import ConfigError
from agent_envs.text import count_of


@dataclass(kw_only=True)
class Options:
    source: str = option(..., "documents: a .jsonl file (or .jsonl.gz), or a folder of such files", "source")
    out: Folder = option(..., "folder of the index, which must not exist yet")
    backend: str = option("bm25", "what builds and searches it", choices=("bm25", "lucene"))
    dense: bool = option(False, "search by vectors instead, and not by words; opened as dense:DIR")
    encoder: str = option("", "dense: the model, as in model=BAAI/bge-base-en-v1.5&device=cuda", metavar="OPTIONS")
    k1: float = option(0.9, "BM25's k1")
    b: float = option(0.4, "BM25's b")
    processes: int = option(2, "number of worker processes")
    force: bool = option(False, "replace an existing index and restart a stopped build from scratch")
    quiet: bool = option(False, "show no progress bar")


def run(options: Options) -> str:
    out = Path(options.out).absolute()
    if out.exists() and not options.force:
        raise ConfigError(f"--out {options.out} already exists; choose another folder, or replace it with --force")
    if options.dense:
        from agent_envs.retrieval.dense import DenseRetriever, memory_of
        from agent_envs.retrieval.opening import open_encoder

        DenseRetriever.build(
            options.source, open_encoder(options.encoder), out, overwrite=options.force, progress=not options.quiet
        )
        return f"{options.out}: {memory_of(out)}"
    if options.encoder:
        raise ConfigError("--encoder is for --dense; give that too, or leave it out")
    if options.backend == "lucene":
        from agent_envs.retrieval import LuceneRetriever, read_corpus

        lucene = LuceneRetriever.build(read_corpus(options.source), out, options.k1, options.b, overwrite=options.force)
        return f"{count_of(len(lucene), 'document')} in {options.out}"
    from agent_envs.retrieval import BM25Retriever

    index = BM25Retriever.build(
        options.source, out, options.k1, options.b, overwrite=options.force, progress=not options.quiet,
        processes=integer("--processes", options.processes, minimum=0), engine="numpy",
    )  # fmt: skip
    return f"{count_of(len(index), 'document')} in {options.out}"
