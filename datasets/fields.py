"""Checked access to the fields of a data row; each error says where the row is, what was expected and what was found.

`where` describes the row, like "rows.jsonl, line 3".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

from agent_envs.errors import DataError
from agent_envs.files import MAX_ROW_BYTES, read_text


def as_object(value: Any, expected: str, where: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object; `expected` says what was expected instead of something else."""
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected {expected}, got {type(value).__name__} {value!r:.60}")
    return value


def read_object(path: str | os.PathLike[str], expected: str = "a JSON object", longest: int = MAX_ROW_BYTES) -> Any:
    """Return the JSON object that a file of at most `longest` bytes holds; `expected` says what it should be."""
    try:
        value = json.loads(read_text(path, longest))
    except (OSError, ValueError, RecursionError) as e:
        raise DataError(f"{os.fspath(path)}: cannot be read as {expected}: {e}") from e
    return as_object(value, expected, os.fspath(path))


def text_field(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return the non-empty string under a key.

    >>> text_field({"question": 1}, "question", "rows.jsonl, line 3")
    Traceback (most recent call last):
        ...
    agent_envs.errors.DataError: rows.jsonl, line 3: expected text under 'question', got 1 (keys: 'question')
    """
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: expected text under {key!r}, got {value!r:.60} (keys: {keys_of(row)})")
    return value


def answer_field(row: Mapping[str, Any], key: str, where: str) -> str:
    """Return the answer under a key: a non-empty string, or a finite number as text, a whole one without a point.

    >>> [answer_field({"answer": answer}, "answer", "") for answer in ("27.0", 27.0, 1e3, 0.5)]
    ['27.0', '27', '1000', '0.5']
    """
    value = row.get(key)
    if isinstance(value, (Real, Decimal)) and not isinstance(value, bool) and math.isfinite(value):
        return str(int(value) if value == int(value) else value)  # type: ignore[arg-type]
    return text_field(row, key, where)


def as_list(value: Any, key: str, where: str) -> list[Any]:
    """Return the value under a key as a list."""
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise DataError(f"{where}: expected a list under {key!r}, got {value!r:.60}")
    return list(value)


def as_texts(value: Any, key: str, where: str) -> list[str]:
    """Return the value under a key as a list of strings."""
    texts = as_list(value, key, where)
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{where}: expected a list of strings under {key!r}, got {text!r:.60} in it")
    return texts


def keys_of(row: Mapping[str, Any]) -> str:
    """Return the keys of a row as an error shows them."""
    return (", ".join(map(repr, row)) or "none")[:200]
