"""Search for papers: the record, backends that search and follow citations, selectors that score papers for a query.

The names of backends and selectors are in `agent_envs.retrieval.papers.opening`.
"""

from agent_envs.retrieval.papers.opening import open_backend, open_selector
from agent_envs.retrieval.papers.paper import Paper, PaperBackend, Selector, normal_date, title_key, within_date
from agent_envs.retrieval.papers.selectors import CachedSelector, GoldSelector, LexicalSelector

__all__ = [
    "CachedSelector",
    "GoldSelector",
    "LexicalSelector",
    "Paper",
    "PaperBackend",
    "Selector",
    "normal_date",
    "open_backend",
    "open_selector",
    "title_key",
    "within_date",
]


def __dir__() -> list[str]:
    return __all__
