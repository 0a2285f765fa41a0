"""Search over a corpus: BM25 without Java, Lucene itself, dense vectors, a server; all behind one protocol."""

from agent_envs.retrieval.bm25.retriever import BM25Retriever
from agent_envs.retrieval.corpus import document_title, read_corpus
from agent_envs.retrieval.dense import DenseRetriever
from agent_envs.retrieval.http import HTTPRetriever
from agent_envs.retrieval.lucene import LuceneRetriever
from agent_envs.retrieval.opening import open_retriever
from agent_envs.retrieval.retriever import Hit, Retriever, StaticRetriever

__all__ = [
    "BM25Retriever",
    "DenseRetriever",
    "HTTPRetriever",
    "Hit",
    "LuceneRetriever",
    "Retriever",
    "StaticRetriever",
    "document_title",
    "open_retriever",
    "read_corpus",
]


def __dir__() -> list[str]:
    return __all__
