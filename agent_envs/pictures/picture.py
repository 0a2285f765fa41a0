"""Pictures and the texts around them.

An observation with pictures is ``{"text": str, "images": tuple of arrays}``; the text has one ``<image>`` for each
picture, in order. Text from elsewhere may contain the same characters. `Pictured` breaks them up with a space, as in
``< image>``, so that the number of placeholders always equals the number of pictures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeGuard

import numpy as np
from numpy.typing import NDArray

from agent_envs.errors import ConfigError, DataError
from agent_envs.per_process import Shared
from agent_envs.text import clean_text, cut

IMAGE = "<image>"
"""What stands for a picture in the text of an observation."""

_BROKEN_UP = "< image>"


class ImageObservation(TypedDict):
    """An observation with pictures."""

    text: str
    """The words, with one `IMAGE` for each picture."""
    images: tuple[Any, ...]
    """The pictures in order, each an array of uint8 [height, width, 3]: red, green, blue; in records a `Picture`."""


def literal(text: str) -> str:
    """Break up every placeholder in a text, which then stands for no picture.

    >>> literal("Look: <image>")
    'Look: < image>'
    """
    return text.replace(IMAGE, _BROKEN_UP)


def pixels(value: Any) -> NDArray[np.uint8]:
    """Return a picture as an array that nobody can change.

    Args:
        value: A `Picture`, or an array of bytes (uint8) of shape [height, width, 3] with at least one pixel. It is
            copied unless it is read-only already.

    Raises:
        ConfigError: It has another type, shape or dtype.
    """
    if isinstance(value, Picture):
        return value.array
    if not isinstance(value, np.ndarray):
        raise ConfigError(f"a picture must be a numpy array of uint8 [height, width, 3], got {type(value).__name__}")
    if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or 0 in value.shape:
        raise ConfigError(
            f"a picture must be an array of uint8 [height, width, 3] with at least one pixel, got {value.dtype} "
            f"{list(value.shape)}; convert other formats first, for example with Pillow's image.convert('RGB')"
        )
    flags, owned = value.flags, value.base is None or isinstance(value.base, bytes)  # so that nobody can write to it
    if type(value) is np.ndarray and flags.c_contiguous and not flags.writeable and owned:
        return value
    array = np.asarray(value)
    if not flags.c_contiguous and array.strides[2] == 1:  # a transposed picture: whole pixels take half the time
        array = np.ascontiguousarray(array.view("V3")).view(np.uint8)
    copy = np.array(array, dtype=np.uint8, order="C")
    copy.flags.writeable = False
    return copy


class Picture(Shared):
    """A picture that never changes: compared and hashed by its pixels, so that messages with pictures can be compared.

    Args:
        array: See `pixels`.

    >>> red = Picture(np.full((2, 3, 3), (255, 0, 0), np.uint8))
    >>> red
    Picture(3 x 2 pixels, 3cfb658b)
    >>> red == Picture(np.asarray(red)), red.width, red.height
    (True, 3, 2)
    """

    __slots__ = ("_array", "_digest", "_load", "_size")

    def __init__(self, array: Any) -> None:
        self._array: NDArray[np.uint8] | None = pixels(array)
        self._size: tuple[int, int] = self._array.shape[:2]
        self._digest = ""
        self._load: Callable[[], Picture] | None = None

    @classmethod
    def stored(cls, digest: str, height: int, width: int, load: Callable[[], Picture]) -> Picture:
        """Return a picture that is loaded when its pixels are first asked for.

        Args:
            digest: Its `digest`.
            height, width: Its size in pixels.
            load: Returns it; called once. Another picture than this one is refused.
        """
        picture = cls.__new__(cls)
        picture._array, picture._digest, picture._size, picture._load = None, digest, (height, width), load
        return picture

    @property
    def array(self) -> NDArray[np.uint8]:
        """The pixels, shape [height, width, 3], read-only.

        Raises:
            DataError: The picture is stored in a file that is missing or holds something else.
        """
        if self._array is None:
            assert self._load is not None
            loaded = self._load()
            if loaded.digest != self._digest or (loaded.height, loaded.width) != self._size:
                raise DataError(f"the picture {self._digest[:16]} is not what its file holds: {loaded!r}")
            self._array, self._load = loaded.array, None
        return self._array

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self._size[1]

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self._size[0]

    @property
    def digest(self) -> str:
        """SHA-256 of the size and the pixels, in 64 hexadecimal digits: the picture's name in files."""
        if not self._digest:
            hashed = hashlib.sha256(b"%d %d " % self._size)
            hashed.update(self.array.data)
            self._digest = hashed.hexdigest()
        return self._digest

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Picture):
            return NotImplemented
        if self._size != other._size:
            return False
        if self._digest and other._digest:
            return self._digest == other._digest
        return self.array is other.array or np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __copy__(self) -> Picture:
        return self

    def __reduce__(self) -> tuple[type[Picture], tuple[NDArray[np.uint8]]]:
        return Picture, (self.array,)

    def __repr__(self) -> str:
        return f"Picture({self.width} x {self.height} pixels, {self.digest[:8]})"


def as_picture(value: Any) -> Picture:
    """Return a picture as a `Picture`: see `pixels`."""
    return value if isinstance(value, Picture) else Picture(value)


class Pictured(Shared):
    """Text with pictures: what an environment or a tool says if words are not enough.

    Args:
        parts: Strings, pictures (see `pixels`) and other `Pictured`, in order. Nothing is put between them. In a string
            ``<image>`` is text: it is shown as ``< image>``.

    >>> crop = np.zeros((4, 4, 3), np.uint8)
    >>> said = Pictured("The <image> you asked for:\\n", crop)
    >>> said.text, len(said.images)
    ('The < image> you asked for:\\n<image>', 1)
    """

    __slots__ = ("images", "text")

    def __init__(self, *parts: Any) -> None:
        texts: list[str] = [""]  # between the pictures
        images: list[NDArray[np.uint8]] = []
        for part in parts:
            for piece in observation_parts(part.observation()) if isinstance(part, Pictured) else [part]:
                if isinstance(piece, str):
                    texts[-1] += piece
                else:
                    images.append(pixels(piece))
                    texts.append("")
        self.text: str = IMAGE.join(literal(clean_text(text)) for text in texts)
        """The words, with one `IMAGE` for each picture."""
        self.images: tuple[NDArray[np.uint8], ...] = tuple(images)
        """The pictures in order; the arrays are read-only."""

    @classmethod
    def of(cls, observation: str | ImageObservation | Pictured) -> Pictured:
        """Return an observation, a text or a `Pictured` as a `Pictured`."""
        return observation if isinstance(observation, Pictured) else cls(*observation_parts(observation))

    @classmethod
    def join(cls, separator: str, parts: Sequence[Pictured]) -> Pictured:
        """Return several as one, with a text between them."""
        if len(parts) == 1:
            return parts[0]
        return cls(*[piece for part in parts for piece in (separator, part)][1:])

    def observation(self) -> ImageObservation:
        """Return it as an observation."""
        return {"text": self.text, "images": self.images}

    def fitted(self, max_length: int, max_images: int, max_side: int) -> Pictured:
        """Return it within limits; what is left out is said in its place.

        Raises:
            ConfigError: A picture is larger than ``max_side`` pixels.
        """
        for image in self.images:
            if max(image.shape[:2]) > max_side:
                height, width = image.shape[:2]
                raise ConfigError(
                    f"a picture of {width} x {height} pixels is too large: at most {max_side} pixels a side are shown; "
                    "shrink it, or raise the environment's max_image_side"
                )
        text, images = self.text, self.images
        if len(images) > max_images:
            pieces = text.split(IMAGE)
            note = f"[picture left out: at most {max_images} are shown]"
            text = IMAGE.join([*pieces[:max_images], note.join(pieces[max_images:])])
            images = images[:max_images]
        text = cut(text, max_length)
        images = images[: text.count(IMAGE)]
        if text is self.text:
            return self
        fitted = Pictured()
        fitted.text, fitted.images = text, images
        return fitted

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pictured):
            return NotImplemented
        return alike(self.observation(), other.observation())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Pictured({self.text!r:.80}, {len(self.images)} pictures)"


def around(before: str, observation: Any, after: str) -> Any:
    """Return an observation, with or without pictures, with text before and after it.

    >>> around("Look: ", "a door", ".")
    'Look: a door.'
    """
    if isinstance(observation, str):
        return f"{before}{observation}{after}"
    return Pictured(before, Pictured.of(observation), after).observation()


def is_pictured(observation: Any) -> TypeGuard[ImageObservation]:
    """Return whether an observation is one with pictures: a mapping of ``text`` and ``images``."""
    return isinstance(observation, dict) and observation.keys() == {"text", "images"}


def observation_parts(observation: str | ImageObservation) -> list[Any]:
    """Return an observation's words and pictures in order, empty words left out.

    >>> observation_parts({"text": "a<image>", "images": (np.zeros((1, 1, 3), np.uint8),)})
    ['a', array([[[0, 0, 0]]], dtype=uint8)]
    """
    if isinstance(observation, str):
        return [observation] if observation else []
    pieces, images = observation["text"].split(IMAGE), observation["images"]
    if len(pieces) != len(images) + 1:
        raise ConfigError(f"an observation has {len(pieces) - 1} times {IMAGE} in its text and {len(images)} pictures")
    parts: list[Any] = []
    for number, piece in enumerate(pieces):
        if number:
            parts.append(images[number - 1])
        if piece:
            parts.append(piece)
    return parts


def alike(a: Any, b: Any) -> bool:
    """Return whether two values are equal, where pictures in them are equal if all their pixels are.

    >>> alike({"images": (np.zeros((2, 2, 3)),)}, {"images": (np.zeros((2, 2, 3)),)})
    True
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and bool(a == b)
