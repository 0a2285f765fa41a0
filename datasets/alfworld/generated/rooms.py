"""The rooms of generated ALFWorld houses: what they contain at each size, and where things tend to be.

The numbers in `rooms.json` follow counts over released games: receptacles and objects per room, objects per receptacle.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from agent_envs.datasets.alfworld.object_classes import CAN_CONTAIN
from agent_envs.files import table

SIZES = (1, 2, 3, 4, 5)
"""Sizes of a house. Receptacles to search, and the things in them, grow by about two thirds from size to size."""


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """One kind of room."""

    name: str
    """"kitchen", "living room", "bedroom" or "bathroom"."""
    floor_plan: int
    """The number before its first floor plan."""
    families: tuple[str, ...]
    """The families of tasks that are set in it."""
    receptacles: dict[str, tuple[tuple[int, int], ...]]
    """Class -> the fewest and the most of it, for each size."""
    objects: tuple[str, ...]
    """The classes of things that are picked up in it."""
    decor: dict[str, tuple[str, ...]]
    """Classes of fixed things on receptacles -> the receptacle classes they stand on."""
    scenery: tuple[str, ...]
    """Classes of things on walls and floor."""


_TABLE = table(__package__, "rooms.json")

ROOMS: tuple[Room, ...] = tuple(Room(**fields) for fields in _TABLE["rooms"])
"""The four kinds of rooms."""
HEIGHTS: dict[str, int] = _TABLE["heights"]
"""Centimetres above the floor at which a receptacle holds things."""
TASK_PHRASES: dict[str, tuple[str, ...]] = _TABLE["task_phrases"]
"""How the released games word the task of each family, classes in lower case."""
_SURFACES: dict[str, int] = _TABLE["surfaces"]  # how much one receptacle of a class holds: ten times the mean
_PREFERENCES: dict[str, dict[str, int]] = _TABLE["preferences"]
# Object class -> receptacle classes in which it is so many times as frequent as other things.


@functools.cache
def placement_weight(object_class: str, receptacle_class: str) -> int:
    """Return how likely an object of a class is in one receptacle of a class, in proportion; 0 where it must not be."""
    if object_class not in CAN_CONTAIN.get(receptacle_class, ()):
        return 0
    return _SURFACES[receptacle_class] * _PREFERENCES.get(object_class, {}).get(receptacle_class, 1)


def lamp_weight(receptacle_class: str) -> float:
    """Return how likely a lamp stands on one receptacle of a class, in proportion."""
    weights = {"Desk": 50.0, "SideTable": 30.0, "Dresser": 25.0, "Shelf": 2.0}
    return weights.get(receptacle_class, 0.01 * _SURFACES.get(receptacle_class, 1))
