"""A web service behind a backend or a selector: asked, remembered on disk, recorded, or replayed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from agent_envs.errors import (
    BackendReplyError,
    ConfigError,
    DataError,
    NotRecordedError,
    UnknownPaperError,
    did_you_mean,
)
from agent_envs.retrieval.http.pool import HTTPPool, HTTPReply, short
from agent_envs.retrieval.papers.store import ReplyStore

__all__ = ["SERVICE_OPTIONS", "Service", "cache_folder", "parse_options", "read_json"]

T = TypeVar("T")

SERVICE_OPTIONS: Mapping[str, type] = {
    "timeout": float,
    "retries": int,
    "backoff": float,
    "interval": float,
    "max_wait": float,
    "cache": str,
    "offline": bool,
}
"""Options that every service takes: those of `HTTPPool`, the folder of kept replies ("off" for none), and whether only
they may answer."""

_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def cache_folder() -> Path:
    """The folder of kept replies: `requests` beside the prepared data."""
    return Path(os.environ.get("AGENT_ENVS_DATA") or "~/.cache/agent_envs") / "requests"


def parse_options(text: str, known: Mapping[str, type], *, what: str) -> dict[str, Any]:
    """Options written `name=value&name=value`, with % for what would be misread.

    >>> parse_options("timeout=5&cache=a%26b&offline=1", SERVICE_OPTIONS, what="arxiv")
    {'timeout': 5.0, 'cache': 'a&b', 'offline': True}

    Args:
        text: The options, "" for none.
        known: The options there are, with their types.
        what: Whose options, for error messages.

    Raises:
        ConfigError: One is unknown, twice there, or no value of its type.
    """
    options: dict[str, Any] = {}
    try:
        pairs = parse_qsl(text, strict_parsing=True) if text else []
    except ValueError as e:
        raise ConfigError(f"{what}: expected options written name=value&name=value, got {text!r}") from e
    for name, value in pairs:
        if name not in known:
            raise ConfigError(f"{what} has no option {name!r}.{did_you_mean(name, known)}")
        if name in options:
            raise ConfigError(f"{what}: the option {name!r} is there twice")
        try:
            options[name] = _TRUTH[value.lower()] if known[name] is bool else known[name](value)
        except (KeyError, ValueError) as e:
            raise ConfigError(f"{what}: {name} must be of type {known[name].__name__}, got {value!r}") from e
    return options


class Service:
    """One web service. A reply is kept only after it was understood: no failure is remembered.

    Args:
        url: Its address.
        store: Where replies are kept, None for nowhere.
        recording: Whether refusals that are answers ("there is no such paper") are kept too, so that a replay gives
            the same.
        offline: Whether only kept replies may answer.
        **pool: Arguments of `HTTPPool`.
    """

    def __init__(
        self,
        url: str,
        *,
        store: ReplyStore | None = None,
        recording: bool = False,
        offline: bool = False,
        **pool: Any,
    ) -> None:
        if offline and store is None:
            raise ConfigError(f"{url} is to be asked offline, which needs the folder of kept replies: cache=FOLDER")
        self._pool = HTTPPool(url, **pool)
        self.url = self._pool.url
        self._store, self._recording, self.offline = store, recording, offline

    @classmethod
    def from_options(
        cls, url: str, options: dict[str, Any], *, store: ReplyStore | None, recording: bool, **pool: Any
    ) -> Service:
        """A service by the `SERVICE_OPTIONS` among some options, which are taken out of them.

        Args:
            url: Its address.
            options: Parsed options.
            store: The store instead of the one under `cache`.
            recording: As above.
            **pool: What holds where the options do not say otherwise.
        """
        given = {name: options.pop(name) for name in SERVICE_OPTIONS if name in options}
        cache = given.pop("cache", None)
        offline = given.pop("offline", False)
        if store is None and cache not in (None, "off"):
            store = ReplyStore(cache)
        return cls(url, store=store, recording=recording, offline=offline, **{**pool, **given})

    def get(self, path: str, params: Mapping[str, object], read: Callable[[HTTPReply], T]) -> T:
        """What `read` makes of the answer to a GET request.

        Args:
            path: What follows the address.
            params: The query's parameters.
            read: Understands the reply; raises BackendReplyError where it cannot, UnknownPaperError where that is what
                the reply says.

        Raises:
            BackendError: The service failed, or answered in another shape; its kinds say how.
            NotRecordedError: Offline, no reply is kept.
            UnknownPaperError: From `read`.
        """
        query = urlencode({key: _clean(str(value)) for key, value in params.items()}, quote_via=quote)
        return self._ask("GET", f"{path}?{query}" if query else path, None, read)

    def post(self, path: str, body: object, read: Callable[[HTTPReply], T], *, keep: bool = True) -> T:
        """What `read` makes of the answer to a POST request with a JSON body; as `get`.

        Args:
            path: What follows the address.
            body: The request.
            read: As for `get`.
            keep: Whether the reply may be kept, or come from what is kept.
        """
        return self._ask("POST", path, _json(body), read, keep)

    def kept(self, path: str, body: object, read: Callable[[HTTPReply], T]) -> T | None:
        """What the kept answer to a POST request gives, None without one; as `post`, but nobody is asked."""
        return self._from_store("POST", self.url + path, _json(body), read)

    def keep(self, path: str, body: object, content: object) -> None:
        """Keep an answer to a POST request that came as a part of another, where replies are kept."""
        if self._store is not None:
            self._store.put("POST", self.url + path, _json(body), HTTPReply(200, _json(content)))

    def _ask(self, method: str, path: str, body: bytes | None, read: Callable[[HTTPReply], T], keep: bool = True) -> T:
        url = self.url + path
        if keep:
            value = self._from_store(method, url, body, read)
            if value is not None:
                return value
        reply = self._pool.request(method, path, body)
        try:
            value = read(reply)
        except UnknownPaperError:
            if self._recording and self._store is not None:
                self._store.put(method, url, body, reply)
            raise
        if keep and self._store is not None:
            self._store.put(method, url, body, reply)
        return value

    def _from_store(self, method: str, url: str, body: bytes | None, read: Callable[[HTTPReply], T]) -> T | None:
        if self._store is None:
            return None
        try:
            reply = self._store.get(method, url, body)
        except DataError as e:
            raise BackendReplyError(str(e)) from e
        if reply is None:
            if self.offline:
                raise NotRecordedError(
                    f"no reply to {method} {url[:300]} is kept in {self._store.folder}; record it while the service "
                    "can be reached"
                )
            return None
        try:
            return read(reply)
        except BackendReplyError:
            if self.offline:
                raise
            return None  # from another version of the service: asked for again


def read_json(reply: HTTPReply, service: str) -> Any:
    """The JSON of a reply with status 200.

    Raises:
        BackendReplyError: It has another status, or is no JSON.
    """
    if reply.status != 200:
        raise BackendReplyError(f"{service} answered with status {reply.status}: {short(reply.content)}")
    try:
        return json.loads(reply.content)
    except (ValueError, RecursionError) as e:
        raise BackendReplyError(f"{service} sent what is not JSON: {short(reply.content)}") from e


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _clean(text: str) -> str:
    """Text that can be sent: halves of characters become question marks."""
    return text.encode("utf-8", "replace").decode()
