"""Backends and selectors of paper search by the names users write: one of each per process."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.retrieval.papers.base import PaperBackend, Selector

__all__ = ["BACKENDS", "SELECTORS", "open_backend", "open_selector"]

BACKENDS: dict[str, str] = {
    "arxiv": "agent_envs.retrieval.papers.arxiv_api:arxiv_backend",
    "http": "agent_envs.retrieval.papers.http_papers:http_backend",
    "https": "agent_envs.retrieval.papers.http_papers:http_backend",
    "record": "agent_envs.retrieval.papers.replay:record_backend",
    "replay": "agent_envs.retrieval.papers.replay:replay_backend",
    "semanticscholar": "agent_envs.retrieval.papers.semantic_scholar:semantic_scholar_backend",
}
"""Name -> "module:function", which is given what follows the name's colon ("" without one). "http" and "https" are
given the whole address. "local" is none of these: its corpus is the environment's to open."""

SELECTORS: dict[str, str] = {
    "classify": "agent_envs.retrieval.papers.classifier:classifier_selector",
    "http": "agent_envs.retrieval.papers.classifier:classifier_selector",
    "https": "agent_envs.retrieval.papers.classifier:classifier_selector",
    "judge": "agent_envs.retrieval.papers.judge:judge_selector",
    "lexical": "agent_envs.retrieval.papers.selectors:lexical_selector",
}
"""The same for selectors. "gold" is none of these: it belongs to a task."""

_lock = threading.Lock()
_opened: dict[tuple[object, ...], Any] = {}


def open_backend(spec: str) -> PaperBackend:
    """The backend of that name or address, such as "http://localhost:4000"; the same one each time.

    Raises:
        ConfigError: There is no such backend.
    """
    backend: PaperBackend = _open("backend", spec, BACKENDS, ("local",))
    return backend


def open_selector(spec: str) -> Selector:
    """The selector of that name or address; the same one each time.

    Raises:
        ConfigError: There is no such selector.
    """
    selector: Selector = _open("selector", spec, SELECTORS, ("gold",))
    return selector


def _open(kind: str, spec: str, table: dict[str, str], others: tuple[str, ...]) -> Any:
    name, _, rest = spec.partition(":")
    if name not in table:
        raise ConfigError(f"there is no {kind} {spec!r}.{did_you_mean(name, [*others, *table])}")
    key = (kind, spec, os.getpid())
    with _lock:
        if key not in _opened:
            module, _, function = table[name].partition(":")
            given = spec if name in ("http", "https") else rest
            _opened[key] = getattr(importlib.import_module(module), function)(given)
        return _opened[key]
