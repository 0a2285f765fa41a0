"""Keys: what of a request is one, and texts without them, since servers repeat keys in errors and answers."""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

__all__ = ["bare_address", "quiet_cause", "request_keys", "without_keys"]

_NAMES = re.compile(
    r"authorization|(?<![a-z])auth(?![a-z])|key|token|secret|cookie|passw|signature|credential|^sig$", re.IGNORECASE
)
_SHORTEST = 8  # a placeholder ("none", "EMPTY") may be a word of any text


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


def without_keys(value: Any, keys: Iterable[str]) -> Any:
    """Return a text, or JSON values, without the keys; the same object if there are none in it.

    >>> without_keys({"message": "Bearer sk-123456 is wrong"}, {"sk-123456"})
    {'message': 'Bearer (the key) is wrong'}
    """
    told = text = value if isinstance(value, str) else json.dumps(value)
    for key in sorted((key for key in keys if len(key) >= _SHORTEST), key=len, reverse=True):
        escaped = json.dumps(key)[1:-1]
        for written in {key, escaped, escaped.replace("/", "\\/"), quote(key, safe="")}:
            told = told.replace(written, "(the key)")
    return value if told == text else told if isinstance(value, str) else json.loads(told)


def bare_address(url: str) -> str:
    """Return an address without what may be a key: user, password, query and fragment.

    >>> bare_address("https://me:secret@example.com/v1?key=3")
    'https://example.com/v1'
    """
    return re.sub(r"(?<=//)[^/?#]*@|[?#].*", "", url, flags=re.DOTALL)


def quiet_cause(error: Exception, keys: Iterable[str]) -> Exception | None:
    """Return an error that may be another's cause, or None if its traceback, which shows its own causes, has a key."""
    told = "".join(traceback.format_exception(error))
    return error if without_keys(told, keys) == told else None
