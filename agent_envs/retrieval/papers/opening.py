"""Opens backends and selectors of paper search by the names users write, and shares each within the process.

Two backends record the replies of a service, and replay such a recording:

    record:FOLDER:BACKEND     BACKEND, storing all replies in FOLDER; repeated requests are answered from there
    replay:FOLDER             the same replies without a network; a request that was not recorded is a NotRecordedError

BACKEND is the name of a service with its options, such as "arxiv" or "http://localhost:4000#api=graph".
"""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, DataError, did_you_mean
from agent_envs.files import read_text, write_text
from agent_envs.per_process import PerProcess
from agent_envs.retrieval.papers.paper import PaperBackend, Selector
from agent_envs.retrieval.papers.service import NOTE, ReplyStore, parse_options

BACKENDS: dict[str, str] = {
    "arxiv": "arxiv_api:ArxivAPI",
    "http": "graph_api:HTTPPapers",
    "https": "graph_api:HTTPPapers",
    "semanticscholar": "graph_api:SemanticScholar",
}
"""Name -> "module:class" of the services. Their options are the keyword arguments of the class."""

SELECTORS: dict[str, str] = {
    "classify": "selectors:ClassifierSelector",
    "http": "selectors:ClassifierSelector",
    "https": "selectors:ClassifierSelector",
    "judge": "selectors:JudgeSelector",
    "lexical": "selectors:LexicalSelector",
}
"""The same for selectors. "gold" is missing because it belongs to a task."""

_WITHOUT_ADDRESS = ("arxiv", "lexical", "semanticscholar")
_RECORD = re.compile(rf"(?P<folder>.+?):(?P<spec>(?:{'|'.join(BACKENDS)})(?::.*|$))", re.DOTALL)
_opened: PerProcess[Any] = PerProcess()


def open_backend(spec: str) -> PaperBackend:
    """Return the backend with this name or address, such as "http://localhost:4000"; the same one each time.

    The services are in `BACKENDS`; "record:FOLDER:BACKEND" and "replay:FOLDER" are described in this module. "local" is
    none of them because the environment opens its corpus. Raises ConfigError if there is no such backend.
    """
    opener = {"record": _record, "replay": _replay}.get(spec.partition(":")[0], _open_service)
    backend: PaperBackend = _opened.get(("backend", spec), lambda: opener(spec))
    return backend


def open_selector(spec: str) -> Selector:
    """Return the selector with this name or address; the same one each time. Raises ConfigError if there is none."""
    selector: Selector = _opened.get(("selector", spec), lambda: _open("selector", spec, SELECTORS, "gold"))
    return selector


def _open_service(spec: str, **settled: Any) -> Any:
    return _open("backend", spec, BACKENDS, "local", "record", "replay", **settled)


def _open(what: str, spec: str, table: dict[str, str], *others: str, **settled: Any) -> Any:
    """Make what a table names, from the options in `spec` and then the settled ones."""
    name, _, text = spec.partition(":")
    if name not in table:
        raise ConfigError(f"there is no {what} {shown(spec)}.{did_you_mean(name, [*others, *table])}")
    module, _, attribute = table[name].partition(":")
    kind = getattr(importlib.import_module(f"agent_envs.retrieval.papers.{module}"), attribute)
    if name in _WITHOUT_ADDRESS:
        return kind(**parse_options(text, kind, what=name) | settled)
    address, _, options = (spec if name in ("http", "https") else text).partition("#")
    return kind(address, **parse_options(options, kind, what=address or name) | settled)


def _record(spec: str) -> Any:
    """Open the backend of "record:FOLDER:BACKEND"; the folder must not contain another backend's recording."""
    match = _RECORD.fullmatch(spec.partition(":")[2])
    if match is None:
        raise ConfigError(
            f"expected record:FOLDER:BACKEND with a BACKEND such as 'arxiv', 'semanticscholar' or "
            f"'http://localhost:4000', got {shown(spec)}"
        )
    store = ReplyStore(match["folder"], recording=True)
    recorded = _recorded(store)
    if recorded not in ("", match["spec"]):
        raise ConfigError(
            f"{store.folder} contains a recording of {recorded!r}, not {match['spec']!r}; name another folder"
        )
    backend = _open_service(match["spec"], store=store)
    try:
        if not recorded:
            write_text(store.folder / NOTE, json.dumps({"backend": match["spec"]}) + "\n")
    except OSError as e:
        raise ConfigError(f"the recording cannot be written to {store.folder}: {e.strerror}") from e
    return backend


def _replay(spec: str) -> Any:
    """Open the backend that replays a recording, which needs no key."""
    folder = spec.partition(":")[2]
    store = ReplyStore(folder)
    recorded = _recorded(store) if folder else ""
    if not recorded:
        raise ConfigError(
            f"there is no recording in {folder!r}: {NOTE} is missing; make one with backend="
            f"'record:{folder or 'FOLDER'}:BACKEND'"
        )
    settled = {"key_env": ""} if recorded.startswith("http") else {}
    return _open_service(recorded, store=store, offline=True, **settled)


def _recorded(store: ReplyStore) -> str:
    """Return the backend that a folder is a recording of; "" if it is none."""
    note = store.folder / NOTE
    try:
        recorded = json.loads(read_text(note))["backend"]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(f'{note}: expected {{"backend": NAME}} ({type(e).__name__}: {e})') from e
    if not isinstance(recorded, str) or not recorded.startswith(tuple(BACKENDS)):
        raise DataError(f"{note} names {recorded!r:.80}, which is not one of {', '.join(BACKENDS)}")
    return recorded
