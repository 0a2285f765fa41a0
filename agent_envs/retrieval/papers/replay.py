"""Backends that record the replies of services, and backends that replay such a recording.

    record:FOLDER:BACKEND     BACKEND, storing all replies in FOLDER; repeated requests are answered from there
    replay:FOLDER             the same replies without a network; a request that was not recorded is a NotRecordedError

BACKEND is the name of a service with its options, such as "arxiv" or "http://localhost:4000#api=graph".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, DataError
from agent_envs.files import write_text
from agent_envs.retrieval.papers.arxiv_api import arxiv_backend
from agent_envs.retrieval.papers.http_api import http_backend
from agent_envs.retrieval.papers.paper import PaperBackend
from agent_envs.retrieval.papers.semantic_scholar import semantic_scholar_backend
from agent_envs.retrieval.papers.store import NOTE, ReplyStore

__all__ = ["record_backend", "replay_backend"]

_SERVICES: dict[str, Callable[..., PaperBackend]] = {
    "arxiv": arxiv_backend,
    "semanticscholar": semantic_scholar_backend,
    "http": http_backend,
    "https": http_backend,
}
_RECORD = re.compile(rf"(?P<folder>.+?):(?P<spec>(?:{'|'.join(_SERVICES)})(?::.*|$))", re.DOTALL)


def record_backend(text: str) -> PaperBackend:
    """Open the backend of "FOLDER:BACKEND" and record its replies.

    Raises:
        ConfigError: The text has another form, or the folder contains another backend's recording.
    """
    match = _RECORD.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"expected record:FOLDER:BACKEND with a BACKEND such as 'arxiv', 'semanticscholar' or "
            f"'http://localhost:4000', got {'record:' + text!r}"
        )
    store, spec = ReplyStore(match["folder"]), match["spec"]
    note = store.folder / NOTE
    if note.exists():
        recorded = _noted(note)
        if recorded != spec:
            raise ConfigError(f"{store.folder} contains a recording of {recorded!r}, not {spec!r}; name another folder")
    backend = _open(spec, store, recording=True)
    if not note.exists():
        try:
            write_text(note, json.dumps({"backend": spec}) + "\n")
        except OSError as e:
            raise ConfigError(f"the recording cannot be written to {store.folder}: {e.strerror}") from e
    return backend


def replay_backend(folder: str) -> PaperBackend:
    """Open the backend that replays a recording.

    Raises:
        ConfigError: The folder contains no recording.
    """
    store = ReplyStore(folder)
    note = store.folder / NOTE
    if not folder or not note.is_file():
        raise ConfigError(
            f"there is no recording in {folder!r}: {NOTE} is missing; make one with backend="
            f"'record:{folder or 'FOLDER'}:BACKEND'"
        )
    return _open(_noted(note), store, recording=False, offline=True)


def _open(spec: str, store: ReplyStore, *, recording: bool, offline: bool = False) -> PaperBackend:
    name, _, options = spec.partition(":")
    if name not in _SERVICES:
        raise ConfigError(f"{store.folder / NOTE} names {spec!r}, which is not one of {', '.join(_SERVICES)}")
    argument = spec if name in ("http", "https") else options
    if offline:
        argument = _offline(argument, "#" if name in ("http", "https") else "")
    return _SERVICES[name](argument, store=store, recording=recording)


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
        row: Any = json.loads(note.read_text(encoding="utf-8"))
        spec = row["backend"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DataError(f'{note}: expected {{"backend": NAME}} ({type(e).__name__}: {e})') from e
    if not isinstance(spec, str):
        raise DataError(f"{note}: expected a name under 'backend', got {spec!r:.80}")
    return spec
