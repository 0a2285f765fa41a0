"""The scenes of generated ALFWorld houses: one room each, with its receptacles in place.

A scene is a function of its room, number and size alone. Scenes of `valid_unseen` have numbers of their own, and share
their inventory (how many receptacles of each class) with no other scene.

The numbers in `rooms.json` follow counts over released games: receptacles and objects per room, objects per receptacle.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

from agent_envs.datasets.alfworld.object_classes import CAN_CONTAIN, OPENABLE
from agent_envs.datasets.generated_tasks import Draws, shuffled, stream
from agent_envs.files import table


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


SEEN_SCENES = 250
"""Scenes per room and size that train and valid_seen share, numbered from 1."""

UNSEEN_SCENES = 25
"""Scenes per room and size that only valid_unseen has, numbered after the others."""

_SHARE = ("Cabinet", "Drawer", "Shelf", "StoveBurner")  # often within reach from the same location
_MAY_STAY_OPEN = ("Cabinet", "Drawer")
_VARIETY = (40, 55, 70, 85, 100)  # percent of a room's classes of things that are present, by size


@dataclass(frozen=True, slots=True)
class Place:
    """A receptacle in its place."""

    receptacle_id: str
    """As in the released games: class and coordinates in metres, `Cabinet|-01.20|+01.60|+02.35`."""
    receptacle_class: str
    location: str
    """Where to stand to use it: `loc|-4|8|0|30`, in steps of 25 cm, with rotation and tilt of the head."""
    openable: bool
    """Whether it can be opened; if not, its contents are visible."""
    position: tuple[int, int, int]
    """Where its contents are, in centimetres: x, height, z."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A room with its receptacles."""

    room: Room
    number: int
    size: int
    """1 to 5."""
    places: tuple[Place, ...]
    """The receptacles, in a drawn order."""
    things: tuple[str, ...]
    """The classes of things in the room."""
    start: str
    """The location where episodes start, away from receptacles."""

    @property
    def classes(self) -> frozenset[str]:
        """The classes of its receptacles."""
        return frozenset(place.receptacle_class for place in self.places)


@functools.lru_cache(maxsize=64)
def build_scene(room: Room, number: int, size: int) -> Scene:
    """Return a scene of a room by its size and its number, 1 to `SEEN_SCENES + UNSEEN_SCENES`."""
    draws = stream(f"alfworld-scene/{room.name}/{number}/{size}")
    unseen = number > SEEN_SCENES
    while True:
        counts = {name: draws.between(*ranges[size - 1]) for name, ranges in room.receptacles.items()}
        counts = {name: count for name, count in counts.items() if count}
        inventory = ",".join(f"{name}:{count}" for name, count in sorted(counts.items()))
        if (hashlib.sha256(f"{room.name}/{inventory}".encode()).digest()[0] % 8 == 0) == unseen:
            break
    places = _arrange(draws, counts)
    fitting = [name for name in room.objects if any(name in CAN_CONTAIN[holder] for holder in counts)]
    about = max(3, len(fitting) * _VARIETY[size - 1] // 100)
    return Scene(
        room=room,
        number=room.floor_plan + number,
        size=size,
        places=tuple(places),
        things=tuple(shuffled(draws, fitting)[:about]),
        start=f"loc|{draws.between(-2, 2)}|{draws.between(-2, 2)}|{draws.between(0, 3)}|30",
    )


def _arrange(draws: Draws, counts: dict[str, int]) -> list[Place]:
    """Arrange receptacles along the walls of a room that is large enough for them."""
    total = sum(counts.values())
    half = 150 + 12 * total  # centimetres from the middle to a wall
    places: list[Place] = []
    taken: set[str] = set()
    identities: set[str] = set()
    spots = shuffled(draws, range(total))
    for name, count in counts.items():
        for nth in range(count):
            side, along = spots[-1] % 4, spots.pop() * 2 * half // total - half
            x, z = ((along, half), (half, along), (along, -half), (-half, along))[side]
            height = HEIGHTS[name] + draws.between(-10, 10) + (30 * (nth % 3) if name in _SHARE else 0)
            if nth > 0 and name in _SHARE and draws.between(1, 100) <= 20:
                location, (x, _, z) = places[-1].location, places[-1].position
            else:
                location = _free_location(draws, taken, x * 4 // 5 // 25, z * 4 // 5 // 25, side)
            position = (x + draws.between(-9, 9), max(5, height), z + draws.between(-9, 9))
            stays_open = name in _MAY_STAY_OPEN and draws.between(1, 100) <= 8
            base = name.removesuffix("Basin")  # which belongs to a sink or a bathtub
            end = f"|{name}" if base != name else ""
            while (identity := f"{base}|{coordinates(position)}{end}") in identities:
                position = (position[0] + 1, position[1], position[2])
            identities.add(identity)
            places.append(Place(identity, name, location, name in OPENABLE and not stays_open, position))
    return shuffled(draws, places)


def _free_location(draws: Draws, taken: set[str], x: int, z: int, side: int) -> str:
    while True:
        location = f"loc|{x}|{z}|{side}|{draws.pick((0, 15, 30, 45, 60))}"
        if location not in taken and max(abs(x), abs(z)) > 2:
            taken.add(location)
            return location
        x += draws.pick((-1, 0, 1))
        z += draws.pick((-1, 0, 1))


def coordinates(position: tuple[int, int, int]) -> str:
    """Return a position in centimetres as game files write it: "-01.62|+00.76|+00.05"."""
    return "|".join(f"{value / 100:+06.2f}" for value in position)
