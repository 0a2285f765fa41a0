"""`agentr1 serve-search`: searches over HTTP."""

from __future__ import annotations

import argparse

from agent_envs.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EPILOG = """\
examples:
  agentr1 serve-search wiki-index
  curl -d '{"queries": ["tallest lighthouse"], "topk": 3}' http://127.0.0.1:8000/retrieve
  agentr1 play --env AgentR1/HotpotQA-v0 --env-kwargs '{"retriever": "http://127.0.0.1:8000"}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `agentr1 serve-search`."""
    parser.epilog = _EPILOG
    parser.add_argument("index", metavar="INDEX", help="folder of an index, or a corpus to index first")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    parser.add_argument("--max-k", type=int, default=1000, help="most results of one query (default: %(default)s)")


def run(arguments: argparse.Namespace) -> str:
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
