"""Spaces of text and of chat messages: any string up to a maximum length.

``gymnasium.spaces.Text`` enumerates its characters, so a space of all of Unicode takes seconds and hundreds of
megabytes, and ``AsyncVectorEnv`` decodes a ``Text`` observation only once, at construction (Gymnasium 1.4.0). The
spaces here store only a length, and their shared memory is decoded at every step. They cannot be flattened into arrays
of numbers, and raise an error that says so.
"""

from __future__ import annotations

import json
import struct
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import numpy as np
from gymnasium.spaces import Space
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from gymnasium.wrappers.utils import create_zero_array

from agent_envs.errors import ConfigError
from agent_envs.messages import Message

__all__ = ["MessagesSpace", "UnicodeText", "kept_action"]

T = TypeVar("T")

_SAMPLE_ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyz ABCXYZ0123456789.,:?!<>/_{}()[]\"'\n\té中😀"))
_LENGTH = struct.Struct("<I")
_STUB = 1000  # characters
_ROLES = ("system", "user", "assistant", "tool")
_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


class _SharedSpace(Space[T]):
    """A space whose elements can be written as text of at most ``max_length`` characters."""

    def __init__(self, max_length: int, seed: int | np.random.Generator | None) -> None:
        if max_length < 0:
            raise ValueError(f"max_length must be at least 0, got {max_length}")
        super().__init__(shape=None, dtype=None, seed=seed)
        self.max_length = int(max_length)

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed-size array form."""
        return False

    @property
    def slot_size(self) -> int:
        """Bytes per element in shared memory: a 4-byte length, then UTF-8 at up to 4 bytes a character."""
        return _LENGTH.size + 4 * self.max_length

    @abstractmethod
    def to_text(self, value: T) -> str:
        """Return an element as text."""

    @abstractmethod
    def from_text(self, text: str) -> T:
        """Return the element that ``to_text`` wrote."""

    def _sample_text(self, longest: int) -> str:
        length = int(self.np_random.integers(0, min(32, longest) + 1))
        return "".join(_SAMPLE_ALPHABET[self.np_random.integers(0, len(_SAMPLE_ALPHABET), length)])

    def _refuse_mask(self, mask: Any, probability: Any) -> None:
        if mask is not None or probability is not None:
            raise ValueError(f"{type(self).__name__}.sample takes neither mask nor probability")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash((type(self), self.max_length))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_length})"


class UnicodeText(_SharedSpace[str]):
    """Every string of at most ``max_length`` characters (Unicode code points).

    Samples are short (at most 32 characters) and use a small alphabet with a few characters outside ASCII.

    >>> UnicodeText(8).contains("naïve 中"), UnicodeText(8).contains("123456789")
    (True, False)
    """

    def __init__(self, max_length: int = 65536, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, seed)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Return a random text. ``mask`` and ``probability`` are not supported and must be None."""
        self._refuse_mask(mask, probability)
        return self._sample_text(self.max_length)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string of at most ``max_length`` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def to_text(self, value: str) -> str:
        return value

    def from_text(self, text: str) -> str:
        return text


def kept_action(action: str, space: Space[Any]) -> str:
    """Return an action as records and prompts keep it: if it is too long for its space, its beginning and its length.

    >>> kept_action("a" * 10, UnicodeText(9)), kept_action("a" * 9, UnicodeText(9))
    ('aaaaaaaaa[cut: 10 characters, at most 9 are read]', 'aaaaaaaaa')
    """
    if not isinstance(space, UnicodeText) or len(action) <= space.max_length:
        return action
    beginning = action[: min(_STUB, space.max_length)]
    return f"{beginning}[cut: {len(action)} characters, at most {space.max_length} are read]"


class MessagesSpace(_SharedSpace[list[Message]]):
    """Every list of chat messages of at most ``max_length`` characters as ``json.dumps(messages, ensure_ascii=False)``.

    A message is a dictionary of ``role`` ("system", "user", "assistant" or "tool") and ``content`` (a string), and may
    have ``name``, ``tool_calls`` and ``tool_call_id``: ``agent_envs.messages.Message``.

    >>> MessagesSpace(100).contains([{"role": "user", "content": "Go."}])
    True
    >>> MessagesSpace(100).contains([{"role": "bot", "content": "Go."}]), MessagesSpace(100).contains("Go.")
    (False, False)
    """

    def __init__(self, max_length: int = 1 << 21, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, seed)
        if max_length < len("[]"):
            raise ValueError(f"max_length must be at least 2, the length of an empty list, got {max_length}")

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> list[Message]:
        """Return a short random conversation. ``mask`` and ``probability`` are not supported and must be None."""
        self._refuse_mask(mask, probability)
        messages: list[Message] = []
        for role in ("user", "assistant", "user")[: 1 + 2 * int(self.np_random.integers(0, 2))]:
            longer: list[Message] = [*messages, {"role": role, "content": self._sample_text(32)}]  # type: ignore[typeddict-item]
            if not self.contains(longer):
                break
            messages = longer
        return messages

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a list of valid messages that fits."""
        if not isinstance(x, list) or not all(map(_is_message, x)):
            return False
        if sum(len(message["content"]) for message in x) > self.max_length:
            return False
        try:
            return len(self.to_text(x)) <= self.max_length
        except (TypeError, ValueError, RecursionError):
            return False

    def to_text(self, value: list[Message]) -> str:
        return json.dumps(value, ensure_ascii=False)

    def from_text(self, text: str) -> list[Message]:
        return json.loads(text) if text else []


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("role") in _ROLES
        and isinstance(value.get("content"), str)
        and _KEYS.issuperset(value)
        and all(isinstance(value.get(key, ""), str) for key in ("name", "tool_call_id"))
        and isinstance(value.get("tool_calls", []), list)
    )


class _SharedElements:
    """The elements in a block of shared memory, decoded on access.

    ``AsyncVectorEnv`` reads its shared memory once and returns a deep copy of the result at every step; copying decodes
    the current bytes.
    """

    def __init__(self, space: _SharedSpace[Any], memory: Any, count: int) -> None:
        self._space = space
        self._bytes = memoryview(memory).cast("B")
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        start = range(self._count)[index] * self._space.slot_size
        (length,) = _LENGTH.unpack_from(self._bytes, start)
        start += _LENGTH.size
        return self._space.from_text(bytes(self._bytes[start : start + length]).decode("utf-8", "surrogatepass"))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._count))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(self)


@create_zero_array.register(_SharedSpace)
def _empty(space: _SharedSpace[T]) -> T:
    return space.from_text("")


@create_shared_memory.register(_SharedSpace)
def _create_shared(space: _SharedSpace[Any], n: int = 1, ctx: Any = None) -> Any:
    if ctx is None:
        import multiprocessing as ctx
    return ctx.RawArray("c", n * space.slot_size)


@read_from_shared_memory.register(_SharedSpace)
def _read_shared(space: _SharedSpace[Any], shared_memory: Any, n: int = 1) -> _SharedElements:
    return _SharedElements(space, shared_memory, n)


@write_to_shared_memory.register(_SharedSpace)
def _write_shared(space: _SharedSpace[Any], index: int, value: Any, shared_memory: Any) -> None:
    encoded = space.to_text(value).encode("utf-8", "surrogatepass")
    if len(encoded) > space.slot_size - _LENGTH.size:
        raise ValueError(f"an observation of {len(encoded)} bytes does not fit into {space!r}")
    memory = memoryview(shared_memory).cast("B")
    start = index * space.slot_size
    _LENGTH.pack_into(memory, start, len(encoded))
    start += _LENGTH.size
    memory[start : start + len(encoded)] = encoded


def _refuse_numbers(space: _SharedSpace[Any], *args: Any, **kwargs: Any) -> NoReturn:
    raise ConfigError(
        f"{space!r} holds text, which cannot be flattened into an array of numbers: leave out wrappers that flatten, "
        "rescale or stack arrays (FlattenObservation, TimeAwareObservation, ...); docs/wrappers.md lists Gymnasium's "
        "wrappers that work"
    )


for _function in (flatdim, flatten, flatten_space, unflatten):
    _function.register(_SharedSpace, _refuse_numbers)
