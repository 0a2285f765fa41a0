"""How a page is drawn: whole numbers alone, so that every machine draws the same bytes.

Any part of a page can be drawn by itself, and where a page is of one colour can be told without drawing it: a page of
4,096 pixels a side is shown in 256 without that all its pixels are ever made.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_envs.datasets.picturesearch.generated.sheet import ICON, LETTER, Box, Sheet, Stamp
from agent_envs.files import table

__all__ = ["MARGIN", "MIXED", "Drawing", "draw", "palette"]

MIXED = 255
"""Stands for several colours."""

MARGIN = 64
"""Pixels around a canvas: no glyph is larger, so that each that is seen lies on it as a whole."""

_TUPLE = 200  # bytes of a box and its numbers
_BLANK, _UNKNOWN = 254, 255
_UNEVEN = 16  # sides of boxes in the midst of squares of which a page is said to consist, at most


@functools.cache
def palette() -> NDArray[np.uint8]:
    """Return the colours that the numbers of a drawn page stand for, shape [colours, 3]."""
    colours = np.array(list(_colours().values()), np.uint8)
    colours.flags.writeable = False
    return colours


def draw(sheet: Sheet) -> NDArray[np.uint8]:
    """Return a page as the numbers of its colours in `palette`, shape [height, width]."""
    return Drawing(sheet).part((0, 0, sheet.width, sheet.height))


class Drawing:
    """A page that can be drawn in parts.

    Args:
        sheet: The page; all that is on it lies within its sides.
    """

    def __init__(self, sheet: Sheet) -> None:
        numbers = _numbers()
        self.width, self.height = sheet.width, sheet.height
        self._ground = numbers[sheet.colour]
        self._rects = [(*rect[:4], numbers[rect[4]]) for rect in sheet.rects]
        groups: dict[tuple[bool, int], list[Stamp]] = defaultdict(list)
        for stamp in sheet.stamps:
            groups[stamp.icon, stamp.scale].append(stamp)
        self._written = [_glyphs(stamps, icons, scale) for (icons, scale), stamps in groups.items()]
        self._boxes = [(*_stamp_box(stamp), MIXED) for stamp in sheet.stamps]
        even = not any(glyphs.scale % 2 or ((glyphs.x | glyphs.y) & 1).any() for glyphs in self._written)
        uneven = [sorted({side for rect in self._rects for side in rect[n:4:2] if side & 1}) for n in range(2)]
        self.dot = 2 if even and len(uneven[0]) + len(uneven[1]) <= _UNEVEN else 1
        """Pixels of a side of the squares that the page consists of: each is of one colour unless it is `uneven`."""
        self.uneven = (uneven[0], uneven[1]) if self.dot > 1 else ([], [])
        """Where boxes begin or end inside squares: positions from the left and from the top."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        arrays = [array for glyphs in self._written for array in (glyphs.x, glyphs.y, glyphs.places, glyphs.colours)]
        return sum(array.nbytes for array in arrays) + _TUPLE * (len(self._rects) + len(self._boxes))

    def part(self, box: Box, dot: int = 1, memory: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return a part of the page as the numbers of its colours in `palette`.

        Args:
            box: The part.
            dot: Draw one number for each square of so many pixels a side: 1, or `self.dot` for an even box.
            memory: Bytes to draw on; new ones if None. The same ones again are much faster than new ones.
        """
        margin = MARGIN // dot
        return self.canvas(box, dot, memory)[margin:-margin, margin:-margin]

    def canvas(self, box: Box, dot: int = 1, memory: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return a part of the page as `part` does, with MARGIN pixels around it that mean nothing."""
        margin = MARGIN // dot
        left, top, right, bottom = box
        height, width = (bottom - top) // dot + 2 * margin, (right - left) // dot + 2 * margin
        if memory is None or len(memory) < height * width:
            memory = np.empty(height * width, np.uint8)
        canvas = memory[: height * width].reshape(height, width)
        part = canvas[margin:-margin, margin:-margin]
        part[:] = self._ground
        for x, y, to_x, to_y, colour in self._rects:
            if x < right and to_x > left and y < bottom and to_y > top:
                x, y = max(x, left), max(y, top)
                part[(y - top) // dot : (to_y - top) // dot, (x - left) // dot : (to_x - left) // dot] = colour
        for glyphs in self._written:
            if box != (0, 0, self.width, self.height):
                glyphs = glyphs.touching(box)
            if len(glyphs.x):
                _write(canvas, glyphs, left // dot - margin, top // dot - margin, dot)
        return canvas

    def squares(self, box: Box, side: int) -> NDArray[np.uint8]:
        """Return the number of the colour of each square of a part, or MIXED where it may have several.

        Args:
            box: The part, its width and height divisible by `side`.
            side: Pixels of a square's side.
        """
        left, top, right, bottom = box
        squares = np.full(((bottom - top) // side, (right - left) // side), self._ground, np.uint8)
        for boxes in (self._rects, self._boxes):
            for x, y, to_x, to_y, colour in boxes:
                if x < right and to_x > left and y < bottom and to_y > top:
                    x, y, to_x, to_y = max(x, left) - left, max(y, top) - top, to_x - left, to_y - top
                    if colour == MIXED or (x | y | to_x | to_y) % side:
                        squares[y // side : -(-to_y // side), x // side : -(-to_x // side)] = MIXED
                    if colour != MIXED:
                        squares[-(-y // side) : to_y // side, -(-x // side) : to_x // side] = colour
        return squares


class _Glyphs(NamedTuple):
    """Letters, or icons, of one scale."""

    x: NDArray[np.intp]  # the left side of each
    y: NDArray[np.intp]  # its upper side
    places: NDArray[np.intp]  # of each in the tables of `_dots`
    colours: NDArray[np.uint8]
    icons: bool
    scale: int

    def touching(self, box: Box) -> _Glyphs:
        """Return those that lie in a box at least in part, and perhaps some beside it."""
        left, top, right, bottom = box
        most = ICON * self.scale
        seen = (self.x > left - most) & (self.x < right) & (self.y > top - most) & (self.y < bottom)
        return self._replace(x=self.x[seen], y=self.y[seen], places=self.places[seen], colours=self.colours[seen])


@functools.cache
def _colours() -> dict[str, tuple[int, int, int]]:
    words = table(__package__, "words.json")
    return {**words["shades"], **words["colours"]}


@functools.cache
def _numbers() -> dict[str, int]:
    return {name: number for number, name in enumerate(_colours())}


@functools.cache
def _dots(icons: bool) -> tuple[dict[str, int], NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of glyphs in two arrays, which hold the columns and the rows of their dots.

    The arrays have shape [glyphs, dots]; those of a glyph with fewer dots than another repeat its first.
    """
    glyphs = table(__package__, "glyphs.json")["icons" if icons else "letters"]
    dots = [
        [(x, y) for y, row in enumerate(rows.split("/")) for x, dot in enumerate(row) if dot == "#"]
        for rows in glyphs.values()
    ]
    most = max(map(len, dots))
    padded = np.array([[*own, *[own[0]] * (most - len(own))] for own in dots], np.intp)
    return {name: place for place, name in enumerate(glyphs)}, padded[:, :, 0], padded[:, :, 1]


@functools.cache
def _letters() -> bytes:
    """Return the places of letters as a table of `bytes.translate`."""
    found = bytearray([_UNKNOWN]) * 256
    found[ord(" ")] = _BLANK
    for letter, place in _dots(icons=False)[0].items():
        found[ord(letter)] = place
    return bytes(found)


def _glyphs(stamps: Sequence[Stamp], icons: bool, scale: int) -> _Glyphs:
    """Return the glyphs of texts, or of icons, without blanks."""
    numbers = _numbers()
    x, y = (np.array(side, np.intp) for side in list(zip(*stamps, strict=True))[:2])
    colours = np.array([numbers[stamp.colour] for stamp in stamps], np.uint8)
    if icons:
        places = _dots(icons)[0]
        return _Glyphs(x, y, np.array([places[stamp.what] for stamp in stamps], np.intp), colours, icons, scale)
    lengths = np.array([len(stamp.what) for stamp in stamps], np.intp)
    of = np.repeat(np.arange(len(stamps)), lengths)  # the stamp of each letter
    number = np.arange(len(of)) - np.repeat(lengths.cumsum() - lengths, lengths)  # of the letter in it
    text = "".join([stamp.what for stamp in stamps]).encode("ascii")
    letters = np.frombuffer(text.translate(_letters()), np.uint8).astype(np.intp)
    seen = letters != _BLANK
    x = x[of] + number * (LETTER * scale)
    return _Glyphs(x[seen], y[of[seen]], letters[seen], colours[of[seen]], icons, scale)


def _stamp_box(stamp: Stamp) -> Box:
    x, y, scale, _, what, icon = stamp
    return x, y, x + scale * (ICON if icon else LETTER * len(what)), y + scale * (ICON if icon else 7)


def _write(canvas: NDArray[np.uint8], glyphs: _Glyphs, left: int, top: int, dot: int) -> None:
    """Write glyphs on a canvas, whose left upper corner is given in dots."""
    _, columns, rows = _dots(glyphs.icons)
    scale, width = glyphs.scale // dot, canvas.shape[1]
    starts = (glyphs.y // dot - top) * width + (glyphs.x // dot - left)
    start = (starts[:, None] + ((rows * width + columns) * scale)[glyphs.places]).reshape(-1)  # glyphs and dots
    colours = np.repeat(glyphs.colours, rows.shape[1])
    flat = canvas.reshape(-1)
    for down in range(scale):
        for across in range(scale):
            flat[start + (down * width + across)] = colours
