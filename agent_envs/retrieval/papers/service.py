"""A web service behind a backend or a selector, and the folder in which its replies are cached or recorded."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from agent_envs.errors import BackendReplyError, ConfigError, NotRecordedError, UnknownPaperError, did_you_mean
from agent_envs.files import read_text, write_text
from agent_envs.http.pool import HTTPPool, HTTPReply

T = TypeVar("T")

_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_READERS: dict[Any, Callable[[str], Any]] = {
    bool: lambda text: _TRUTH[text.lower()],
    **dict.fromkeys((float, float | None), float),
    **dict.fromkeys((int, int | None), int),
    str: str,
}


def cache_folder() -> str:
    """Return the default cache folder: `requests` beside the prepared data."""
    return str(Path(os.environ.get("AGENT_ENVS_DATA") or "~/.cache/agent_envs") / "requests")


def parse_options(text: str, kind: type, *, what: str) -> dict[str, Any]:
    """Parse options written `name=value&name=value`, with percent-escapes. Errors say that `what` has them.

    The options are the keyword-only arguments of a class and its bases whose types a text can be read as.

    >>> parse_options("timeout=5&cache=a%26b&offline=1", Service, what="arxiv")
    {'timeout': 5.0, 'cache': 'a&b', 'offline': True}

    Raises:
        ConfigError: An option is unknown, given twice, or has a value of another type.
    """
    types: dict[str, Any] = {}
    for base in kind.__mro__:
        init: Any = vars(base).get("__init__", object.__init__)
        hints, keywords = get_type_hints(init), inspect.getfullargspec(init).kwonlyargs
        types |= {name: hints[name] for name in keywords if hints[name] in _READERS}
    options: dict[str, Any] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
    except ValueError as e:
        raise ConfigError(f"{what}: expected options written name=value&name=value, got {text!r}") from e
    for name, value in pairs:
        if name not in types:
            raise ConfigError(f"{what} has no option {name!r}.{did_you_mean(name, types)}")
        if name in options:
            raise ConfigError(f"{what}: the option {name!r} is given twice")
        try:
            options[name] = _READERS[types[name]](value)
        except (KeyError, ValueError) as e:
            expected = getattr(types[name], "__name__", str(types[name]).removesuffix(" | None"))
            raise ConfigError(f"{what}: {name} must be of type {expected}, got {value!r}") from e
    return options


def read_key(variable: str) -> str:
    """Return the key in an environment variable, or "" if none is named. Raises ConfigError if it is not set."""
    if variable and not os.environ.get(variable):
        raise ConfigError(f"key_env names the environment variable {variable!r}, which is not set")
    return os.environ[variable] if variable else ""


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

    Files appear completely or not at all, so several processes may share a folder. Headers, and thus keys, are never
    written. The folder is created on the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            self.folder = Path(folder).expanduser()
        except RuntimeError as e:
            raise ConfigError(f"{str(folder)!r} is not a usable folder: {e}") from e

    def get(self, method: str, url: str, body: bytes | None = None) -> HTTPReply | None:
        """Return the stored reply to a request, or None. BackendReplyError names the file if it is broken."""
        path = self._path(method, url, body)
        try:
            row = json.loads(read_text(path))
            return HTTPReply(int(row["status_code"]), row["body"].encode("utf-8", "surrogateescape"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise BackendReplyError(
                f"{path}: expected an object with 'status_code' and 'body' ({type(e).__name__}: {e}); delete the file"
            ) from e

    def put(self, method: str, url: str, body: bytes | None, reply: HTTPReply) -> None:
        """Store a reply, replacing an earlier one. Raises ConfigError if the folder cannot be written to."""
        row: dict[str, object] = {"method": method, "url": url}
        if body is not None:
            row["request"] = body.decode("utf-8", "replace")
        row |= {"status_code": reply.status, "body": reply.content.decode("utf-8", "surrogateescape")}
        try:
            write_text(self._path(method, url, body), json.dumps(row, indent=1) + "\n")
        except OSError as e:
            raise ConfigError(f"replies cannot be written to {self.folder}: {e.strerror}") from e

    def _path(self, method: str, url: str, body: bytes | None) -> Path:
        request = json.dumps([method, canonical_url(url), None if body is None else body.decode("utf-8", "replace")])
        key = hashlib.sha256(request.encode()).hexdigest()[:40]
        return self.folder / key[:2] / f"{key[2:]}.json"


class Service(HTTPPool):
    """A web service. Replies are cached only after they were understood, so failures are not.

    Args:
        url: Its address.
        cache: The folder of cached replies; "off" for none.
        offline: Whether to use cached replies only, without a network or a key.
        **pool: Arguments of `HTTPPool`.
    """

    def __init__(self, url: str, *, cache: str = "off", offline: bool = False, **pool: Any) -> None:
        super().__init__(url, **{"timeout": 30.0, **pool})
        self._store = None if cache == "off" else ReplyStore(cache)
        self.offline = offline
        if offline and self._store is None:
            raise ConfigError(f"{url}: offline=1 needs a folder of cached replies: cache=FOLDER")

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a network."""
        return not self.offline

    def get(self, path: str, params: Mapping[str, object], read: Callable[[HTTPReply], T]) -> T:
        """Send a GET request and return what `read` makes of the reply, or of a cached one.

        `read` raises BackendReplyError if the reply is not as expected, UnknownPaperError if it says that there is no
        such paper.

        Raises:
            BackendError: The service failed or sent an unexpected reply.
            NotRecordedError: Offline, and no reply is cached.
            UnknownPaperError: From `read`.
        """
        # Lone surrogates cannot be sent.
        values = {key: str(value).encode("utf-8", "replace") for key, value in params.items()}
        return self._ask("GET", f"{path}?{urlencode(values, quote_via=quote)}", None, read)

    def post(self, path: str, body: object, read: Callable[[HTTPReply], T]) -> T:
        """Send a POST request with a JSON body, as `get` does."""
        return self._ask("POST", path, json.dumps(body, sort_keys=True).encode(), read)

    def _ask(self, method: str, path: str, body: bytes | None, read: Callable[[HTTPReply], T]) -> T:
        url = self.url + path
        cached = None if self._store is None else self._store.get(method, url, body)
        if cached is not None:
            try:
                return read(cached)
            except BackendReplyError:  # from another version of the service: request it again
                if self.offline:
                    raise
        if self._store is not None and self.offline:
            raise NotRecordedError(
                f"{self._store.folder} has no reply to {method} {url[:300]}; ask once without offline=1 to keep it"
            )
        reply = self.request(method, path, body)
        with contextlib.suppress(UnknownPaperError):  # which is an answer, too
            read(reply)
        if self._store is not None:
            self._store.put(method, url, body, reply)
        return read(reply)
