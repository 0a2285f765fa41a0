"""Keys: what of a request is one, and texts without them, since servers repeat keys in errors and answers."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from urllib.parse import quote

__all__ = ["bare_address", "request_keys", "without_keys"]

_NAMES = re.compile(r"auth|key|token|secret|cookie|passw|signature|credential|^sig$", re.IGNORECASE)
_SHORTEST = 8  # a placeholder ("none", "EMPTY") may be a word of any text
_HIDDEN = "(the key)"


def request_keys(*fields: Mapping[str, str]) -> frozenset[str]:
    """Return the keys in a request's headers and in the query of its address.

    >>> sorted(request_keys({"Authorization": "Bearer sk-123456"}, {"key": "AIza-123", "api-version": "2024-10-21"}))
    ['AIza-123', 'sk-123456']
    """
    values = [value for given in fields for name, value in given.items() if _NAMES.search(name)]
    words = {word for value in values for word in re.split(r"[\s,;:]+|(?<=\w)=(?=\w)", value)} | {*values}
    for word in [*words]:
        with suppress(ValueError):
            words |= {*base64.b64decode(word, validate=True).decode().split(":", 1)}
    return frozenset(word for word in words if len(word) >= _SHORTEST and " " not in word)


def without_keys(text: str, keys: Iterable[str]) -> str:
    """Return a text, which may be JSON, without the keys.

    >>> without_keys('{"message": "Bearer sk-123456 is wrong"}', {"sk-123456"})
    '{"message": "Bearer (the key) is wrong"}'
    """
    for key in sorted(keys, key=len, reverse=True):
        escaped = json.dumps(key)[1:-1]
        for written in {key, escaped, escaped.replace("/", "\\/"), quote(key, safe="")}:
            text = text.replace(written, _HIDDEN) if len(key) >= _SHORTEST else text
    return text


def bare_address(url: str) -> str:
    """Return an address without what may be a key: user, password, query and fragment.

    >>> bare_address("https://me:secret@example.com/v1?key=3")
    'https://example.com/v1'
    """
    return re.sub(r"(?<=//)[^/?#]*@|[?#].*", "", url, flags=re.DOTALL)
