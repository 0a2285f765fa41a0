"""A text with pictures as one block of bytes, for shared memory: length and text, each picture's size and pixels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct("<I")
_SHAPE = struct.Struct("<II")  # height and width


class PictureLimits:
    """How many pictures a text may have, and how large they may be.

    Args:
        max_images: The most pictures, at least 0.
        max_side: The greatest height and width in pixels, at least 1.
    """

    def __init__(self, max_images: int, max_side: int) -> None:
        for name, value, least in (("max_images", max_images, 0), ("max_side", max_side, 1)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        self.max_images, self.max_side = int(max_images), int(max_side)

    @property
    def size(self) -> int:
        """The most bytes that the pictures take."""
        return self.max_images * (_SHAPE.size + 3 * self.max_side**2)

    def fit(self, images: Any) -> bool:
        """Return whether these are pictures within the limits."""
        return (
            isinstance(images, tuple)
            and len(images) <= self.max_images
            and all(
                isinstance(image, np.ndarray)
                and image.dtype == np.uint8
                and image.ndim == 3
                and image.shape[2] == 3
                and min(image.shape[:2]) >= 1
                and max(image.shape[:2]) <= self.max_side
                for image in images
            )
        )


def to_block(text: str, images: Sequence[NDArray[np.uint8]]) -> bytes:
    """Return a text and its pictures as bytes."""
    encoded = text.encode("utf-8", "surrogatepass")
    pieces = [_LENGTH.pack(len(encoded)), encoded]
    for image in images:
        pieces += (_SHAPE.pack(*image.shape[:2]), image.tobytes())
    return b"".join(pieces)


def from_block(data: bytes) -> tuple[str, tuple[NDArray[np.uint8], ...]]:
    """Return what `to_block` wrote; no text and no pictures for no bytes."""
    if not data:
        return "", ()
    start = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    text, images = data[_LENGTH.size : start].decode("utf-8", "surrogatepass"), []
    while start < len(data):
        height, width = _SHAPE.unpack_from(data, start)
        start += _SHAPE.size
        images.append(np.frombuffer(data, np.uint8, 3 * height * width, start).reshape(height, width, 3))
        start += 3 * height * width
    return text, tuple(images)
