"""Parts of a large picture, shown at a fixed size: whole-number arithmetic, so that every machine shows the same bytes.

A box is shown as the smallest window around it whose side is `size` pixels times a power of two, from a quarter on. A
window larger than `size` is halved, each pixel the mean of four, until it fits; a smaller one is enlarged. So no dot
of a picture is smeared over two, and most pictures have the same number of pixels. Where the box allows it, a window
begins at a multiple of 16 of its own pixels: a vision tower, which reads patches, then sees a thing that stands on
that grid in the same patches wherever the window is. `described` says in words what a reader with perfect eyes sees in
a view of a generated page.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_envs.datasets.picturesearch.generated.drawing import Drawing, palette
from agent_envs.datasets.picturesearch.generated.sheet import GRID, Box, Sheet

_LARGEST_ZOOM = -2  # halvings of the shown size: a window has at least a quarter of its side
_ONES = 1 << 20 | 1 << 10 | 1  # a packed pixel has red, green and blue in ten bits each
_PIXEL = np.dtype("V3")  # the three bytes of a pixel
_BAND = 1 << 18  # pixels that are halved at once, which the processor's own memory holds


class View(NamedTuple):
    """A part of a picture as shown."""

    box: Box
    """In pixels of the picture."""
    halvings: int
    """How often it is halved; below 0, how often it is doubled."""

    @property
    def factor(self) -> float:
        """Pixels of the picture to one that is shown."""
        return math.ldexp(1.0, self.halvings)


def window(width: int, height: int, size: int, box: Box) -> View:
    """Return how a box of a picture is shown.

    >>> window(1024, 1024, 256, (0, 0, 1024, 1024)), window(1024, 1024, 256, (500, 10, 600, 70))
    (View(box=(0, 0, 1024, 1024), halvings=2), View(box=(488, 0, 616, 128), halvings=-1))
    """
    left, top, right, bottom = box
    needed, halvings = max(right - left, bottom - top), _LARGEST_ZOOM
    while _side(size, halvings) < needed:
        halvings += 1
    side, step, grid = _side(size, halvings), 1 << max(0, halvings), _side(GRID, halvings)

    def span(low: int, high: int, length: int) -> tuple[int, int]:
        taken = min(side, length - length % step if length > step else length)
        start = min(max(0, (low + high - taken) // 2), length - taken)
        for unit in (grid, step):
            before = start - start % unit
            fitting = [at for at in (before, before + unit) if high - taken <= at <= min(low, length - taken)]
            if fitting:
                start = min(fitting, key=lambda at: abs(at - start))
                break
        start -= start % step
        return start, start + taken

    x, y = span(left, right, width), span(top, bottom, height)
    return View((x[0], y[0], x[1], y[1]), halvings)


def _side(size: int, halvings: int) -> int:
    return size << halvings if halvings >= 0 else size >> -halvings


class LargePicture:
    """A large picture, of which parts are shown.

    Args:
        pixels: Its pixels, shape [height, width, 3].
    """

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.height, self.width = pixels.shape[:2]
        self._pixels = pixels
        self._whole: dict[View, NDArray[np.uint8]] = {}  # the views of all of it, which each episode begins with

    def show(self, view: View) -> NDArray[np.uint8]:
        """Return a view, read-only, shape [height, width, 3]."""
        shown = self._whole.get(view)
        if shown is None:
            shown = self._shown(self._part(view.box), view.halvings)
            if view.box == (0, 0, self.width, self.height):
                self._whole[view] = shown
        shown = shown.copy()  # no two observations are one object
        shown.flags.writeable = False
        return shown

    def _part(self, box: Box) -> NDArray[np.uint8]:
        left, top, right, bottom = box
        return self._pixels[top:bottom, left:right]

    def _packed(self, part: NDArray[np.uint8]) -> NDArray[np.uint32]:
        return _pack(part)

    def _shown(self, part: NDArray[np.uint8], halvings: int) -> NDArray[np.uint8]:
        step = 1 << max(0, halvings)
        rows = max(step, _BAND // part.shape[1] // step * step)
        bands = []
        for row in range(0, len(part), rows):
            band = self._packed(part[row : row + rows])
            for _ in range(halvings):
                band = _halve(band)
            bands.append(_unpack(band))
        shown = np.concatenate(bands)
        if halvings >= 0:
            return shown
        pixels = shown.view(_PIXEL)[..., 0]  # whole pixels, columns first: a quarter of the time
        return pixels.repeat(1 << -halvings, axis=1).repeat(1 << -halvings, axis=0)[..., None].view(np.uint8)


class DrawnPage(LargePicture):
    """A generated page, of which each view is drawn by itself.

    Args:
        sheet: The page.
    """

    def __init__(self, sheet: Sheet) -> None:
        self.width, self.height = sheet.width, sheet.height
        self._part = Drawing(sheet).part  # type: ignore[method-assign]  # the numbers of its colours
        self._packed = _pack(palette()).take  # type: ignore[assignment,method-assign]
        self._whole = {}


def _pack(colours: NDArray[np.uint8]) -> NDArray[np.uint32]:
    packed: NDArray[np.uint32] = colours[..., 2].astype(np.uint32)
    for n, shift in ((0, 20), (1, 10)):
        packed |= colours[..., n].astype(np.uint32) << np.uint32(shift)
    return packed


def _unpack(packed: NDArray[np.uint32]) -> NDArray[np.uint8]:
    shown = np.empty((*packed.shape, 3), np.uint8)
    for n, shift in enumerate((20, 10, 0)):
        shown[..., n] = packed >> shift  # the low eight bits: the others are cut off
    return shown


def _halve(packed: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the means of each four pixels, rounded; of an odd row or column at the end nothing remains.

    A single row or column stays unchanged.
    """
    height, width = packed.shape
    down, across = min(2, height), min(2, width)
    packed = packed[: height - height % down, : width - width % across]
    rows: NDArray[np.uint32] = packed[0::down] + packed[down - 1 :: down]
    sums: NDArray[np.uint32] = rows[:, 0::across] + rows[:, across - 1 :: across]
    sums += np.uint32(2 * _ONES)
    sums >>= np.uint32(2)
    sums &= np.uint32(255 * _ONES)
    return sums


def thousandths(sheet: tuple[int, int], box: Box) -> str:
    """Return a box in thousandths of a page's width and height, as text.

    >>> thousandths((1024, 512), (0, 256, 512, 512))
    '0 500 500 1000'
    """
    width, height = sheet
    left, top, right, bottom = box
    return " ".join(
        str((2000 * value + whole) // (2 * whole))
        for value, whole in ((left, width), (top, height), (right, width), (bottom, height))
    )


def described(sheet: Sheet, view: View) -> str:
    """Return what a view of a page shows, a line for each thing, with its box in thousandths of the page.

    What is written is told where it is shown whole and large enough to be legible, and a line as far as it is shown.
    """
    size = (sheet.width, sheet.height)
    left, top, right, bottom = view.box
    lines = []
    for thing in sheet.things:
        x, y, to_x, to_y = thing.box
        if to_x <= left or x >= right or to_y <= top or y >= bottom:
            continue
        legible = view.factor <= thing.factor and (thing.line or contains(view.box, thing.box))
        if words := thing.near if legible else thing.far:
            shown = (max(x, left), max(y, top), min(to_x, right), min(to_y, bottom)) if thing.line else thing.box
            cut = ", which goes on outside" if shown != thing.box else ""
            lines.append(f"{thousandths(size, shown)}: {words}{cut}")
    return "\n".join(lines) or "(nothing)"


def contains(outer: Box, inner: Box) -> bool:
    """Return whether a box is in another."""
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]
