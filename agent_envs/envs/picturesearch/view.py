"""Parts of a large picture, shown at a fixed size: whole-number arithmetic, so that every machine shows the same bytes.

A box is shown as the smallest window around it whose side is `size` pixels times a power of two, from a quarter on. A
window larger than `size` is halved, each pixel the mean of four, until it fits; a smaller one is enlarged. So no dot
of a picture is smeared over two, and most pictures have the same number of pixels. Where the box allows it, a window
begins at a multiple of 16 of its own pixels: a vision tower, which reads patches, then sees a thing that stands on
that grid in the same patches wherever the window lies.
"""

from __future__ import annotations

import functools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agent_envs.datasets.picturesearch.generated.drawing import MARGIN, MIXED, Drawing, palette
from agent_envs.datasets.picturesearch.generated.sheet import GRID, Box, Sheet

__all__ = ["DrawnPage", "LargePicture", "Shown", "View", "kept", "window"]

_LARGEST_ZOOM = -2  # halvings of the shown size: a window has at least a quarter of its side
_ONES = 1 << 20 | 1 << 10 | 1  # a packed pixel has red, green and blue in ten bits each
_PIXEL = np.dtype("V3")  # the three bytes of a pixel
_BAND = 1 << 20  # dots of a page that are drawn at once to be halved
_EDGES = 1 << 20  # bytes of the margins around them
_AT_ONCE = 60_000  # dots that are halved at once: their sums take less than memory that the system takes back
_KEPT_BYTES = 1 << 28  # of pictures that a process keeps

_memories = threading.local()


class View(NamedTuple):
    """A part of a picture as it is shown."""

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


class Shown(Protocol):
    """A large picture."""

    @property
    def width(self) -> int:
        """Width in pixels."""

    @property
    def height(self) -> int:
        """Height in pixels."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds, those it will hold when it has been shown as a whole included."""

    def show(self, view: View) -> NDArray[np.uint8]:
        """Return a view as an array of shape [height, width, 3] that cannot be written to."""


class LargePicture:
    """A picture, and what is left of it when it is halved again and again.

    Args:
        pixels: Its pixels, shape [height, width, 3].
    """

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.pixels = pixels
        self._quarters: dict[int, NDArray[np.uint32]] = {}  # the whole picture by how often it is halved, from 2 on

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes + self.width * self.height // 3

    def show(self, view: View) -> NDArray[np.uint8]:
        left, top, right, bottom = view.box
        if view.halvings <= 1:
            part = self.pixels[top:bottom, left:right]
            shown = _unpack(_halve(_pack(part))) if view.halvings == 1 else _enlarged(part.copy(), -view.halvings)
        else:
            by = view.halvings
            shown = _unpack(self._whole(by)[top >> by : bottom >> by, left >> by : right >> by])
        shown.flags.writeable = False
        return shown

    def _whole(self, halvings: int) -> NDArray[np.uint32]:
        if halvings not in self._quarters:
            half = self._whole(halvings - 1) if halvings > 2 else _halve(_pack(self.pixels))
            self._quarters[halvings] = _halve(half)
        return self._quarters[halvings]


class DrawnPage:
    """A generated page: each view of it is drawn by itself, and of a smaller one only where it has several colours.

    Args:
        sheet: The page.
    """

    def __init__(self, sheet: Sheet) -> None:
        self._drawing = Drawing(sheet)
        self._whole: dict[View, NDArray[np.uint8]] = {}  # the views of the whole page, which each episode begins with

    @property
    def width(self) -> int:
        return self._drawing.width

    @property
    def height(self) -> int:
        return self._drawing.height

    @property
    def nbytes(self) -> int:
        return self._drawing.nbytes + 3 * (self.width * self.height >> 4)

    def show(self, view: View) -> NDArray[np.uint8]:
        kept = self._whole.get(view)
        if kept is not None:
            shown = kept.copy()  # no two observations are one object
        else:
            shown = self._enlarged(view) if view.halvings <= 0 else self._halved(view)
            if view.box == (0, 0, self.width, self.height):
                self._whole[view] = shown.copy()
        shown.flags.writeable = False
        return shown

    def _enlarged(self, view: View) -> NDArray[np.uint8]:
        return _enlarged(_coloured(self._drawing.part(view.box, 1, _memory())), -view.halvings)

    def _halved(self, view: View) -> NDArray[np.uint8]:
        drawing, side, (left, top, right, bottom) = self._drawing, 1 << view.halvings, view.box
        uneven = [x for x in drawing.uneven[0] if left < x < right], [y for y in drawing.uneven[1] if top < y < bottom]
        dot = drawing.dot
        if side == dot:
            if uneven == ([], []):
                return _coloured(drawing.part(view.box, dot, _memory()))
            dot = 1
        squares = drawing.squares(view.box, side)
        shown = _coloured(squares)
        height, width = squares.shape
        rows = max(1, _BAND // (width * (side // dot) ** 2))
        for row in range(0, height, rows):
            self._mix(shown, squares, view, (0, row, width, min(row + rows, height)), dot)
        if dot > 1:
            for column in {(x - left) // side for x in uneven[0]}:
                self._mix(shown, squares, view, (column, 0, column + 1, height), 1)
            for row in {(y - top) // side for y in uneven[1]}:
                self._mix(shown, squares, view, (0, row, width, row + 1), 1)
        return shown

    def _mix(self, shown: NDArray[np.uint8], squares: NDArray[np.uint8], view: View, some: Box, dot: int) -> None:
        """Put the means of squares of several colours where they are shown.

        Args:
            shown: Where they go.
            squares: The colours of squares, or MIXED.
            view: What is shown.
            some: The box of the squares, counted in squares.
            dot: Pixels to a dot that is drawn.
        """
        column, row, to_column, to_row = some
        down, across = np.divmod(np.flatnonzero(squares[row:to_row, column:to_column] == MIXED), to_column - column)
        if not len(down):
            return
        (left, top), side = view.box[:2], 1 << view.halvings
        box = (left + column * side, top + row * side, left + to_column * side, top + to_row * side)
        canvas = self._drawing.canvas(box, dot, _memory())
        pixels, margin, dots = shown.reshape(-1).view(_PIXEL), MARGIN // dot, side // dot
        places = (row + down) * squares.shape[1] + column + across
        most = max(1, _AT_ONCE // dots**2)
        for n in range(0, len(places), most):
            part = slice(n, n + most)
            means = _means(canvas, margin + down[part] * dots, margin + across[part] * dots, dots)
            pixels[places[part]] = _unpack(means).reshape(-1).view(_PIXEL)


def _memory() -> NDArray[np.uint8]:
    """Return this thread's memory for canvases."""
    try:
        found: NDArray[np.uint8] = _memories.bytes
    except AttributeError:
        found = _memories.bytes = np.empty(_BAND + _EDGES, np.uint8)
    return found


def _coloured(numbers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the colours of a page's numbers: by `bytes.translate`, which is three times as fast as indexing."""
    shown = np.empty((*numbers.shape, 3), np.uint8)
    flat = numbers.tobytes()
    for n, table in enumerate(_tables()[0]):
        shown[..., n] = np.frombuffer(flat.translate(table), np.uint8).reshape(numbers.shape)
    return shown


def _means(
    canvas: NDArray[np.uint8], down: NDArray[np.intp], across: NDArray[np.intp], side: int
) -> NDArray[np.uint32]:
    """Return the packed colours of some squares of a canvas, halved until each is one pixel; shape [squares].

    Args:
        canvas: Numbers of colours, shape [height, width], its width divisible by the smaller of `side` and 8.
        down, across: The upper and the left side of each square; those are divisible by the same number.
        side: Of a square, a power of two of at least 2.
    """
    word = min(side, 8)  # numbers that are taken at once
    words, width = canvas.reshape(-1).view(f"u{word}"), canvas.shape[1] // word
    first = down * width + across // word
    row = np.arange(side)[:, None, None] * width + np.arange(side // word)
    squares = words.take(row + first[:, None]).reshape(side, -1)  # [rows of a square, squares and words]
    halved = _tables()[1].take(squares.view(np.uint16))  # sums of two neighbours, [rows, squares and pairs]
    halved[0::2] += halved[1::2]
    halved = _quartered(halved[0::2])
    while len(halved) > 1:
        halved[0::2] += halved[1::2]
        halved = halved[0::2]
        halved[:, 0::2] += halved[:, 1::2]
        halved = _quartered(halved[:, 0::2])
    return halved[0]


@functools.cache
def _tables() -> tuple[list[bytes], NDArray[np.uint32]]:
    """Return the palette's channels as tables of `bytes.translate`, and the packed sums of each two colours."""
    padded = np.zeros((256, 3), np.uint8)
    padded[: len(palette())] = palette()
    packed = _pack(padded)
    return [padded[:, n].tobytes() for n in range(3)], (packed[:, None] + packed).reshape(-1)


def _enlarged(shown: NDArray[np.uint8], doublings: int) -> NDArray[np.uint8]:
    if not doublings:
        return shown
    pixels = shown.view(_PIXEL)[..., 0]  # whole pixels, columns first: a quarter of the time
    return pixels.repeat(1 << doublings, axis=1).repeat(1 << doublings, axis=0)[..., None].view(np.uint8)


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

    One row or column stays as it is.
    """
    height, width = packed.shape
    down, across = min(2, height), min(2, width)
    packed = packed[: height - height % down, : width - width % across]
    rows: NDArray[np.uint32] = packed[0::down] + packed[down - 1 :: down]
    return _quartered(rows[:, 0::across] + rows[:, across - 1 :: across])


def _quartered(sums: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Divide packed sums of four colours by four, rounded, in place."""
    sums += np.uint32(2 * _ONES)
    sums >>= np.uint32(2)
    sums &= np.uint32(255 * _ONES)
    return sums


class _Kept:
    """The pictures used last, by key, up to a number of bytes; threads may share it."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._pictures: OrderedDict[object, Shown] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    def __call__(self, key: object, make: Callable[[], Shown]) -> Shown:
        """Return the picture of a key, made if it is not kept."""
        with self._lock:
            found = self._pictures.get(key)
            if found is not None:
                self._pictures.move_to_end(key)
                return found
        made = make()
        with self._lock:
            self._held += made.nbytes - (self._pictures[key].nbytes if key in self._pictures else 0)
            self._pictures[key] = made
            while self._held > self.most and len(self._pictures) > 1:
                self._held -= self._pictures.popitem(last=False)[1].nbytes
        return made


kept = _Kept(_KEPT_BYTES)
"""The pictures that this process keeps."""
