"""Prompts in files: of a step that goes on from another one, a file has only what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import eq
from typing import Any

_GROWING = ("observation", "prompt_ids", "prompt_pictures")
_LONGEST = 1 << 28  # tokens and messages that the steps of an episode go on from: 2 GiB of memory


def _begun(step: Mapping[str, Any]) -> list[list[Any]]:
    """Return what a prompt that goes on from a step begins with: messages, tokens and pictures."""
    messages = step["observation"] if isinstance(step["observation"], list) else []
    return [
        [*messages, {"role": "assistant", "content": step["action"]}],
        [*(step["prompt_ids"] or ()), *(step["response_ids"] or ())],
        [*(step.get("prompt_pictures") or ())],
    ]


def shortened(steps: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Return an episode's steps without what their prompts share with those that they go on from, and how much that is.

    The three numbers are those of messages, tokens and pictures.
    """
    out = []
    for number, step in enumerate(steps):
        shared = [0, 0, 0]
        if step.after is not None and 0 <= step.after < number:
            names = (*_GROWING, "action", "response_ids")
            begun = _begun({name: getattr(steps[step.after], name) for name in names})
            own = {name: getattr(step, name) for name in _GROWING}
            shared = [
                0 if value is None or isinstance(value, str | dict) else _alike(value, start)
                for value, start in zip(own.values(), begun, strict=True)
            ]
            left: dict[str, Any] = {name: own[name][n:] for name, n in zip(own, shared, strict=True) if n}
            step = replace(step, **left)
        out.append((step, shared))
    return out


def whole(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of an episode's steps with whole prompts.

    Raises:
        ValueError: A row says that it shares what is not there.
    """
    out: list[Mapping[str, Any]] = []
    length = 0
    for row in rows:
        if "shared" in row:
            after, shared = row.get("after"), row["shared"]
            if type(after) is not int or not 0 <= after < len(out):
                raise ValueError(f"a step goes on from step {after!r:.80}, which is not before it")
            begun = _begun(out[after])
            length += sum(map(len, begun))
            if length > _LONGEST or any(not 0 <= n <= len(b) for n, b in zip(shared, begun, strict=True)):
                raise ValueError(f"a step shares {shared!r:.80} messages, tokens and pictures with step {after}")
            parts = zip(_GROWING, begun, shared, strict=True)
            row = {**row, **{name: [*start[:n], *row.get(name, ())] for name, start, n in parts if n}}
        out.append(row)
    return out


def _alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return with how many equal elements both begin.

    >>> _alike([1, 2, 3], [1, 2, 4, 5])
    2
    """
    if list(one[: len(other)]) == other:
        return len(other)
    return sum(takewhile(bool, map(eq, one, other)))
