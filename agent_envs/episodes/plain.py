"""What environments and policies return, as the plain data that records hold, and prompts as files hold them.

Of a step that goes on from another one, a file has only what is new.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import takewhile
from operator import eq
from typing import Any

import numpy as np

from agent_envs.errors import DataError
from agent_envs.messages import Observation, copied, observation_pictures
from agent_envs.pictures.folder import reference
from agent_envs.pictures.picture import Picture, as_picture, is_pictured


def to_json_types(value: Any) -> Any:
    """Return a value with NumPy scalars and arrays, tuples, sets and enums as the types that JSON has.

    Raises:
        DataError: A value has no JSON form; the message names the keys that lead to it.
    """
    if value is None or type(value) in (str, bool, int, float):
        return value
    if isinstance(value, Mapping):
        types: dict[str, Any] = {}
        for key, entry in value.items():
            try:
                types[str(key)] = to_json_types(entry)
            except DataError as e:
                raise DataError(f"{key!r}: {e}") from None
        return types
    if isinstance(value, (list, tuple)):
        return [to_json_types(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_json_types(v) for v in value)
    if isinstance(value, Picture):
        return reference(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Enum):
        return to_json_types(value.value)
    if isinstance(value, (str, int, float)):
        return value
    raise DataError(
        f"a value of type {type(value).__name__} has no JSON form and cannot be stored with an episode; leave it out "
        "or make it text, a number, a list or a mapping"
    )


def text_bytes(value: Any) -> int:
    """Return the bytes of memory that the strings in some plain data take.

    >>> text_bytes({"a": ["bb", 1]}) - text_bytes("a") - text_bytes("bb")
    0
    """
    if isinstance(value, str):
        return sys.getsizeof(value)
    if isinstance(value, Mapping):
        return sum(map(text_bytes, value)) + sum(map(text_bytes, value.values()))
    return sum(map(text_bytes, value)) if isinstance(value, (list, tuple)) else 0


class EpisodeSize:
    """Adds up the bytes of memory that the texts and the pictures in the steps of an episode take.

    >>> size = EpisodeSize()
    >>> size.add("a", "b", {}) == 2 * text_bytes("a")
    True
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._pictures = set[int]()  # those that the steps keep: prompts that grow show the same ones again

    def add(self, observation: Observation, action: str, info: Mapping[str, Any]) -> int:
        """Add a step, and return the bytes of all of them."""
        self.bytes += text_bytes((observation, action, info))
        for picture in observation_pictures(observation):
            if id(picture) not in self._pictures:
                self._pictures.add(id(picture))
                self.bytes += 3 * picture.height * picture.width
        return self.bytes


def recorded(observation: Any) -> Any:
    """Return an observation as records hold it: as plain data that does not change, with a `Picture` for each array."""
    if is_pictured(observation):
        return {"text": observation["text"], "images": tuple(map(as_picture, observation["images"]))}
    if isinstance(observation, list) and any(not isinstance(m.get("content"), str) for m in observation):
        return copied(observation)
    return to_json_types(observation)


def own_copy(value: Any) -> Any:
    """Return a copy that later steps cannot change; for plain containers faster than `copy.deepcopy`."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if type(value) is dict:
        return {key: own_copy(entry) for key, entry in value.items()}
    if type(value) is list:
        return [own_copy(entry) for entry in value]
    return copy.deepcopy(value)


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
                0 if value is None or isinstance(value, str | dict) else common_length(value, start)
                for value, start in zip(own.values(), begun, strict=True)
            ]
            left: dict[str, Any] = {name: own[name][n:] for name, n in zip(own, shared, strict=True) if n}
            step = replace(step, **left)
        out.append((step, shared))
    return out


def whole(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of an episode's steps with whole prompts; a ValueError if one shares what is not there."""
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


def common_length(one: Sequence[Any], other: list[Any]) -> int:
    """Return with how many equal elements both begin.

    >>> common_length([1, 2, 3], [1, 2, 4, 5])
    2
    """
    if list(one[: len(other)]) == other:
        return len(other)
    return sum(takewhile(bool, map(eq, one, other)))
