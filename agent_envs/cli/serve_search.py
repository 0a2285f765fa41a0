"""`agentr1 serve-search`: serve a search index over HTTP."""

from __future__ import annotations

import argparse
import contextlib

from agent_envs.checks import integer

__all__ = ["add_arguments", "run"]

_EPILOG = """\
examples:
  agentr1 serve-search wiki-index
  curl -d '{"queries": ["tallest lighthouse"], "topk": 3}' http://127.0.0.1:8000/retrieve
  agentr1 play --env AgentR1/HotpotQA-v0 --env-kwargs '{"retriever": "http://127.0.0.1:8000"}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("index", metavar="INDEX", help="folder of an index, or a corpus, which is indexed first")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)")
    add("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    add("--max-k", type=int, default=1000, help="most results per query (default: %(default)s)")


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.retrieval import SearchServer, open_retriever

    integer("--max-k", arguments.max_k, minimum=1)
    retriever = open_retriever(arguments.index, progress=True)
    retriever.search("warm up", 1)
    with SearchServer(retriever, arguments.host, arguments.port, max_k=arguments.max_k) as server:
        print(f"serving {arguments.index} at {server.url}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return "stopped"
