"""What servers refuse: fields of requests, without which they are asked again, and prompts that are too long.

overflow.json has the words that say so, and whose they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from agent_envs.files import table

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


def is_overflow(message: str) -> bool:
    """Return whether a server's error says that a prompt, or a prompt and its response, is too long for the model.

    >>> is_overflow("This model's maximum context length is 16 tokens."), is_overflow("Too many tokens per minute")
    (True, False)
    """
    return _OVERFLOW.search(message) is not None
