"""What environments and policies return, as the plain data that records hold."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from enum import Enum
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
