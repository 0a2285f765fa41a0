"""A web service behind a backend or a selector, and the folder in which its replies are cached or recorded."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from agent_envs.errors import (
    BackendReplyError,
    ConfigError,
    DataError,
    NotRecordedError,
    UnknownPaperError,
    did_you_mean,
)
from agent_envs.files import read_text, write_text
from agent_envs.retrieval.http.pool import HTTPPool, HTTPReply, short

__all__ = [
    "SERVICE_OPTIONS",
    "ReplyStore",
    "Service",
    "cache_folder",
    "canonical_url",
    "parse_options",
    "read_json",
    "take_key",
    "take_options",
]

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
"""The options of every service: those of `HTTPPool`, the cache folder ("off" for none), and whether only cached replies
may be used."""

NOTE = "backend.json"
"""The file of a recording that names the recorded backend."""

_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def cache_folder() -> Path:
    """Return the default cache folder: `requests` beside the prepared data."""
    return Path(os.environ.get("AGENT_ENVS_DATA") or "~/.cache/agent_envs") / "requests"


def parse_options(text: str, known: Mapping[str, type], *, what: str) -> dict[str, Any]:
    """Parse options written `name=value&name=value`, with percent-escapes. Errors say that `what` has them.

    >>> parse_options("timeout=5&cache=a%26b&offline=1", SERVICE_OPTIONS, what="arxiv")
    {'timeout': 5.0, 'cache': 'a&b', 'offline': True}

    Raises:
        ConfigError: An option is unknown, given twice, or has a value of another type.
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
            raise ConfigError(f"{what}: the option {name!r} is given twice")
        try:
            options[name] = _TRUTH[value.lower()] if known[name] is bool else known[name](value)
        except (KeyError, ValueError) as e:
            raise ConfigError(f"{what}: {name} must be of type {known[name].__name__}, got {value!r}") from e
    return options


def take_options(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove and return those of the named options that are given."""
    return {name: options.pop(name) for name in names if name in options}


def take_key(options: dict[str, Any], what: str) -> str | None:
    """Remove the option key_env; return the key in the variable it names. Raises ConfigError if that is not set."""
    variable = options.pop("key_env", None)
    if variable and not os.environ.get(variable):
        raise ConfigError(f"{what}: key_env names the environment variable {variable!r}, which is not set")
    return os.environ[variable] if variable else None


def canonical_url(url: str) -> str:
    """Return an address in a form that does not depend on the order of its parameters.

    >>> canonical_url("HTTPS://API.x/query?b=2&empty=&a=%31")
    'https://api.x/query?a=1&b=2'
    """
    parts = urlsplit(url)
    query = urlencode(sorted(parse_qsl(parts.query)))
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path}" + (f"?{query}" if query else "")


class ReplyStore:
    """A folder of `{"method", "url", "request", "status_code", "body"}` files.

    Files appear completely or not at all, so several processes may share a folder. Files with other names are found by
    the address inside. Headers, and thus keys, are never written. The folder is created on the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            self.folder = Path(folder).expanduser()
        except RuntimeError as e:
            raise ConfigError(f"{str(folder)!r} is not a usable folder: {e}") from e
        self._others: dict[str, Path] | None = None

    def get(self, method: str, url: str, body: bytes | None = None) -> HTTPReply | None:
        """Return the stored reply to a request, or None. Raises DataError, which names the file, if it is broken."""
        key = _key(method, url, body)
        path = self._path(key)
        if path.is_file():
            return _read(path)[1]
        other = self._other_files().get(key)
        return None if other is None else _read(other)[1]

    def put(self, method: str, url: str, body: bytes | None, reply: HTTPReply) -> None:
        """Store a reply, replacing an earlier one. Raises ConfigError if the folder cannot be written to."""
        row: dict[str, object] = {"method": method, "url": url}
        if body is not None:
            row["request"] = body.decode("utf-8", "replace")
        row["status_code"] = reply.status
        try:
            row["body"] = reply.content.decode("utf-8")
        except UnicodeDecodeError:
            row["body_base64"] = base64.b64encode(reply.content).decode("ascii")
        try:
            write_text(self._path(_key(method, url, body)), json.dumps(row, indent=1) + "\n")
        except OSError as e:
            raise ConfigError(f"replies cannot be written to {self.folder}: {e.strerror}") from e

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"

    def _other_files(self) -> dict[str, Path]:
        """Return the files with other names by key; they are read once."""
        if self._others is None:
            named = [path for path in sorted(self.folder.glob("*.json"), reverse=True) if path.name != NOTE]
            self._others = {_read(path)[0]: path for path in named}
        return self._others


def _key(method: str, url: str, body: bytes | None) -> str:
    request = json.dumps([method, canonical_url(url), None if body is None else body.decode("utf-8", "replace")])
    return hashlib.sha256(request.encode()).hexdigest()[:40]


def _read(path: Path) -> tuple[str, HTTPReply]:
    """Read the key and the reply of a file."""
    try:
        row = json.loads(read_text(path))
        request = row.get("request")
        key = _key(row.get("method", "GET"), row["url"], None if request is None else request.encode())
        content = base64.b64decode(row["body_base64"]) if "body_base64" in row else row["body"].encode()
        return key, HTTPReply(int(row["status_code"]), content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DataError(
            f"{path}: expected an object with 'url', 'status_code' and 'body' ({type(e).__name__}: {e}); "
            "delete the file"
        ) from e


class Service:
    """A web service. Replies are cached only after they were understood, so failures are not.

    Args:
        url: Its address.
        store: The cache of replies, or None.
        recording: Whether to cache replies that say "there is no such paper" too, so that a replay gives the same.
        offline: Whether to use cached replies only.
        **pool: Arguments of `HTTPPool`.
    """

    def __init__(
        self, url: str, *, store: ReplyStore | None = None, recording: bool = False, offline: bool = False, **pool: Any
    ) -> None:
        if offline and store is None:
            raise ConfigError(f"{url}: offline=1 needs a folder of cached replies: cache=FOLDER")
        self._pool = HTTPPool(url, **pool)
        self.url = self._pool.url
        self._store, self._recording, self.offline = store, recording, offline

    @classmethod
    def from_options(
        cls, url: str, options: dict[str, Any], *, store: ReplyStore | None = None, recording: bool = False, **pool: Any
    ) -> Service:
        """Make a service from the `SERVICE_OPTIONS` among parsed options, and remove these.

        A `store` replaces the one in the option `cache`; `pool` has the defaults of options that are not given.
        """
        own = {**pool, **take_options(options, *SERVICE_OPTIONS)}
        cache = own.pop("cache", None)
        if store is None and cache not in (None, "off"):
            store = ReplyStore(cache)
        return cls(url, store=store, recording=recording, **own)

    def get(self, path: str, params: Mapping[str, object], read: Callable[[HTTPReply], T]) -> T:
        """Send a GET request and return what `read` makes of the reply.

        `read` raises BackendReplyError if the reply is not as expected, UnknownPaperError if it says that there is no
        such paper.

        Raises:
            BackendError: The service failed or sent an unexpected reply.
            NotRecordedError: Offline, and no reply is cached.
            UnknownPaperError: From `read`.
        """
        query = urlencode({key: _clean(str(value)) for key, value in params.items()}, quote_via=quote)
        return self._ask("GET", f"{path}?{query}" if query else path, None, read)

    def post(self, path: str, body: object, read: Callable[[HTTPReply], T], *, keep: bool = True) -> T:
        """Send a POST request with a JSON body, as `get` does; `keep` says whether to use the cache."""
        return self._ask("POST", path, _json(body), read, keep)

    def kept(self, path: str, body: object, read: Callable[[HTTPReply], T]) -> T | None:
        """Return what `read` makes of the cached reply to a POST request, or None if none is cached."""
        return self._from_store("POST", self.url + path, _json(body), read)

    def keep(self, path: str, body: object, content: object) -> None:
        """Cache a reply to a POST request that came as part of another reply."""
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
                    f"{self._store.folder} has no reply to {method} {url[:300]}; record it while the service can be "
                    "reached"
                )
            return None
        try:
            return read(reply)
        except BackendReplyError:
            if self.offline:
                raise
            return None  # from another version of the service: request it again


def read_json(reply: HTTPReply, service: str) -> Any:
    """Return the JSON of a reply with status 200. Raises BackendReplyError for other replies."""
    if reply.status != 200:
        raise BackendReplyError(f"{service} answered with status {reply.status}: {short(reply.content)}")
    try:
        return json.loads(reply.content)
    except (ValueError, RecursionError) as e:
        raise BackendReplyError(f"{service} sent a reply that is not JSON: {short(reply.content)}") from e


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _clean(text: str) -> str:
    """Replace lone surrogates, which cannot be sent, with question marks."""
    return text.encode("utf-8", "replace").decode()
