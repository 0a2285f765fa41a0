"""`agentr1 serve-search`: serve a search index over HTTP."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from agent_envs.cli.arguments import add_address
from agent_envs.cli.pages import serve_until_stopped
from agent_envs.files import allow_open_files

if TYPE_CHECKING:
    from agent_envs.retrieval import Retriever
    from agent_envs.serving.search import SearchServer

__all__ = ["add_arguments", "run"]

_EPILOG = """\
examples:
  agentr1 serve-search wiki-index
  curl -d '{"queries": ["tallest lighthouse"], "topk": 3}' http://127.0.0.1:8000/retrieve
  agentr1 play --env AgentR1/HotpotQA-v0 --env-kwargs '{"retriever": "http://127.0.0.1:8000"}'
  AGENT_ENVS_TOKEN=... agentr1 serve-search wiki-index --host 0.0.0.0      # clients: AGENT_ENVS_SEARCH_TOKEN=...
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("index", metavar="INDEX", help="folder of an index, or a corpus, which is indexed first")
    add_address(add)
    add("--max-k", type=int, default=1000, help="most results per query (default: %(default)s)")
    add(
        "--max-requests", type=int, default=64, metavar="N",
        help="requests that are worked on at once; four times as many may wait (default: %(default)s)",
    )  # fmt: skip
    add(
        "--request-timeout", type=float, default=30.0, metavar="SECONDS",
        help="seconds that the searches of a request may take (default: %(default)g)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> str:
    from agent_envs.retrieval import StaticRetriever, open_retriever
    from agent_envs.serving.access import read_token
    from agent_envs.serving.search import SearchServer

    def server_of(retriever: Retriever) -> SearchServer:
        return SearchServer(
            retriever, arguments.host, arguments.port, token=read_token(arguments.token_file), max_k=arguments.max_k,
            max_requests=arguments.max_requests, seconds=arguments.request_timeout,
        )  # fmt: skip

    server_of(StaticRetriever({}))  # before an index of gigabytes is read
    retriever = open_retriever(arguments.index, progress=True)
    retriever.search("warm up", 1)
    allow_open_files()
    return serve_until_stopped(server_of(retriever), lambda server: f"serving {arguments.index} at {server.url}")
