"""`agentr1 index`: build a search index of documents."""

from __future__ import annotations

import argparse
from pathlib import Path

from agent_envs.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EPILOG = """\
Each line is a document: {"id": ..., "title": ..., "text": ...}, {"id": ..., "text": ...} or
{"id": ..., "contents": ...}. `contents` is indexed as it stands, else the title in quotes followed by the text.

examples:
  agentr1 index wiki.jsonl.gz --out wiki-index
  agentr1 serve-search wiki-index --port 8000          # for many processes or other machines
  agentr1 play --env AgentR1/HotpotQA-v0 --data hotpot_dev_fullwiki_v1.json --env-kwargs '{"corpus": "wiki-index"}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("source", metavar="SOURCE", help="documents: a .jsonl file (or .jsonl.gz), or a folder of such files")
    add("--out", metavar="DIR", required=True, help="folder of the index, which must not exist yet")
    add(
        "--backend", choices=("bm25", "lucene"), default="bm25",
        help="what builds and searches it (default: %(default)s)",
    )  # fmt: skip
    add("--k1", type=float, default=0.9, help="BM25's k1 (default: %(default)s)")
    add("--b", type=float, default=0.4, help="BM25's b (default: %(default)s)")
    add("--processes", type=int, default=2, help="number of worker processes (default: %(default)s)")
    add("--force", action="store_true", help="replace an existing index and restart a stopped build from scratch")
    add("--quiet", action="store_true", help="show no progress bar")


def run(arguments: argparse.Namespace) -> str:
    """Build an index, or resume a build that was stopped, and report its size."""
    out = Path(arguments.out).absolute()
    if out.exists() and not arguments.force:
        raise ConfigError(f"--out {arguments.out} already exists; choose another folder, or replace it with --force")
    if arguments.backend == "lucene":
        from agent_envs.retrieval import LuceneRetriever, read_corpus

        rows = read_corpus(arguments.source)
        lucene = LuceneRetriever.build(rows, out, arguments.k1, arguments.b, overwrite=arguments.force)
        return f"{len(lucene)} documents in {arguments.out}"
    from agent_envs.retrieval import BM25Retriever

    index = BM25Retriever.build_from_file(
        arguments.source, out, arguments.k1, arguments.b, overwrite=arguments.force, progress=not arguments.quiet,
        processes=max(arguments.processes, 0), engine="numpy",
    )  # fmt: skip
    return f"{len(index)} documents in {arguments.out}"
