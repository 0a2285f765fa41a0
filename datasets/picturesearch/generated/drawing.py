"""How a page is drawn, whole or in part: whole numbers alone, so that every machine draws the same bytes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_envs.datasets.picturesearch.generated.sheet import ICON, LETTER, Box, Sheet, Stamp
from agent_envs.files import table

_MARGIN = 64  # pixels around a canvas: no glyph is larger, so that each that is seen is on it as a whole
_BLANK, _UNKNOWN = 254, 255
_WORDS = table(__package__, "words.json")
_COLOURS: dict[str, tuple[int, int, int]] = {**_WORDS["shades"], **_WORDS["colours"]}
_NUMBERS = {name: number for number, name in enumerate(_COLOURS)}


@functools.cache
def palette() -> NDArray[np.uint8]:
    """Return the colours that the numbers of a drawn page stand for, shape [colours, 3]."""
    colours = np.array(list(_COLOURS.values()), np.uint8)
    colours.flags.writeable = False
    return colours


def draw(sheet: Sheet) -> NDArray[np.uint8]:
    """Return a page as the numbers of its colours in `palette`, shape [height, width]."""
    return Drawing(sheet).part((0, 0, sheet.width, sheet.height))


class Drawing:
    """A page that can be drawn in parts; all that is on it is within its sides."""

    def __init__(self, sheet: Sheet) -> None:
        self.width, self.height = sheet.width, sheet.height
        self._ground = _NUMBERS[sheet.colour]
        self._rects = [(*rect[:4], _NUMBERS[rect[4]]) for rect in sheet.rects]
        groups: dict[tuple[bool, int], list[Stamp]] = defaultdict(list)
        for stamp in sheet.stamps:
            groups[stamp.icon, stamp.scale].append(stamp)
        self._written = [_glyphs(stamps, icons, scale) for (icons, scale), stamps in groups.items()]

    def part(self, box: Box) -> NDArray[np.uint8]:
        """Return a part of the page as the numbers of its colours in `palette`, shape [height, width]."""
        left, top, right, bottom = box
        canvas = np.empty((bottom - top + 2 * _MARGIN, right - left + 2 * _MARGIN), np.uint8)
        part = canvas[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
        part[:] = self._ground
        for x, y, to_x, to_y, colour in self._rects:
            if x < right and to_x > left and y < bottom and to_y > top:
                part[max(y - top, 0) : to_y - top, max(x - left, 0) : to_x - left] = colour
        for glyphs in self._written:
            _write(canvas, glyphs.touching(box), left - _MARGIN, top - _MARGIN)
        return part


class _Glyphs(NamedTuple):
    """Letters, or icons, of one scale."""

    x: NDArray[np.intp]  # the left side of each
    y: NDArray[np.intp]  # its upper side
    places: NDArray[np.intp]  # of each in the tables of `_dots`
    colours: NDArray[np.uint8]
    icons: bool
    scale: int

    def touching(self, box: Box) -> _Glyphs:
        """Return those that are at least partly in a box, and perhaps some beside it."""
        left, top, right, bottom = box
        most = ICON * self.scale
        seen = (self.x > left - most) & (self.x < right) & (self.y > top - most) & (self.y < bottom)
        return self._replace(x=self.x[seen], y=self.y[seen], places=self.places[seen], colours=self.colours[seen])


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
    places = bytearray([_UNKNOWN]) * 256
    places[ord(" ")] = _BLANK
    for letter, place in _dots(icons=False)[0].items():
        places[ord(letter)] = place
    return bytes(places)


def _glyphs(stamps: Sequence[Stamp], icons: bool, scale: int) -> _Glyphs:
    """Return the glyphs of texts, or of icons, without blanks."""
    x, y = (np.array(side, np.intp) for side in list(zip(*stamps, strict=True))[:2])
    colours = np.array([_NUMBERS[stamp.colour] for stamp in stamps], np.uint8)
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


def _write(canvas: NDArray[np.uint8], glyphs: _Glyphs, left: int, top: int) -> None:
    """Write glyphs on a canvas, whose left upper corner is given."""
    _, columns, rows = _dots(glyphs.icons)
    width, flat = canvas.shape[1], canvas.reshape(-1)
    starts = (glyphs.y - top) * width + (glyphs.x - left)
    start = (starts[:, None] + ((rows * width + columns) * glyphs.scale)[glyphs.places]).reshape(-1)  # glyphs and dots
    colours = np.repeat(glyphs.colours, rows.shape[1])
    for down in range(glyphs.scale):
        for across in range(glyphs.scale):
            flat[start + (down * width + across)] = colours
