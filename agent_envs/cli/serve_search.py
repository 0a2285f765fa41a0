"""Serve a search index over HTTP.

examples:
  agentr1 serve-search wiki-index
  agentr1 serve-search 'dense:hotpotqa_corpus#device=cuda'
  curl -d '{"queries": ["tallest lighthouse"], "topk": 3}' http://127.0.0.1:8000/retrieve
  agentr1 play --env AgentR1/HotpotQA-v0 --env-kwargs '{"retriever": "http://127.0.0.1:8000"}'
  AGENT_ENVS_TOKEN=... agentr1 serve-search wiki-index --host 0.0.0.0      # clients: AGENT_ENVS_SEARCH_TOKEN=...
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_envs.cli.options import AddressOptions, arguments_of, option, serve_until_stopped
from agent_envs.files import allow_open_files

if TYPE_CHECKING:
    from agent_envs.retrieval import Retriever
    from agent_envs.serving.search import SearchServer


@dataclass(kw_only=True)
class Options(AddressOptions):
    index: str = option(..., "folder of an index, dense:FOLDER#model=NAME, or a corpus, which is indexed", "index")
    max_k: int = option(1000, "most results per query")
    max_requests: int = option(64, "requests that are worked on at once; four times as many may wait")
    request_timeout: float = option(30.0, "seconds that the searches of a request may take")


def run(options: Options) -> str:
    from agent_envs.retrieval import StaticRetriever, open_retriever
    from agent_envs.retrieval.dense import memory_of
    from agent_envs.serving.search import SearchServer

    def server_of(retriever: Retriever) -> SearchServer:
        chosen = arguments_of(SearchServer, options)
        return SearchServer(retriever, token=options.token(), seconds=options.request_timeout, **chosen)

    server_of(StaticRetriever({}))  # before an index of gigabytes is read
    if options.index.startswith("dense:"):
        sys.stderr.write(f"{memory_of(options.index.removeprefix('dense:').partition('#')[0])}\n")
    retriever = open_retriever(options.index, progress=True)
    retriever.search("warm up", 1)
    allow_open_files()
    return serve_until_stopped(server_of(retriever), lambda server: f"serving {options.index} at {server.url}")
