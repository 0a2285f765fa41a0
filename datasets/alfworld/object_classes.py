"""What ALFWorld's objects and receptacles are and can do: facts of its domain that generated houses and searches obey.

They are those of `alfworld.gen.constants` (alfworld 0.4.2), with which a test compares them. Class names are written as
in the released games: `CounterTop`, `SoapBar`.
"""

from __future__ import annotations

from agent_envs.files import table

_CLASSES = table(__package__, "object_classes.json")

RECEPTACLE_CLASSES: tuple[str, ...] = _CLASSES["receptacles"]
"""Every class of receptacles that stay where they are, in the order game files declare them."""
OBJECT_CLASSES: tuple[str, ...] = _CLASSES["objects"]
"""Every class of objects, in the order game files declare them."""
OPENABLE: frozenset[str] = frozenset(_CLASSES["openable"])
"""Receptacles that start closed, if they can be opened at all."""
CLEANABLE: frozenset[str] = frozenset(_CLASSES["cleanable"])
"""What a sink cleans."""
HEATABLE: frozenset[str] = frozenset(_CLASSES["heatable"])
"""What a microwave heats."""
COOLABLE: frozenset[str] = frozenset(_CLASSES["coolable"])
"""What a fridge cools."""
TOGGLEABLE: frozenset[str] = frozenset(_CLASSES["toggleable"])
"""What is turned on and off."""
SLICEABLE: frozenset[str] = frozenset(_CLASSES["sliceable"])
"""What a knife slices."""
MOVABLE_RECEPTACLES: frozenset[str] = frozenset(_CLASSES["movable_receptacles"])
"""Objects that can hold others."""
CAN_CONTAIN: dict[str, frozenset[str]] = {name: frozenset(objects) for name, objects in _CLASSES["can_contain"].items()}
"""Receptacle class -> the object classes that may be put there. Slices of food are left out: no task asks for them."""
