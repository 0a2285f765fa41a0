"""What servers refuse: fields of requests, without which they are asked again, and prompts that are too long.

overflow.json has the words that say so, and whose they are.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from agent_envs.files import table
from agent_envs.text import clean_text

_OVERFLOW = re.compile("|".join(table(__package__, "overflow.json")), re.IGNORECASE)
_SPELLINGS = {"logprobs": r"log[\s_-]?prob"}
_BLAMED = re.compile(
    r"unrecognized|unknown|unexpected|unsupported|not supported|extra|permitted|additional", re.IGNORECASE
)
_MESSAGE, _CALL = frozenset({"role", "content", "tool_calls"}), frozenset({"id", "type", "function"})


def refused_fields(status: int, error: str, names: Collection[str]) -> set[str]:
    """Return which of the fields a refusal names; all of them if it blames a field and names none.

    >>> refused_fields(403, "You are not allowed to request logprobs.", ["logprobs", "seed"])
    {'logprobs'}
    """
    patterns = {name: _SPELLINGS.get(name, rf"(?<!\w){re.escape(name)}(?!\w)") for name in names}
    named = {name for name, pattern in patterns.items() if re.search(pattern, error, re.IGNORECASE)}
    return set(names) if not named and status in (400, 422, 501) and _BLAMED.search(error) else named


def extra_fields(messages: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the fields of assistant messages and their calls beyond those that every server knows.

    >>> extra_fields([{"role": "assistant", "content": "4", "reasoning_content": "2+2"}])
    {'reasoning_content'}
    """
    said = [message for message in messages if message.get("role") == "assistant"]
    calls = [call for message in said for call in message.get("tool_calls") or ()]
    return {name for message in said for name in message} - _MESSAGE | {name for call in calls for name in call} - _CALL


def without_fields(messages: Iterable[Mapping[str, Any]], names: Collection[str]) -> list[dict[str, Any]]:
    """Return messages whose assistant's ones, and their calls, have no fields of these names."""

    def rest(value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: entry for name, entry in value.items() if name not in names}

    shown = [rest(message) if message.get("role") == "assistant" else dict(message) for message in messages]
    return [{**m, "tool_calls": [rest(c) for c in m["tool_calls"]]} if m.get("tool_calls") else m for m in shown]


def encodable(value: Any) -> Any:
    """Return JSON values with U+FFFD in place of lone surrogates, which cannot be sent."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {encodable(name): encodable(entry) for name, entry in value.items()}
    return [encodable(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def is_overflow(message: str) -> bool:
    """Return whether a server's error says that a prompt, or a prompt and its response, is too long for the model.

    >>> is_overflow("This model's maximum context length is 16 tokens."), is_overflow("Too many tokens per minute")
    (True, False)
    """
    return _OVERFLOW.search(message) is not None


_NAMES = re.compile(
    r"authorization|(?<![a-z])(auth|bearer|jwt|pass|sig)(?![a-z])|key|token|secret|cookie|passw|pwd|signature|credential",
    re.IGNORECASE,
)
_SHORTEST = 8  # a placeholder ("none", "EMPTY") may be a word of any text
_FIELD = re.compile("[a-z_]+")
_NAMING = frozenset({"ended_by", "env_id", "episode_id", "group_id", "role", "sha256", "stop_reason", "type"})


def request_keys(*fields: Mapping[str, str]) -> frozenset[str]:
    """Return the keys in a request's headers and in the query of its address.

    >>> sorted(request_keys({"Authorization": "Bearer sk-123456"}, {"key": "AIza-123", "api-version": "2024-10-21"}))
    ['AIza-123', 'sk-123456']
    >>> request_keys({"Authorization": "AWS4 Credential=a/b, Signature=5d672d79"})
    frozenset({'5d672d79'})
    """
    values = [value for given in fields for name, value in given.items() if _NAMES.search(name)]
    pieces = {piece for value in values for piece in re.split(r"[\s,;:]+", value)}
    words = {re.sub(r"^([\w-]+=)+(?=\w)", "", piece) for piece in pieces} | {*values}
    for word in [*words]:
        with suppress(ValueError):
            words |= {*base64.b64decode(word, validate=True).decode().split(":", 1)}
    return frozenset(word for word in words if len(word) >= _SHORTEST and " " not in word)


def without_keys(value: Any, keys: Iterable[str]) -> Any:
    """Return a text, or JSON values, without the keys; the same object if there are none in it.

    A key is what somebody sent as one, and may be any word: fields keep their names, and those that name a record's
    parts and kinds what they hold, so that a record stays one.

    >>> without_keys({"message": "Bearer sk-123456 is wrong"}, {"sk-123456"})
    {'message': 'Bearer (the key) is wrong'}
    >>> without_keys({"role": "assistant", "content": "I am an assistant"}, {"assistant"})
    {'role': 'assistant', 'content': 'I am an (the key)'}
    """
    spellings = list[str]()
    for key in sorted((key for key in keys if len(key) >= _SHORTEST), key=len, reverse=True):
        escaped = json.dumps(key)[1:-1]
        spellings += {key, escaped, escaped.replace("/", "\\/"), quote(key, safe="")}
    told = _told(value, spellings)
    return value if told == value else told


def _told(value: Any, spellings: Iterable[str]) -> Any:
    if isinstance(value, str):
        for spelling in spellings:
            value = value.replace(spelling, "(the key)")
        return value
    if isinstance(value, (list, tuple)):
        return [_told(entry, spellings) for entry in value]
    if not isinstance(value, Mapping):
        return value
    named = ((name if _FIELD.fullmatch(name) else _told(name, spellings), entry) for name, entry in value.items())
    return {name: entry if name in _NAMING else _told(entry, spellings) for name, entry in named}


def quiet_cause(error: Exception, keys: Iterable[str]) -> Exception | None:
    """Return an error that may be another's cause, or None if its traceback, which shows its own causes, has a key."""
    told = "".join(traceback.format_exception(error))
    return error if without_keys(told, keys) == told else None
