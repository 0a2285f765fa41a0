"""A space of text that holds any string up to a length.

``gymnasium.spaces.Text`` enumerates its characters, so that all of Unicode costs seconds and hundreds of megabytes, and
``AsyncVectorEnv`` decodes a ``Text`` observation once, at construction (Gymnasium 1.4.0). ``UnicodeText`` knows only a
length, and its shared memory is read anew at each step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from gymnasium.wrappers.utils import create_zero_array

__all__ = ["UnicodeText"]

_SAMPLE_ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyz ABCXYZ0123456789.,:?!<>/_{}()[]\"'\n\té中😀"))
_LENGTH = struct.Struct("<I")


class UnicodeText(Space[str]):
    """Every string of at most ``max_length`` characters (Unicode code points).

    Samples are short (at most 32 characters) and use a small alphabet with a few characters outside ASCII.

    Args:
        max_length: The greatest number of characters.
        seed: Seed of the sampler.

    >>> UnicodeText(8).contains("naïve 中"), UnicodeText(8).contains("123456789")
    (True, False)
    """

    def __init__(self, max_length: int = 65536, *, seed: int | np.random.Generator | None = None) -> None:
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
        """Bytes one text takes in shared memory: a 4-byte length, then UTF-8 at up to 4 bytes a character."""
        return _LENGTH.size + 4 * self.max_length

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """A random text. ``mask`` and ``probability`` are not supported and must be None."""
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText.sample takes neither mask nor probability")
        length = int(self.np_random.integers(0, min(32, self.max_length) + 1))
        return "".join(_SAMPLE_ALPHABET[self.np_random.integers(0, len(_SAMPLE_ALPHABET), length)])

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string of at most ``max_length`` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash((UnicodeText, self.max_length))

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"


class _SharedTexts:
    """The texts in a block of shared memory, decoded when they are looked at.

    ``AsyncVectorEnv`` reads its shared memory once and returns a deep copy of what it read at every step: the copy is
    where the current bytes become strings.
    """

    def __init__(self, memory: Any, count: int, slot_size: int) -> None:
        self._bytes = memoryview(memory).cast("B")
        self._count = count
        self._slot_size = slot_size

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:
        start = range(self._count)[index] * self._slot_size
        (length,) = _LENGTH.unpack_from(self._bytes, start)
        start += _LENGTH.size
        return bytes(self._bytes[start : start + length]).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(self._count))

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


@create_zero_array.register(UnicodeText)
def _empty_text(space: UnicodeText) -> str:  # type: ignore[misc]
    return ""


@create_shared_memory.register(UnicodeText)
def _create_shared_texts(space: UnicodeText, n: int = 1, ctx: Any = None) -> Any:
    if ctx is None:
        import multiprocessing as ctx
    return ctx.RawArray("c", n * space.slot_size)


@read_from_shared_memory.register(UnicodeText)
def _read_shared_texts(space: UnicodeText, shared_memory: Any, n: int = 1) -> _SharedTexts:
    return _SharedTexts(shared_memory, n, space.slot_size)


@write_to_shared_memory.register(UnicodeText)
def _write_shared_text(space: UnicodeText, index: int, value: str, shared_memory: Any) -> None:
    encoded = value.encode("utf-8", "surrogatepass")
    if len(encoded) > space.slot_size - _LENGTH.size:
        raise ValueError(f"an observation of {len(value)} characters does not fit {space!r}")
    memory = memoryview(shared_memory).cast("B")
    start = index * space.slot_size
    _LENGTH.pack_into(memory, start, len(encoded))
    start += _LENGTH.size
    memory[start : start + len(encoded)] = encoded
