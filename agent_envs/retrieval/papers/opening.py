"""Opens backends and selectors of paper search by the names users write, and shares each within the process."""

from __future__ import annotations

from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.per_process import PerProcess
from agent_envs.retrieval.papers.arxiv_api import ArxivAPI
from agent_envs.retrieval.papers.graph_api import GraphAPI, SemanticScholar
from agent_envs.retrieval.papers.paper import PaperBackend, Selector
from agent_envs.retrieval.papers.selectors import ClassifierSelector, JudgeSelector, LexicalSelector
from agent_envs.retrieval.papers.service import parse_options

BACKENDS: dict[str, type] = {
    "arxiv": ArxivAPI,
    "http": GraphAPI,
    "https": GraphAPI,
    "semanticscholar": SemanticScholar,
}
"""The services by name. Their options are the keyword arguments of the class."""

SELECTORS: dict[str, type] = {
    "classify": ClassifierSelector,
    "http": ClassifierSelector,
    "https": ClassifierSelector,
    "judge": JudgeSelector,
    "lexical": LexicalSelector,
}
"""The same for selectors. "gold" is missing because it belongs to a task."""

_WITHOUT_ADDRESS = ("arxiv", "lexical", "semanticscholar")
_backends: PerProcess[PaperBackend] = PerProcess()
_selectors: PerProcess[Selector] = PerProcess()


def open_backend(spec: str) -> PaperBackend:
    """Return the backend with this name or address, such as "http://localhost:4000"; the same one each time.

    "local" is none of them because the environment opens its corpus. Raises ConfigError if there is no such backend.
    """
    return _backends.get(spec, lambda: _open("backend", spec, BACKENDS, "local"))


def open_selector(spec: str) -> Selector:
    """Return the selector with this name or address; the same one each time. Raises ConfigError if there is none."""
    return _selectors.get(spec, lambda: _open("selector", spec, SELECTORS, "gold"))


def _open(what: str, spec: str, table: dict[str, type], other: str) -> Any:
    name, _, text = spec.partition(":")
    if name not in table:
        raise ConfigError(f"there is no {what} {shown(spec)}.{did_you_mean(name, [other, *table])}")
    kind = table[name]
    if name in _WITHOUT_ADDRESS:
        return kind(**parse_options(text, kind, what=name))
    address, _, options = (spec if name in ("http", "https") else text).partition("#")
    return kind(address, **parse_options(options, kind, what=address or name))
