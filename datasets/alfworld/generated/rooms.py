"""The rooms of generated ALFWorld houses: what stands in them at each size, what lies in them, and where it lies.

Numbers follow counts over released games: receptacles and objects per room, objects per receptacle of a class.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from agent_envs.datasets.alfworld.classes import CAN_CONTAIN

__all__ = ["HEIGHTS", "ROOMS", "SIZES", "Room", "lamp_weight", "placement_weight"]

SIZES = (1, 2, 3, 4, 5)
"""Sizes of a house. Receptacles to search, and things that lie in them, grow by about two thirds from size to size."""


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
    """Classes of things that stand on receptacles and stay there -> the receptacle classes they stand on."""
    scenery: tuple[str, ...]
    """Classes of things on walls and floor."""


def _counts(text: str) -> dict[str, tuple[tuple[int, int], ...]]:
    """`Name 1 1-2 ...` per line: how many of a class there are at each size."""
    table = {}
    for line in text.strip().splitlines():
        name, *ranges = line.split()
        bounds = [part.partition("-") for part in ranges]
        table[name] = tuple((int(low), int(high or low)) for low, _, high in bounds)
    return table


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_SIMPLE, _TWO = "pick_and_place_simple", "pick_two_obj_and_place"
_CLEAN, _LOOK = "pick_clean_then_place_in_recep", "look_at_obj_in_light"
_LAMP_PLACES = ("Desk", "SideTable", "Dresser", "Shelf")

ROOMS = (
    Room(
        name="kitchen",
        floor_plan=0,
        families=(_SIMPLE, _TWO, _CLEAN, "pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep"),
        receptacles=_counts("""
            CounterTop     1    1    1-2  1-3  2-4
            Fridge         1    1    1    1    1
            Microwave      1    1    1    1    1
            SinkBasin      1    1    1    1    1
            Cabinet        0-2  1-3  2-5  4-9  8-14
            Drawer         0-1  0-2  1-4  2-7  6-16
            StoveBurner    0-1  1-2  2-4  4    4-6
            CoffeeMachine  0-1  0-1  1    1    1-2
            Toaster        0    0-1  0-1  1    1
            GarbageCan     0-1  1    1    1    1
            DiningTable    0-1  0-1  0-1  0-2  0-3
            SideTable      0    0-1  0-1  0-2  0-2
            Shelf          0-1  0-1  0-2  0-3  0-4
        """),
        objects=_names(
            "Apple Bread Egg Lettuce Potato Tomato Bowl Cup Mug Plate Pan Pot Kettle ButterKnife Fork Knife "
            "Spoon Spatula Ladle DishSponge SoapBottle SaltShaker PepperShaker Glassbottle WineBottle CellPhone "
            "Pen Pencil"
        ),
        decor={"HousePlant": ("CounterTop", "DiningTable", "SideTable", "Shelf")},
        scenery=("LightSwitch", "Window", "Chair", "Mirror", "Blinds", "Chair", "Window"),
    ),
    Room(
        name="living room",
        floor_plan=2000,
        families=(_SIMPLE, _TWO, _LOOK),
        receptacles=_counts("""
            Sofa           1    1    1    1-2  1-3
            CoffeeTable    0-1  1    1    1-2  1-2
            ArmChair       0-1  0-1  1-2  1-2  1-2
            SideTable      0-1  1    1-2  1-3  2-3
            Shelf          0-1  0-2  1-4  2-7  4-14
            Drawer         0-1  0-2  1-4  3-7  5-12
            Cabinet        0-1  0-1  0-3  1-5  2-8
            GarbageCan     0-1  1    1    1    1
            TVStand        0-1  0-1  0-1  1    1-2
            DiningTable    0    0-1  0-1  0-1  0-1
            Dresser        0    0-1  0-1  0-1  0-3
            Desk           0-1  0-1  0-1  0-1  0-1
            Ottoman        0    0-1  0-1  0-1  0-1
            Safe           0    0    0-1  0-1  0-1
        """),
        objects=_names(
            "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl Statue Vase "
            "WateringCan TissueBox Watch Bowl Plate Candle Pen Pencil"
        ),
        decor={
            "Television": ("TVStand", "Dresser", "SideTable"),
            "HousePlant": ("SideTable", "TVStand", "CoffeeTable", "Shelf"),
            "DeskLamp": _LAMP_PLACES,
        },
        scenery=("LightSwitch", "Painting", "Window", "FloorLamp", "Chair", "Painting", "Curtains", "Boots", "Window"),
    ),
    Room(
        name="bedroom",
        floor_plan=3000,
        families=(_SIMPLE, _TWO, _LOOK),
        receptacles=_counts("""
            Bed            1    1    1    1-2  1-2
            Desk           0-1  0-1  1    1-2  1-2
            SideTable      0-1  1    1-2  1-2  1-3
            Drawer         0-2  1-3  2-6  4-9  7-14
            Shelf          0-1  0-2  1-4  2-6  4-9
            Dresser        0-1  0-1  0-1  1-2  1-4
            GarbageCan     0-1  1    1    1    1
            ArmChair       0    0-1  0-1  0-1  0-1
            Cabinet        0    0-1  0-1  0-3  1-4
            LaundryHamper  0    0-1  0-1  0-1  0-1
            Safe           0    0    0-1  0-1  0-1
            Ottoman        0    0    0-1  0-1  0-1
            DiningTable    0    0    0    0-1  0-1
        """),
        objects=_names(
            "AlarmClock Book CD CellPhone CreditCard KeyChain Laptop Mug Pen Pencil Pillow Bowl Box "
            "TennisRacket BaseballBat BasketBall TissueBox Watch Statue Vase Cloth RemoteControl"
        ),
        decor={
            "DeskLamp": _LAMP_PLACES,
            "HousePlant": ("Desk", "Shelf", "SideTable", "Dresser"),
            "TeddyBear": ("Bed",),
        },
        scenery=("LightSwitch", "Window", "Mirror", "Blinds", "Painting", "Chair", "Poster", "Boots", "Window"),
    ),
    Room(
        name="bathroom",
        floor_plan=4000,
        families=(_SIMPLE, _TWO, _CLEAN),
        receptacles=_counts("""
            Toilet             1    1    1    1    1
            SinkBasin          1    1    1-2  1-2  2
            CounterTop         0-1  0-1  1    1-2  1-2
            GarbageCan         0-1  1    1    1    1
            ToiletPaperHanger  0-1  0-1  1    1    1-2
            HandTowelHolder    0-1  0-1  1    1-2  1-3
            TowelHolder        0    0-1  1    1-2  1-2
            BathtubBasin       0-1  0-1  0-1  1    1
            Cabinet            0-1  0-3  1-4  2-6  4-9
            Drawer             0-1  0-1  0-3  2-6  4-10
            Shelf              0-1  0-1  0-2  0-4  1-6
            SideTable          0    0-1  0-1  0-1  0-2
            Cart               0    0-1  0-1  0-1  0-1
            Dresser            0    0    0-1  0-1  0-1
            LaundryHamper      0    0    0-1  0-1  0-1
        """),
        objects=_names(
            "SoapBar SoapBottle SprayBottle ToiletPaper Cloth Candle HandTowel Towel TissueBox DishSponge "
            "PaperTowel ToiletPaperRoll"
        ),
        decor={"HousePlant": ("CounterTop", "SideTable", "Shelf")},
        scenery=("LightSwitch", "Mirror", "ScrubBrush", "Plunger", "Window", "ShowerDoor", "Painting"),
    ),
)
"""The four kinds of rooms."""

HEIGHTS = {
    "Bed": 55, "Sofa": 45, "ArmChair": 45, "Ottoman": 40, "CoffeeTable": 45, "SideTable": 65, "DiningTable": 85,
    "CounterTop": 90, "Desk": 75, "Dresser": 85, "TVStand": 60, "Shelf": 140, "Cabinet": 160, "Drawer": 60,
    "Fridge": 100, "Microwave": 110, "SinkBasin": 90, "StoveBurner": 92, "CoffeeMachine": 95, "Toaster": 95,
    "GarbageCan": 10, "Safe": 30, "Toilet": 80, "BathtubBasin": 20, "TowelHolder": 140, "HandTowelHolder": 145,
    "ToiletPaperHanger": 70, "Cart": 70, "LaundryHamper": 40,
}  # fmt: skip
"""Centimetres above the floor at which a receptacle holds things."""

_SURFACE = {
    "CounterTop": 74, "DiningTable": 77, "Desk": 60, "CoffeeTable": 42, "SideTable": 28, "Dresser": 35, "Bed": 34,
    "Sofa": 27, "TVStand": 30, "Fridge": 28, "Toilet": 28, "BathtubBasin": 18, "SinkBasin": 15, "Cart": 15,
    "Microwave": 10, "Shelf": 10, "ArmChair": 10, "Ottoman": 10, "HandTowelHolder": 10, "TowelHolder": 10,
    "ToiletPaperHanger": 10, "GarbageCan": 7, "StoveBurner": 6, "Cabinet": 5, "Safe": 8, "LaundryHamper": 5,
    "CoffeeMachine": 4, "Drawer": 3, "Toaster": 1, "PaintingHanger": 1,
}  # fmt: skip
"""How much lies in one receptacle of a class: ten times the mean over released games."""

_LIKES: dict[str, dict[str, int]] = {
    "Apple": {"Fridge": 3},
    "Bowl": {"Cabinet": 4, "Microwave": 2},
    "Bread": {"Fridge": 1},
    "ButterKnife": {"Drawer": 3},
    "Candle": {"Cabinet": 2, "Drawer": 2},
    "CreditCard": {"Drawer": 2, "Shelf": 2},
    "Cup": {"Cabinet": 4, "Microwave": 2},
    "DishSponge": {"Cabinet": 3, "Drawer": 3, "SinkBasin": 2},
    "Egg": {"Fridge": 3, "GarbageCan": 6, "Microwave": 4},
    "Fork": {"Drawer": 4},
    "Kettle": {"Cabinet": 2, "StoveBurner": 5},
    "KeyChain": {"ArmChair": 3, "Drawer": 2, "Safe": 2},
    "Knife": {"Drawer": 3},
    "Ladle": {"Drawer": 4},
    "Laptop": {"Bed": 3, "Sofa": 2},
    "Lettuce": {"Fridge": 2},
    "Mug": {"Cabinet": 3, "CoffeeMachine": 12, "SinkBasin": 2},
    "Newspaper": {"Sofa": 2},
    "Pan": {"Cabinet": 2, "StoveBurner": 12},
    "PepperShaker": {"Cabinet": 4, "Drawer": 3},
    "Pillow": {"Bed": 4, "Sofa": 3},
    "Plate": {"Cabinet": 4},
    "Pot": {"StoveBurner": 20},
    "Potato": {"Fridge": 2, "Microwave": 5, "SinkBasin": 2},
    "SaltShaker": {"Cabinet": 4, "Drawer": 3},
    "SoapBar": {"SinkBasin": 2, "Cabinet": 2},
    "SoapBottle": {"Cabinet": 2, "GarbageCan": 3},
    "Spatula": {"Drawer": 6},
    "Spoon": {"Drawer": 6, "SinkBasin": 3},
    "Statue": {"CoffeeTable": 2, "Shelf": 3},
    "ToiletPaper": {"ToiletPaperHanger": 6, "Cabinet": 2},
    "Tomato": {"Fridge": 3, "GarbageCan": 3},
    "Vase": {"Shelf": 5},
    "WineBottle": {"Cabinet": 4},
}
"""Object class -> receptacle classes in which it lies so many times as often as other things do."""


@functools.cache
def placement_weight(object_class: str, receptacle_class: str) -> int:
    """How likely an object of a class lies in one receptacle of a class, in proportion; 0 where it may not be put.

    >>> placement_weight("Spoon", "Drawer") > placement_weight("Spoon", "SinkBasin") / 5 > 0
    True
    >>> placement_weight("Spoon", "Bed")
    0
    """
    if object_class not in CAN_CONTAIN.get(receptacle_class, ()):
        return 0
    return _SURFACE[receptacle_class] * _LIKES.get(object_class, {}).get(receptacle_class, 1)


def lamp_weight(receptacle_class: str) -> float:
    """How likely a lamp stands on one receptacle of a class, in proportion.

    >>> lamp_weight("Desk") > lamp_weight("Shelf") > lamp_weight("Drawer")
    True
    """
    likely = {"Desk": 50.0, "SideTable": 30.0, "Dresser": 25.0, "Shelf": 2.0}
    return likely.get(receptacle_class, 0.01 * _SURFACE.get(receptacle_class, 1))
