"""Spaces of text, of text with pictures and of chat messages: any string up to a maximum length.

``gymnasium.spaces.Text`` enumerates its characters, so a space of all of Unicode takes seconds and hundreds of
megabytes, and ``AsyncVectorEnv`` decodes a ``Text`` observation only once, at construction (Gymnasium 1.4.0). The
spaces here store only a length, and their shared memory is decoded at every step. They cannot be flattened into arrays
of numbers, and raise an error that says so.
"""

from __future__ import annotations

import json
import multiprocessing
import pickle
import struct
from abc import abstractmethod
from typing import Any, NoReturn, TypeVar

import numpy as np
from gymnasium.spaces import Space
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from gymnasium.wrappers.utils import create_zero_array

from agent_envs.checks import integer
from agent_envs.errors import ConfigError
from agent_envs.messages import Message, without_pictures
from agent_envs.pictures.picture import IMAGE, ImageObservation, Picture, Pictured, is_pictured

T = TypeVar("T")
Seed = int | np.random.Generator | None

_SAMPLE_ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyz ABCXYZ0123456789.,:?!<>/_{}()[]\"'\n\té中😀"))
_LENGTH = struct.Struct("<I")
_SLOT = 1024  # bytes of an element beside its words and pixels, and of a picture
_STUB = 1000  # characters
ROLES = ("system", "user", "assistant", "tool")  # of messages, as chat templates name them
_PARTS: dict[Any, type] = {"text": str, "image": Picture}
_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


class _SharedSpace(Space[T]):
    """A space of texts of at most ``max_length`` characters, with pictures."""

    def __init__(self, max_length: int, max_images: int = 0, max_side: int = 1024, *, seed: Seed = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)
        self.max_length = integer("max_length", max_length, minimum=0)
        self.max_images = integer("max_images", max_images, minimum=0)
        self.max_side = integer("max_side", max_side, minimum=1)
        """The most pictures in an element, and the greatest height and width of one in pixels."""

    @property
    def picture_limits(self) -> list[int]:
        """`max_images` and `max_side`; nothing without pictures."""
        return [self.max_images, self.max_side] if self.max_images else []

    @property
    def is_np_flattenable(self) -> bool:
        """False: text has no fixed-size array form."""
        return False

    @property
    def slot_size(self) -> int:
        """Bytes of an element in shared memory, pickled: at most 4 for a character, and the largest pictures."""
        return _SLOT + 4 * self.max_length + self.max_images * (_SLOT + 3 * self.max_side**2)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> T:
        """Return a short random element. ``mask`` and ``probability`` are not supported and must be None."""
        if mask is not None or probability is not None:
            raise ValueError(f"{type(self).__name__}.sample takes neither mask nor probability")
        return self._sample()

    @abstractmethod
    def _sample(self) -> T: ...

    @abstractmethod
    def empty(self) -> T:
        """Return the element without words and pictures."""

    def _sample_text(self, longest: int) -> str:
        length = int(self.np_random.integers(0, min(32, longest) + 1))
        return "".join(_SAMPLE_ALPHABET[self.np_random.integers(0, len(_SAMPLE_ALPHABET), length)])

    def _shows(self, images: Any) -> bool:
        """Return whether these are pictures within the limits."""

        def fits(image: Any) -> bool:
            coloured = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] == (3,)
            return coloured and min(image.shape) >= 1 and max(image.shape[:2]) <= self.max_side

        return isinstance(images, tuple) and len(images) <= self.max_images and all(map(fits, images))

    def _limits(self) -> tuple[int, ...]:
        """Return the arguments that tell spaces apart."""
        return (self.max_length, *self.picture_limits)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _SharedSpace) and other._limits() == self._limits()

    def __hash__(self) -> int:
        return hash((type(self), *self._limits()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self._limits()))})"


class UnicodeText(_SharedSpace[str]):
    """Every string of at most ``max_length`` characters (Unicode code points).

    Samples are short (at most 32 characters) and use a small alphabet with a few characters outside ASCII.

    >>> UnicodeText(8).contains("naïve 中"), UnicodeText(8).contains("123456789")
    (True, False)
    """

    def __init__(self, max_length: int = 65536, *, seed: Seed = None) -> None:
        super().__init__(max_length, seed=seed)

    def _sample(self) -> str:
        return self._sample_text(self.max_length)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string of at most ``max_length`` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def empty(self) -> str:
        return ""


class ImageText(_SharedSpace[ImageObservation]):
    """Every text of at most ``max_length`` characters with at most ``max_images`` pictures.

    An element is ``{"text": str, "images": tuple}``: the text has one ``<image>`` for each picture, and a picture is an
    array of uint8 [height, width, 3] with sides of 1 to ``max_side`` pixels. Samples have short texts and at most two
    pictures of at most 8 pixels a side. In shared memory an element takes the bytes of the largest one, so that a
    vector of processes needs about ``3 * max_images * max_side ** 2`` bytes for each environment.

    >>> space = ImageText(100, max_images=1, max_side=64)
    >>> space.contains({"text": "A crop: <image>", "images": (np.zeros((4, 6, 3), np.uint8),)})
    True
    >>> space.contains({"text": "A crop: <image>", "images": ()}), space.contains("A crop")
    (False, False)
    """

    def __init__(
        self, max_length: int = 65536, max_images: int = 4, max_side: int = 1024, *, seed: Seed = None
    ) -> None:
        super().__init__(max_length, max_images, max_side, seed=seed)

    def _sample(self) -> ImageObservation:
        most = min(2, self.max_images, self.max_length // len(IMAGE))
        parts: list[Any] = []
        for _ in range(int(self.np_random.integers(0, most + 1))):
            height, width = self.np_random.integers(1, min(8, self.max_side) + 1, 2)
            parts.append(self.np_random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        parts.append(self._sample_text((self.max_length - len(IMAGE) * len(parts)) // 2))  # < may become two characters
        return Pictured(*parts).observation()

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a text with as many pictures as placeholders, all within the limits."""
        if not (is_pictured(x) and isinstance(x["text"], str) and self._shows(x["images"])):
            return False
        return len(x["text"]) <= self.max_length and x["text"].count(IMAGE) == len(x["images"])

    def empty(self) -> ImageObservation:
        return {"text": "", "images": ()}


def longer(space: Space[Any], characters: int) -> UnicodeText | ImageText:
    """Return a space whose texts may be so many characters longer.

    >>> longer(UnicodeText(8), 2)
    UnicodeText(10)
    """
    if isinstance(space, ImageText):
        return ImageText(space.max_length + characters, space.max_images, space.max_side)
    return UnicodeText(space.max_length + characters)  # type: ignore[attr-defined]


def refuse_pictures(space: Space[Any], who: str) -> None:
    """Raise a ConfigError if observations of a space may hold pictures, which the reader called `who` cannot take."""
    if shows_pictures(space):
        raise ConfigError(f"{who} cannot take pictures yet, and this environment shows pictures: {space}")


def shows_pictures(space: Space[Any]) -> bool:
    """Return whether observations of a space may hold pictures."""
    return isinstance(space, _SharedSpace) and space.max_images > 0


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

    A message is a dictionary of ``role`` ("system", "user", "assistant" or "tool") and ``content`` (a string, or a list
    of parts with ``type`` "text" or "image"), and may have ``name``, ``tool_calls`` and ``tool_call_id``:
    ``agent_envs.messages.Message``. The list has at most ``max_images`` pictures with sides of at most ``max_side``
    pixels; they do not count as characters.

    >>> MessagesSpace(100).contains([{"role": "user", "content": "Go."}])
    True
    >>> MessagesSpace(100).contains([{"role": "bot", "content": "Go."}]), MessagesSpace(100).contains("Go.")
    (False, False)
    """

    def __init__(
        self, max_length: int = 1 << 21, max_images: int = 0, max_side: int = 1024, *, seed: Seed = None
    ) -> None:
        super().__init__(max_length, max_images, max_side, seed=seed)
        integer("max_length", max_length, minimum=len("[]"))

    def _sample(self) -> list[Message]:
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
        try:
            plain, pictures = without_pictures(x)
            seen = self._shows(tuple(picture.array for picture in pictures))
            return seen and len(json.dumps(plain, ensure_ascii=False)) <= self.max_length
        except (TypeError, ValueError, RecursionError):
            return False

    def empty(self) -> list[Message]:
        return []


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    content = value.get("content")
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict) or len(part) != 2 or part.get("type") not in ("text", "image"):
            return False
        if not isinstance(part.get(part["type"]), _PARTS[part["type"]]):
            return False
    return (
        value.get("role") in ROLES
        and isinstance(content, (str, list))
        and _KEYS.issuperset(value)
        and all(isinstance(value.get(key, ""), str) for key in ("name", "tool_call_id"))
        and isinstance(value.get("tool_calls", []), list)
    )


class _SharedElements:
    """The elements in a block of shared memory, decoded on access.

    ``AsyncVectorEnv`` reads its shared memory once and returns a deep copy of the result at every step; copying decodes
    the current bytes.
    """

    def __init__(self, space: _SharedSpace[Any], shared_memory: Any, n: int = 1) -> None:
        self._space = space
        self._bytes = memoryview(shared_memory).cast("B")
        self._count = n

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        start = range(self._count)[index] * self._space.slot_size
        (length,) = _LENGTH.unpack_from(self._bytes, start)
        start += _LENGTH.size
        return pickle.loads(self._bytes[start : start + length]) if length else self._space.empty()

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(self[i] for i in range(self._count))


@create_shared_memory.register(_SharedSpace)
def _create_shared(space: _SharedSpace[Any], n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.RawArray("c", n * space.slot_size)


@write_to_shared_memory.register(_SharedSpace)
def _write_shared(space: _SharedSpace[Any], index: int, value: Any, shared_memory: Any) -> None:
    encoded = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    if len(encoded) > space.slot_size - _LENGTH.size:
        raise ValueError(f"an observation of {len(encoded)} bytes does not fit into {space!r}")
    memory = memoryview(shared_memory).cast("B")
    start = index * space.slot_size
    _LENGTH.pack_into(memory, start, len(encoded))
    start += _LENGTH.size
    memory[start : start + len(encoded)] = encoded


def _refuse_numbers(space: _SharedSpace[Any], *args: Any, **kwargs: Any) -> NoReturn:
    what = "wrappers that flatten, rescale or stack arrays (FlattenObservation, TimeAwareObservation, ...)"
    why = f"{space!r} holds text, which cannot be flattened into an array of numbers"
    raise ConfigError(f"{why}: leave out {what}; docs/wrappers.md lists Gymnasium's wrappers that work")


create_zero_array.register(_SharedSpace, lambda space: space.empty())
read_from_shared_memory.register(_SharedSpace, _SharedElements)  # type: ignore[arg-type]
for _function in (flatdim, flatten, flatten_space, unflatten):
    _function.register(_SharedSpace, _refuse_numbers)
