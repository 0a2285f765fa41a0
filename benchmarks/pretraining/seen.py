"""Pictures together with what is to be seen in them, for teaching a vision tower."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_envs.messages import Message
from agent_envs.pictures.picture import Picture


class Thing(NamedTuple):
    """A thing and what is to be seen of it."""

    box: tuple[int, int, int, int]
    """In pixels of the page."""
    words: tuple[str, ...]
    """What it is and what is written on it; those that can be told from afar come first."""


class Picked(NamedTuple):
    """A part of a page as drawn."""

    left: int
    top: int
    """Where it begins on the page."""
    pixels: NDArray[np.uint8]
    """[height, width, 3]."""
    things: tuple[Thing, ...]
    """What is wholly in it."""


class SeenPage(NamedTuple):
    """A page, small enough to be shown, and parts of it."""

    factor: int
    """Pixels of the page to one that is shown."""
    pixels: NDArray[np.uint8]
    """[height, width, 3]."""
    things: tuple[Thing, ...]
    close: tuple[Picked, ...]
    """A part around each of some things."""

    @property
    def pictures(self) -> list[Picture]:
        """All that is shown: the parts, then the page."""
        return [Picture(seen) for seen in (*(part.pixels for part in self.close), self.pixels)]


class Located(NamedTuple):
    """A conversation that says where things in its first picture are, by the same number of numbers for each thing."""

    messages: list[Message]
    middles: tuple[tuple[int, int], ...]
    """The middle of each thing in the order in which they are told, across and down, in pixels of the picture; none if
    nothing is to be looked at."""
