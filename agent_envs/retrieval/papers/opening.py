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
from pathlib import Path
from typing import Any

from agent_envs.checks import shown
from agent_envs.errors import ConfigError, DataError, did_you_mean
from agent_envs.files import read_text, write_text
from agent_envs.per_process import PerProcess
from agent_envs.retrieval.papers.paper import PaperBackend, Selector
from agent_envs.retrieval.papers.service import NOTE, ReplyStore

__all__ = ["BACKENDS", "SELECTORS", "open_backend", "open_selector", "record_backend", "replay_backend"]

BACKENDS: dict[str, str] = {
    "arxiv": "agent_envs.retrieval.papers.arxiv_api:arxiv_backend",
    "http": "agent_envs.retrieval.papers.http_api:http_backend",
    "https": "agent_envs.retrieval.papers.http_api:http_backend",
    "record": "agent_envs.retrieval.papers.opening:record_backend",
    "replay": "agent_envs.retrieval.papers.opening:replay_backend",
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

_opened: PerProcess[Any] = PerProcess()
_SERVICES = tuple(name for name in BACKENDS if name not in ("record", "replay"))
_RECORD = re.compile(rf"(?P<folder>.+?):(?P<spec>(?:{'|'.join(_SERVICES)})(?::.*|$))", re.DOTALL)


def open_backend(spec: str) -> PaperBackend:
    """Return the backend with this name or address, such as "http://localhost:4000"; the same one each time.

    Raises ConfigError if there is none.
    """
    backend: PaperBackend = _open_once("backend", spec, BACKENDS, "local")
    return backend


def open_selector(spec: str) -> Selector:
    """Return the selector with this name or address; the same one each time. Raises ConfigError if there is none."""
    selector: Selector = _open_once("selector", spec, SELECTORS, "gold")
    return selector


def _open_once(kind: str, spec: str, table: dict[str, str], elsewhere: str) -> Any:
    name = spec.partition(":")[0]
    if name not in table:
        raise ConfigError(f"there is no {kind} {shown(spec)}.{did_you_mean(name, [elsewhere, *table])}")
    return _opened.get((kind, spec), lambda: _open(spec, table))


def _open(spec: str, table: dict[str, str], *, offline: bool = False, **options: Any) -> Any:
    name, _, argument = spec.partition(":")
    address = name in ("http", "https")
    if address:
        argument = spec
    if offline:
        argument = _offline(argument, "#" if address else "")
    module, _, function = table[name].partition(":")
    return getattr(importlib.import_module(module), function)(argument, **options)


def record_backend(text: str) -> PaperBackend:
    """Open the backend of "FOLDER:BACKEND" and record its replies.

    Raises ConfigError if the text has another form, or the folder contains another backend's recording.
    """
    match = _RECORD.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"expected record:FOLDER:BACKEND with a BACKEND such as 'arxiv', 'semanticscholar' or "
            f"'http://localhost:4000', got {shown('record:' + text)}"
        )
    store, spec = ReplyStore(match["folder"]), match["spec"]
    note = store.folder / NOTE
    if note.exists():
        recorded = _noted(note)
        if recorded != spec:
            raise ConfigError(f"{store.folder} contains a recording of {recorded!r}, not {spec!r}; name another folder")
    backend: PaperBackend = _open(spec, BACKENDS, store=store, recording=True)
    if not note.exists():
        try:
            write_text(note, json.dumps({"backend": spec}) + "\n")
        except OSError as e:
            raise ConfigError(f"the recording cannot be written to {store.folder}: {e.strerror}") from e
    return backend


def replay_backend(folder: str) -> PaperBackend:
    """Open the backend that replays a recording. Raises ConfigError if the folder contains none."""
    store = ReplyStore(folder)
    note = store.folder / NOTE
    if not folder or not note.is_file():
        raise ConfigError(
            f"there is no recording in {folder!r}: {NOTE} is missing; make one with backend="
            f"'record:{folder or 'FOLDER'}:BACKEND'"
        )
    spec = _noted(note)
    if spec.partition(":")[0] not in _SERVICES:
        raise ConfigError(f"{note} names {spec!r}, which is not one of {', '.join(_SERVICES)}")
    backend: PaperBackend = _open(spec, BACKENDS, offline=True, store=store)
    return backend


def _offline(options: str, mark: str) -> str:
    """Add offline=1 to a backend's options, and remove the key and the cache.

    >>> _offline("http://x:1#api=graph&key_env=KEY", "#"), _offline("http://x:1", "#"), _offline("offline=1", "")
    ('http://x:1#api=graph&offline=1', 'http://x:1#offline=1', 'offline=1')
    """
    head, _, text = options.partition(mark) if mark else ("", "", options)
    kept = [part for part in text.split("&") if part and not part.startswith(("offline=", "key_env=", "cache="))]
    return f"{head}{mark}{'&'.join([*kept, 'offline=1'])}"


def _noted(note: Path) -> str:
    try:
        row: Any = json.loads(read_text(note))
        spec = row["backend"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(f'{note}: expected {{"backend": NAME}} ({type(e).__name__}: {e})') from e
    if not isinstance(spec, str):
        raise DataError(f"{note}: expected a name under 'backend', got {spec!r:.80}")
    return spec
