"""What ALFWorld's objects and receptacles are: facts of its domain that generated houses and searches keep to.

Facts of `alfworld.gen.constants` (alfworld 0.4.2), with which a test compares them. Class names are those of the
released games: `CounterTop`, `SoapBar`.
"""

from __future__ import annotations

__all__ = [
    "CAN_CONTAIN",
    "CLEANABLE",
    "COOLABLE",
    "HEATABLE",
    "MOVABLE_RECEPTACLES",
    "OBJECT_CLASSES",
    "OPENABLE",
    "PHRASES",
    "RECEPTACLE_CLASSES",
    "SLICEABLE",
    "TOGGLEABLE",
    "holders_of",
]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PHRASES = {
    "pick_and_place_simple": ("put a {obj} in {recep}", "put some {obj} on {recep}"),
    "look_at_obj_in_light": ("look at {obj} under the {toggle}", "examine the {obj} with the {toggle}"),
    "pick_clean_then_place_in_recep": ("put a clean {obj} in {recep}", "clean some {obj} and put it in {recep}"),
    "pick_heat_then_place_in_recep": ("put a hot {obj} in {recep}", "heat some {obj} and put it in {recep}"),
    "pick_cool_then_place_in_recep": ("put a cool {obj} in {recep}", "cool some {obj} and put it in {recep}"),
    "pick_two_obj_and_place": ("put two {obj} in {recep}", "find two {obj} and put them in {recep}"),
}
"""How the released games word the task of each family, classes in lower case."""

MOVABLE_RECEPTACLES = frozenset(_names("Bowl Box Cup Mug Pan Plate Pot"))
"""Objects that can hold others."""

OPENABLE = frozenset(_names("Cabinet Drawer Fridge Microwave Safe"))
"""Receptacles that are closed at first, where they can be opened at all."""

CLEANABLE = frozenset(
    _names(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate Pot Potato "
        "SoapBar Spatula Spoon Tomato"
    )
)
"""What a sink cleans."""

HEATABLE = frozenset(_names("Apple Bread Cup Egg Mug Plate Potato Tomato"))
"""What a microwave heats."""

COOLABLE = frozenset(_names("Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle"))
"""What a fridge cools."""

TOGGLEABLE = frozenset(("DeskLamp", "FloorLamp"))
"""What is turned on and off."""

SLICEABLE = frozenset(_names("Apple Bread Egg Lettuce Potato Tomato"))
"""What a knife slices."""

RECEPTACLE_CLASSES = _names(
    "ArmChair BathtubBasin Bed Cabinet Cart CoffeeMachine CoffeeTable CounterTop Desk DiningTable Drawer "
    "Dresser Fridge GarbageCan HandTowelHolder LaundryHamper Microwave Ottoman PaintingHanger Safe Shelf "
    "SideTable SinkBasin Sofa StoveBurner TVStand Toaster Toilet ToiletPaperHanger TowelHolder"
)
"""Every class of a receptacle that stays where it is, as a game file declares them."""

OBJECT_CLASSES = _names(
    "AlarmClock Apple BaseballBat BasketBall Bathtub Blinds Book Boots Bowl Box Bread ButterKnife CD Candle "
    "CellPhone Chair Cloth CreditCard Cup Curtains DeskLamp DishSponge Egg FloorLamp Footstool Fork Glassbottle "
    "HandTowel HousePlant Kettle KeyChain Knife Ladle Laptop LaundryHamperLid Lettuce LightSwitch Mirror Mug "
    "Newspaper Painting Pan PaperTowel PaperTowelRoll Pen Pencil PepperShaker Pillow Plate Plunger Poster Pot "
    "Potato RemoteControl SaltShaker ScrubBrush ShowerDoor ShowerGlass Sink SoapBar SoapBottle Spatula Spoon "
    "SprayBottle Statue StoveKnob TeddyBear Television TennisRacket TissueBox ToiletPaper ToiletPaperRoll "
    "Tomato Towel Vase Watch WateringCan Window WineBottle"
)
"""Every class of an object, as a game file declares them."""

_SEATS = "BasketBall Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl"
_DRESSER = (
    "AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup Glassbottle KeyChain Laptop "
    "Mug Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox ToiletPaper "
    "ToiletPaperRoll Vase Watch WateringCan WineBottle"
)
_TABLES = (
    "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth "
    "CreditCard Cup DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug "
    "Newspaper Pan PaperTowel Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar "
    "SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox ToiletPaper ToiletPaperRoll Tomato Vase "
    "Watch WateringCan WineBottle"
)

CAN_CONTAIN: dict[str, frozenset[str]] = {
    receptacle: frozenset(objects.split())
    for receptacle, objects in {
        "ArmChair": _SEATS,
        "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
        "Bed": "BaseballBat BasketBall Book CellPhone Laptop Newspaper Pillow TennisRacket",
        "Cabinet": (
            "Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper Pan "
            "PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox ToiletPaper "
            "ToiletPaperRoll Vase WateringCan WineBottle"
        ),
        "Cart": (
            "Candle Cloth DishSponge HandTowel Mug PaperTowel Plunger SoapBar SoapBottle SprayBottle Statue "
            "TissueBox ToiletPaper ToiletPaperRoll Vase"
        ),
        "CoffeeMachine": "Mug",
        "CoffeeTable": _TABLES,
        "CounterTop": _TABLES,
        "Desk": f"{_DRESSER} SoapBottle",
        "DiningTable": _TABLES,
        "Drawer": (
            "Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Knife "
            "Ladle Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon "
            "SprayBottle TissueBox ToiletPaper ToiletPaperRoll Watch WateringCan"
        ),
        "Dresser": _DRESSER,
        "Fridge": "Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
        "GarbageCan": (
            "Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper PaperTowel Pen Pencil Potato "
            "SoapBar SoapBottle SprayBottle TissueBox ToiletPaper ToiletPaperRoll Tomato WineBottle"
        ),
        "HandTowelHolder": "HandTowel",
        "LaundryHamper": "Cloth",
        "Microwave": "Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato",
        "Ottoman": _SEATS,
        "PaintingHanger": "",
        "Safe": "CD CellPhone CreditCard KeyChain Statue Vase Watch",
        "Shelf": (
            "AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle HandTowel "
            "Kettle KeyChain Mug Newspaper PaperTowel Pen Pencil PepperShaker Plate Pot RemoteControl "
            "SaltShaker SoapBar SoapBottle SprayBottle Statue TissueBox ToiletPaper ToiletPaperRoll Vase Watch "
            "WateringCan WineBottle"
        ),
        "SideTable": _TABLES,
        "SinkBasin": (
            "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle "
            "Lettuce Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato"
        ),
        "Sofa": _SEATS,
        "StoveBurner": "Kettle Pan Pot",
        "TVStand": "TissueBox",
        "Toaster": "",
        "Toilet": (
            "Candle Cloth DishSponge HandTowel Newspaper PaperTowel SoapBar SoapBottle SprayBottle TissueBox "
            "ToiletPaper ToiletPaperRoll"
        ),
        "ToiletPaperHanger": "ToiletPaper ToiletPaperRoll",
        "TowelHolder": "Towel",
    }.items()
}
"""Receptacle class -> the object classes that may be put there. Slices of food are left out: no task asks for them."""


def holders_of(object_class: str) -> tuple[str, ...]:
    """The receptacle classes into which an object of a class may be put.

    >>> holders_of("Pot")
    ('Cabinet', 'CoffeeTable', 'CounterTop', 'DiningTable', 'Fridge', 'Shelf', 'SideTable', 'SinkBasin', 'StoveBurner')
    """
    return tuple(receptacle for receptacle, objects in CAN_CONTAIN.items() if object_class in objects)
