"""A folder of web services' replies, one file each: the cache, and the recording that a replay reads."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

from agent_envs.errors import ConfigError, DataError
from agent_envs.files import write_text
from agent_envs.retrieval.http.pool import HTTPReply

__all__ = ["ReplyStore", "canonical_url"]

NOTE = "backend.json"
"""The file of a recording that names the recorded backend."""


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
    the address inside. Headers, and thus keys, are never written.

    Args:
        folder: The folder; it is created on the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            self.folder = Path(folder).expanduser()
        except RuntimeError as e:
            raise ConfigError(f"{str(folder)!r} is not a usable folder: {e}") from e
        self._others: dict[str, Path] | None = None

    def get(self, method: str, url: str, body: bytes | None = None) -> HTTPReply | None:
        """Return the stored reply to a request, or None.

        Raises:
            DataError: The file is broken; the message names it.
        """
        key = _key(method, url, body)
        path = self._path(key)
        if not path.is_file():
            other = self._other_files().get(key)
            if other is None:
                return None
            path = other
        return _read(path)[1]

    def put(self, method: str, url: str, body: bytes | None, reply: HTTPReply) -> None:
        """Store a reply, replacing an earlier one.

        Raises:
            ConfigError: The folder cannot be written to.
        """
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
        row = json.loads(path.read_text(encoding="utf-8"))
        request = row.get("request")
        key = _key(row.get("method", "GET"), row["url"], None if request is None else request.encode())
        content = base64.b64decode(row["body_base64"]) if "body_base64" in row else row["body"].encode()
        return key, HTTPReply(int(row["status_code"]), content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DataError(
            f"{path}: expected an object with 'url', 'status_code' and 'body' ({type(e).__name__}: {e}); "
            "delete the file"
        ) from e
