"""Pictures as PNG, and PNG from outside as pictures: with Pillow, and within strict limits.

PNG keeps every pixel. A file from outside may be anything: it is read only if it is a PNG (or JPEG, where asked for) of
at most ``max_side`` pixels a side by its own header, which is checked before a pixel is decoded.
"""

from __future__ import annotations

import base64
import functools
import io
import struct
import warnings
import zlib
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_envs.errors import DataError, needs_extra
from agent_envs.pictures.picture import Picture, as_picture, pixels

LARGEST_SIDE = 8192
"""Greatest height and width in pixels of a picture that is read from a file."""
LARGEST_FILE = 1 << 28
"""Most bytes of such a file: 8192 x 8192 pixels that cannot be packed take 192 MiB."""

_URL = "data:image/png;base64,"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def needs_pillow() -> ModuleType:
    """Return Pillow; a MissingExtraError names the extra that installs it."""
    with needs_extra("games", "pillow"):
        import PIL.Image
    return PIL.Image


def to_png(picture: Picture | NDArray[np.uint8]) -> bytes:
    """Return a picture as a PNG file.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    file = io.BytesIO()
    needs_pillow().fromarray(pixels(picture)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def base64_png(picture: Picture | NDArray[np.uint8]) -> str:
    """Return a picture as a PNG file in base64, as JSON carries it."""
    return _base64_png(as_picture(picture))


@functools.lru_cache(maxsize=128)
def _base64_png(picture: Picture) -> str:  # a conversation shows the same pictures with every request
    return base64.b64encode(to_png(picture)).decode("ascii")


def from_base64(text: Any, where: str, *, max_side: int = LARGEST_SIDE) -> Picture:
    """Return the picture that `base64_png` wrote; DataError as for `read_picture`."""
    return read_picture(_decoded(text, where), where, max_side=max_side)


def _decoded(text: Any, where: str) -> bytes:
    if not isinstance(text, str):
        raise DataError(f"{where}: expected a picture as a file in base64, got {text!r:.80}")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as e:
        raise DataError(f"{where}: expected a picture as a file in base64: {e}") from e


def data_url(picture: Picture | NDArray[np.uint8]) -> str:
    """Return a picture as a ``data:`` URL of a PNG, as web pages and OpenAI-compatible servers take it."""
    return _URL + base64_png(picture)


def from_data_url(url: str, where: str, *, max_side: int = LARGEST_SIDE) -> Picture:
    """Return the picture in a ``data:`` URL, a PNG or a JPEG in base64; DataError as for `read_picture`."""
    head, _, text = url.partition(",")
    if not (head.startswith("data:image/") and head.endswith(";base64")):
        raise DataError(f"{where}: expected a URL that begins with data:image/png;base64, got {url!r:.80}")
    return read_picture(_decoded(text, where), where, max_side=max_side, formats=("PNG", "JPEG"))


def shown_pictures(value: Any, where: str, most: int, max_side: int) -> list[Picture]:
    """Return the pictures in a value of JSON from outside.

    Args:
        value: A picture or a list of pictures; each a file in base64, a ``data:`` URL, or rows of pixels, shape
            [height, width, 3].
        where: What it is, for error messages.
        most: The most pictures.
        max_side: Their greatest height and width in pixels.

    Raises:
        DataError: A picture is malformed or too large, or there are too many.
    """
    values = value if isinstance(value, list) and not _is_rows(value) else [value]
    if len(values) > most:
        raise DataError(f"{where}: at most {most} pictures are shown, got {len(values)}")
    return [_shown_picture(one, where, max_side) for one in values]


def _is_rows(value: Any) -> bool:
    """Return whether a value begins as one picture's rows do, and not as a list of them."""
    pixel = value
    for _ in range(3):
        if not isinstance(pixel, list) or not pixel:
            return False
        pixel = pixel[0]
    return not isinstance(pixel, list)


def _shown_picture(value: Any, where: str, max_side: int) -> Picture:
    if isinstance(value, str):
        if value.startswith("data:"):
            return from_data_url(value, where, max_side=max_side)
        return read_picture(_decoded(value, where), where, max_side=max_side, formats=("PNG", "JPEG"))
    try:
        array = np.array(value)  # rows of different lengths raise a ValueError
    except ValueError as e:
        raise DataError(f"{where}: expected a picture as rows of pixels [height, width, 3]: {e}") from e
    if array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape or array.dtype.kind not in "iu":
        raise DataError(
            f"{where}: expected a picture as a file in base64, or as rows of pixels [height, width, 3] of integers, "
            f"got {value!r:.80}"
        )
    if array.min() < 0 or array.max() > 255:
        raise DataError(f"{where}: the values of a pixel must be from 0 to 255, got {array.min()} to {array.max()}")
    _check_size(array.shape[1], array.shape[0], where, max_side)
    return Picture(array.astype(np.uint8))


def png_url(data: bytes, where: str) -> str:
    """Return the bytes of a PNG file as a ``data:`` URL without reading its pixels; DataError as for `read_picture`."""
    _check_png(data, where, LARGEST_SIDE)
    return _URL + base64.b64encode(data).decode("ascii")


def read_picture(
    data: bytes, where: str, *, max_side: int = LARGEST_SIDE, formats: tuple[str, ...] = ("PNG",)
) -> Picture:
    """Return the picture in the bytes of a file.

    Only red, green and blue of 8 bits each are taken: transparency, palettes, grey, more bits and moving pictures are
    refused, since converting them takes a choice that is the user's.

    Args:
        data: The file's bytes.
        where: What the file is, for error messages.
        max_side: Greatest height and width in pixels.
        formats: The formats that are read, as Pillow names them.

    Raises:
        DataError: The bytes are no such picture, are cut off, or the picture is too large.
        MissingExtraError: Pillow is not installed.
    """
    pillow = needs_pillow()
    if len(data) > LARGEST_FILE:
        raise DataError(f"{where}: a picture of {len(data)} bytes is too large: at most {LARGEST_FILE} are read")
    if data.startswith(_SIGNATURE):
        _check_png(data, where, max_side)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large pictures; the limit here is stricter
            with pillow.open(io.BytesIO(data), formats=formats) as image:
                _check_size(image.width, image.height, where, max_side)
                if getattr(image, "n_frames", 1) > 1:
                    raise DataError(f"{where}: expected one picture, got {image.n_frames} that move")
                if (kind := "transparency" if "transparency" in image.info else image.mode) != "RGB":
                    kinds = {"RGBA": "transparency", "LA": "transparency", "P": "a palette", "L": "grey alone"}
                    named = kind if kind == "transparency" else f"Pillow's mode {kind}"
                    raise DataError(_wrong(where, kinds.get(kind, named)))
                image.load()
                return Picture(np.asarray(image))
    except (pillow.UnidentifiedImageError, pillow.DecompressionBombError, OSError, SyntaxError, ValueError) as e:
        if isinstance(e, DataError):
            raise
        names = " or ".join(formats)
        reason = "it is none" if isinstance(e, pillow.UnidentifiedImageError) else str(e) or type(e).__name__
        raise DataError(f"{where}: expected a whole {names} picture: {reason}") from e


def _check_png(data: bytes, where: str, max_side: int) -> None:
    """Refuse a PNG that is too large by its header, has no end, or has too few rows: Pillow reads some of these."""
    if not data.startswith(_SIGNATURE):
        raise DataError(f"{where}: expected a whole PNG picture: it is none")
    start, packed, ended = len(_SIGNATURE), [], False
    header: tuple[int, ...] = ()
    while start + 12 <= len(data) and not ended:
        length, kind = struct.unpack_from(">I4s", data, start)
        body = data[start + 8 : start + 8 + length]
        if not header:
            if kind != b"IHDR" or len(body) != 13:
                raise DataError(f"{where}: expected a whole PNG picture: it does not begin with its header")
            header = struct.unpack(">IIBBBBB", body)
            _check_size(header[0], header[1], where, max_side)
        if kind == b"IDAT":
            packed.append(body)
        ended = kind == b"IEND"
        start += 12 + length
    if not ended:
        raise DataError(f"{where}: expected a whole PNG picture: it is cut off after {len(data)} bytes")
    width, height, depth, colours, _, _, interlaced = header
    if depth > 8:  # Pillow reads these and keeps the upper byte
        raise DataError(_wrong(where, f"{depth} bits"))
    if (depth, colours, interlaced) == (8, 2, 0):
        rows = height * (1 + 3 * width)
        try:
            got = len(zlib.decompressobj().decompress(b"".join(packed), rows + 1))
        except zlib.error as e:
            raise DataError(f"{where}: expected a whole PNG picture: {e}") from e
        if got != rows:
            raise DataError(f"{where}: expected a whole PNG picture: its rows have {got} bytes instead of {rows}")


def _check_size(width: int, height: int, where: str, max_side: int) -> None:
    if max(width, height) > max_side:
        raise DataError(f"{where}: a picture of {width} x {height} pixels is too large: at most {max_side} a side")


def _wrong(where: str, kind: str) -> str:
    return (
        f"{where}: a picture must have red, green and blue of 8 bits each, got {kind}; convert it first, for example "
        "with Pillow's image.convert('RGB')"
    )


def shrunk(array: Any, max_side: int) -> NDArray[np.uint8]:
    """Return a picture, made smaller if a side is longer than ``max_side`` pixels, in the same proportions.

    Each new pixel is the mean of the old ones that it covers, in integers, so that every machine gives the same.

    Raises:
        ConfigError: It is no picture (see `pixels`).
        MissingExtraError: It must be made smaller, and Pillow is not installed.
    """
    taken = isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3
    if not taken or 0 in array.shape or max(array.shape[:2]) <= max_side:
        return pixels(array)
    pillow = needs_pillow()
    height, width = array.shape[:2]
    longest = max(height, width)
    size = (max(1, width * max_side // longest), max(1, height * max_side // longest))
    return pixels(np.asarray(pillow.fromarray(np.ascontiguousarray(array)).resize(size, pillow.Resampling.BOX)))
