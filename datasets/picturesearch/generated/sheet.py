"""A page as a record: what is drawn where, what it is in words, and where an answer can be read.

Positions are pixels of the page from its left upper corner; a box is (left, top, right, bottom), right and bottom not
included. Letters are 5 by 7 dots and icons 9 by 9, each dot `scale` pixels wide, so that what is written is legible
where the page is shown at 1/scale or larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws, Impossible, shuffled
from agent_envs.files import table

Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels."""

LETTER, ICON = 6, 9  # dots from one letter to the next, and of an icon
GRID = 16  # dots between the places where things of level 1 may stand, pixels between those where a window may begin
_SIDES = {1: 1024, 2: 1024, 3: 2048, 4: 2048, 5: 4096}  # pixels of the page's longest side, by level
_SCALES = {1: 1, 2: 1, 3: 2, 4: 1, 5: 2}
_SHAPES = ((4, 4), (4, 3), (3, 4))
_PIECE = 64  # dots of the longest side of a box that is looked at as a whole
_SPLITS = ("train", "validation", "test")
_OWN = 3  # letters from which a split has codes of its own


class Stamp(NamedTuple):
    """A text or an icon."""

    x: int
    y: int
    scale: int
    colour: str
    what: str
    """The text, or the icon's name."""
    icon: bool


class Thing(NamedTuple):
    """Something on the page in words."""

    box: Box
    factor: int
    """The most pixels of the page to one that is shown at which it is legible."""
    far: str
    """What is seen of it in any case; "" if nothing."""
    near: str
    """What is seen of it where it is legible."""
    line: bool = False
    """Whether it is a line, which is seen as far as it is shown."""


class Sheet(NamedTuple):
    """A page."""

    width: int
    height: int
    colour: str
    rects: tuple[tuple[int, int, int, int, str], ...]
    """Boxes with their colours, in the order they are painted."""
    stamps: tuple[Stamp, ...]
    """What is written and drawn over them."""
    things: tuple[Thing, ...]
    """All of it in words."""


class Look(NamedTuple):
    """A part of the page that must be seen."""

    box: Box
    factor: int
    """The most pixels of the page to one that is shown at which that is enough."""


class Stage(NamedTuple):
    """What somebody who sees the page for the first time looks at next."""

    looks: tuple[Look, ...]
    """The places where what is looked for may be, in order."""
    enough: int
    """How many of them, from the first on, must be seen until it is found."""
    near: bool = False
    """Whether each is looked at by itself, as closely as possible."""


class Asked(NamedTuple):
    """A question about a page."""

    question: str
    answers: tuple[str, ...]
    stages: tuple[Stage, ...]
    proof: tuple[Look, ...]
    """The places where the answer is read, for somebody who knows them."""


class PictureTask(NamedTuple):
    """A question about a page or a picture."""

    task_id: str
    """`picturesearch-generated/SPLIT/LEVEL[/FAMILIES]/INDEX`, or `picturesearch/SPLIT/INDEX`."""
    question: str
    answers: tuple[str, ...]
    """The values that the answer gives, in order; of a choice its letter."""
    sheet: Sheet | None
    """The generated page; None for a picture of a file."""
    stages: tuple[Stage, ...] = ()
    """What somebody looks at who sees the page for the first time; none if that is not known."""
    proof: tuple[Look, ...] = ()
    """The places where the answer is read, for somebody who knows them."""
    family: str = ""
    """Its kind; for a released row its category."""
    level: int = 0
    """1 to 5; 0 for a released row."""
    options: tuple[str, ...] = ()
    """The texts of the options A, B, ... of a choice; the question lists them."""
    picture: tuple[str, str] = ("", "")
    """Where a released picture is: a file's path and "", or the path of a table and the number of its row."""


def split_up(box: Box, side: int) -> list[Box]:
    """Return a box as boxes of at most `side` pixels a side, in reading order.

    >>> split_up((0, 0, 5, 3), 3)
    [(0, 0, 3, 3), (3, 0, 5, 3)]
    """
    left, top, right, bottom = box
    return [
        (x, y, min(x + side, right), min(y + side, bottom))
        for y in range(top, bottom, side)
        for x in range(left, right, side)
    ]


class Draft:
    """A page of a level, 1 to 5, in the making. No other split has its codes of three letters or more."""

    def __init__(self, draws: Draws, level: int, split: str) -> None:
        self.draws = draws
        self.level = level
        self.split = split
        self.words = table(__package__, "words.json")
        self.scale = _SCALES[level]
        across, down = draws.pick(_SHAPES)
        self.width, self.height = _SIDES[level] * across // 4, _SIDES[level] * down // 4
        self.colour = ""
        self._rects: list[tuple[int, int, int, int, str]] = []
        self._stamps: list[Stamp] = []
        self._things: list[Thing] = []
        self._codes: set[str] = set()

    def sheet(self) -> Sheet:
        """Return the page."""
        return Sheet(self.width, self.height, self.colour, tuple(self._rects), tuple(self._stamps), tuple(self._things))

    # -- what it may hold ----------------------------------------------------------------------------------------

    def ground(self, name: str) -> None:
        """Colour the page with one of the shades of a name."""
        self.colour = f"{name} {self.draws.between(1, 4)}"

    def code(self) -> str:
        """Return a code that the page does not have yet, of 2 to 4 characters by level.

        One of two letters may be any. There are so few that a model learns which of them a split has, and what it
        cannot have it no longer reads.
        """
        letters, length = self.words["letters"], min(4, self.level + 1)
        for _ in range(1000):
            drawn = [self.draws.between(0, len(letters) - 1) for _ in range(length - 1)]
            own = length >= _OWN
            places = range((_SPLITS.index(self.split) - sum(drawn)) % 3 if own else 0, len(letters), 3 if own else 1)
            code = "".join(letters[n] for n in [*drawn, self.draws.pick(places)])
            if code not in self._codes:
                self._codes.add(code)
                return code
        raise Impossible

    def some(self, name: str, count: int) -> list[str]:
        """Return as many different words of a list."""
        return shuffled(self.draws, list(self.words[name]))[:count]

    def ink(self, colour: str) -> str:
        """Return the colour that is written with on another."""
        return "white" if colour in self.words["dark"] else "ink"

    # -- what is put on it ---------------------------------------------------------------------------------------

    def rect(self, box: Box, colour: str) -> None:
        """Paint a box."""
        self._rects.append((*box, colour))

    def frame(self, box: Box, colour: str, width: int) -> None:
        """Paint the border of a box, inside it."""
        left, top, right, bottom = box
        self.rect((left, top, right, top + width), colour)
        self.rect((left, bottom - width, right, bottom), colour)
        self.rect((left, top, left + width, bottom), colour)
        self.rect((right - width, top, right, bottom), colour)

    def text(self, x: int, y: int, text: str, colour: str = "ink", scale: int = 0) -> Box:
        """Write a line of text, and return its box."""
        scale = scale or self.scale
        self._stamps.append(Stamp(x, y, scale, colour, text, icon=False))
        return (x, y, x + LETTER * scale * len(text), y + 7 * scale)

    def icon(self, x: int, y: int, name: str, colour: str = "ink") -> Box:
        """Draw an icon, and return its box."""
        self._stamps.append(Stamp(x, y, self.scale, colour, name, icon=True))
        return (x, y, x + ICON * self.scale, y + ICON * self.scale)

    def thing(self, box: Box, near: str, far: str = "", *, factor: int = 0, line: bool = False) -> Box:
        """Say in words what is in a box, and return the box."""
        self._things.append(Thing(box, factor or self.scale, far, near, line))
        return box

    def seen(self, box: Box, words: str) -> None:
        """Say in words what is seen in a box, however small it is shown."""
        self._things.append(Thing(box, 1 << 20, words, words))

    def looks(self, *boxes: Box) -> tuple[Look, ...]:
        """Return looks at boxes, large ones in pieces."""
        return tuple(Look(piece, self.scale) for box in boxes for piece in split_up(box, _PIECE * self.scale))

    def stages(self, *found: tuple[Sequence[Box], int]) -> tuple[Stage, ...]:
        """Return stages: the boxes that are looked at in each, and how many of them are enough."""
        return tuple(Stage(self.looks(*boxes), enough) for boxes, enough in found)

    # -- where things go -----------------------------------------------------------------------------------------

    def cells(self, columns: int, rows: int, width: int, height: int, *, loose: bool = False) -> list[Box]:
        """Return boxes of a size in reading order, each at a drawn place in its cell of a grid over the page.

        They stand in rows and columns that can be told apart, but if they are `loose`; on level 1 at multiples of 16
        dots.
        """
        margin, gap = 8 * self.scale, 4 * self.scale  # around all of them, and beside and below each
        step = self.scale * (GRID if self.level == 1 else 1)  # at least a dot, or dots are smeared where it is halved
        across, down = (self.width - 2 * margin) // columns, (self.height - 2 * margin) // rows
        free = across - width - gap - step + self.scale, down - height - gap - step + self.scale
        if min(free) < 0:
            raise Impossible
        play = free if loose else (min(free[0], across // 4), min(free[1], down // 4))
        left, top = (margin + self.draws.between(0, most - own) for most, own in zip(free, play, strict=True))
        boxes = []
        for row in range(rows):
            for column in range(columns):
                x = left + column * across + self.draws.between(0, play[0])
                y = top + row * down + self.draws.between(0, play[1])
                x, y = x - (x - margin) % step, y - (y - margin) % step
                boxes.append((x, y, x + width, y + height))
        return boxes

    def fitting(self, count: int, width: int, height: int) -> list[Box]:
        """Return as many boxes of a size in a grid, in reading order."""
        for rows in range(1, count + 1):
            columns = -(-count // rows)
            try:
                return self.cells(columns, rows, width, height, loose=True)[:count]
            except Impossible:
                continue
        raise Impossible

    def words_of(self, count: int) -> str:
        """Return as many words without a meaning."""
        pick, between, syllables = self.draws.pick, self.draws.between, self.words["syllables"]
        return " ".join(["".join([pick(syllables) for _ in range(between(1, 3))]) for _ in range(count)])

    def running_text(self, box: Box) -> None:
        """Fill a box with lines of words without a meaning."""
        left, top, right, bottom = box
        pitch, most = 11 * self.scale, (right - left) // (LETTER * self.scale)
        for y in range(top, bottom - pitch, pitch):
            self.text(left, y, self.words_of(most // 5)[:most], "rule")
        self.seen(box, "running text")
