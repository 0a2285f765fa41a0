"""Opens backends and selectors of paper search by the names users write, and shares each within the process."""

from __future__ import annotations

import importlib
from typing import Any

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.retrieval.opening import open_once
from agent_envs.retrieval.papers.paper import PaperBackend, Selector

__all__ = ["BACKENDS", "SELECTORS", "open_backend", "open_selector"]

BACKENDS: dict[str, str] = {
    "arxiv": "agent_envs.retrieval.papers.arxiv_api:arxiv_backend",
    "http": "agent_envs.retrieval.papers.http_api:http_backend",
    "https": "agent_envs.retrieval.papers.http_api:http_backend",
    "record": "agent_envs.retrieval.papers.replay:record_backend",
    "replay": "agent_envs.retrieval.papers.replay:replay_backend",
    "semanticscholar": "agent_envs.retrieval.papers.semantic_scholar:semantic_scholar_backend",
}
"""Name -> "module:function". The function gets what follows the name and its colon ("" if nothing does); for "http" and
"https" it gets the whole address. "local" is missing because the environment opens its corpus."""

SELECTORS: dict[str, str] = {
    "classify": "agent_envs.retrieval.papers.classifier:classifier_selector",
    "http": "agent_envs.retrieval.papers.classifier:classifier_selector",
    "https": "agent_envs.retrieval.papers.classifier:classifier_selector",
    "judge": "agent_envs.retrieval.papers.judge:judge_selector",
    "lexical": "agent_envs.retrieval.papers.selectors:lexical_selector",
}
"""The same for selectors. "gold" is missing because it belongs to a task."""


def open_backend(spec: str) -> PaperBackend:
    """Return the backend with this name or address, such as "http://localhost:4000"; the same one each time.

    Raises:
        ConfigError: No backend has this name.
    """
    backend: PaperBackend = _open("backend", spec, BACKENDS, ("local",))
    return backend


def open_selector(spec: str) -> Selector:
    """Return the selector with this name or address; the same one each time.

    Raises:
        ConfigError: No selector has this name.
    """
    selector: Selector = _open("selector", spec, SELECTORS, ("gold",))
    return selector


def _open(kind: str, spec: str, table: dict[str, str], others: tuple[str, ...]) -> Any:
    name, _, options = spec.partition(":")
    if name not in table:
        raise ConfigError(f"there is no {kind} {spec!r}.{did_you_mean(name, [*others, *table])}")
    module, _, function = table[name].partition(":")
    argument = spec if name in ("http", "https") else options
    return open_once((kind, spec), lambda: getattr(importlib.import_module(module), function)(argument))
