"""`agentr1 index` and `agentr1 serve-search`."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from agent_envs.errors import ConfigError

__all__ = ["add_index_arguments", "add_serve_arguments", "run_index", "run_serve"]


def add_index_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 index`."""
    parser.add_argument("source", metavar="SOURCE", help="a .jsonl file (.gz too) of documents, or a folder of them")
    parser.add_argument("--out", metavar="DIR", required=True, help="folder of the index; it must not exist")
    parser.add_argument("--backend", choices=("bm25", "lucene"), default="bm25", help="default: %(default)s")
    parser.add_argument("--k1", type=float, default=0.9, help="BM25's k1 (default: %(default)s)")
    parser.add_argument("--b", type=float, default=0.4, help="BM25's b (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="helper processes (default: %(default)s)")
    parser.add_argument(
        "--force", action="store_true", help="replace an index that is there, start a stopped build anew"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run_index(arguments: argparse.Namespace) -> str:
    """Build an index; what to tell the user. Said again after it was stopped, it goes on."""
    out = Path(arguments.out)
    if arguments.backend == "lucene":
        from agent_envs.retrieval import LuceneRetriever, read_corpus

        rows = read_corpus(arguments.source)
        lucene = LuceneRetriever.build(rows, out, arguments.k1, arguments.b, overwrite=arguments.force)
        return f"{len(lucene)} documents in {out}"
    from agent_envs.retrieval import BM25Retriever

    if arguments.force:
        shutil.rmtree(out.with_name(out.name + ".partial"), ignore_errors=True)
    index = BM25Retriever.build_from_file(
        arguments.source,
        out,
        arguments.k1,
        arguments.b,
        overwrite=arguments.force,
        progress=not arguments.quiet,
        processes=max(arguments.processes, 0),
        engine="numpy",
    )
    return f"{len(index)} documents in {out}"


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 serve-search`."""
    parser.add_argument("index", metavar="INDEX", help="folder of an index, or a corpus to index first")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    parser.add_argument("--max-k", type=int, default=1000, help="most results of one query (default: %(default)s)")


def run_serve(arguments: argparse.Namespace) -> str:
    """Serve an index until interrupted; what to tell the user."""
    from agent_envs.retrieval import SearchServer, open_retriever

    if arguments.max_k < 1:
        raise ConfigError(f"--max-k has to be at least 1, got {arguments.max_k}")
    retriever = open_retriever(arguments.index, progress=True)
    retriever.search("warm up", 1)
    with SearchServer(retriever, arguments.host, arguments.port, max_k=arguments.max_k) as server:
        print(f"serving {arguments.index} at {server.url}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return "stopped"
    return "stopped"
