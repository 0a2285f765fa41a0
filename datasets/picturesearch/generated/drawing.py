"""How a page is drawn, whole or in part: whole numbers alone, so that every machine draws the same bytes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agent_envs.datasets.picturesearch.generated.sheet import ICON, LETTER, Box, Sheet, Stamp
from agent_envs.files import table

_MARGIN = 64  # pixels around a canvas: no glyph is larger, so that each that is seen is on it as a whole
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
        self._ground = _NUMBERS[sheet.colour]
        self._rects = [(*rect[:4], _NUMBERS[rect[4]]) for rect in sheet.rects]
        groups: dict[tuple[bool, int], list[Stamp]] = defaultdict(list)
        for stamp in sheet.stamps:
            groups[stamp.icon, stamp.scale].append(stamp)
        self._written = [(_glyphs(stamps, *group), *group) for group, stamps in groups.items()]

    def part(self, box: Box) -> NDArray[np.uint8]:
        """Return a part of the page as the numbers of its colours in `palette`, shape [height, width]."""
        left, top, right, bottom = box
        canvas = np.empty((bottom - top + 2 * _MARGIN, right - left + 2 * _MARGIN), np.uint8)
        part = canvas[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
        part[:] = self._ground
        for x, y, to_x, to_y, colour in self._rects:
            if x < right and to_x > left and y < bottom and to_y > top:
                part[max(y - top, 0) : to_y - top, max(x - left, 0) : to_x - left] = colour
        width, pixels = canvas.shape[1], canvas.reshape(-1)
        for (x, y, places, colours), icons, scale in self._written:
            most = ICON * scale  # pixels of a glyph's side
            seen = (x > left - most) & (x < right) & (y > top - most) & (y < bottom)
            _, columns, rows = _dots(icons)
            begins = (y[seen] - top + _MARGIN) * width + x[seen] - left + _MARGIN
            dots = begins[:, None] + ((rows * width + columns) * scale)[places[seen]]  # glyphs, dots
            inks = np.repeat(colours[seen].astype(np.uint8), dots.shape[1])
            for down in range(scale):
                for across in range(scale):
                    pixels[dots.reshape(-1) + (down * width + across)] = inks
        return part


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


def _glyphs(stamps: Sequence[Stamp], icons: bool, scale: int) -> NDArray[np.intp]:
    """Return the left and upper sides of the glyphs of texts, or of icons, their places in `_dots` and their colours.

    Blanks are left out. The array has shape [4, glyphs].
    """
    places, step = _dots(icons)[0], LETTER * scale
    glyphs = [
        (stamp.x + number * step, stamp.y, places[what], _NUMBERS[stamp.colour])
        for stamp in stamps
        for number, what in enumerate((stamp.what,) if icons else stamp.what)
        if what != " "
    ]
    return np.array(glyphs, np.intp).reshape(-1, 4).T
