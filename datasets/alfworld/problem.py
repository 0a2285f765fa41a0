"""One ALFWorld house as facts: what game files and the generator hold, and what the engines play.

A `Problem` is independent of its source. Its identifiers are lower case and mangled as in the released files
(`apple_bar__plus_00_dot_50_bar_...`): PDDL ignores case, so they can be written as they are.

What an engine's output depends on, and what a written file must therefore preserve:

- the *set* of facts and the *set* of identifiers in them: engines list things sorted by identifier, whatever the order
  in the file, and ignore objects that no fact mentions;
- the identifiers themselves: `display_names` numbers the members of a class in descending order;
- the type of every identifier, the goal formula, the task line, and the `Wording`.

The order of objects and facts, repeated facts, layout, comments and letter case do not matter.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_envs.errors import DataError

__all__ = [
    "FAMILIES",
    "PACKAGED",
    "PREDICATES",
    "RELEASED",
    "SPLIT_ALIASES",
    "TYPES",
    "Formula",
    "Problem",
    "Wording",
    "display_names",
    "family_goal",
]

Formula = tuple[Any, ...]
"""A condition: ("and", f, ...), ("or", f, ...), ("not", f), ("exists", ((variable, type), ...), f) or an atom such as
("inreceptacle", "?o", "?r") and ("=", "?a", "?b"); all lower case, variables with their question mark."""

FAMILIES: tuple[str, ...] = (
    "look_at_obj_in_light",
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six families of tasks, sorted."""

SPLIT_ALIASES: Mapping[str, str] = {"validation": "valid_seen", "test": "valid_unseen"}
"""The names that other environments use for the held-out splits."""

TYPES: tuple[str, ...] = ("agent", "location", "object", "otype", "receptacle", "rtype")
"""The types of identifiers. All others derive from `object`."""

_UNARY = (
    *("checked", "cleanable", "coolable", "examined", "full", "heatable", "holdsany"),
    *("holdsanyreceptacleobject", "isclean", "iscool", "ishot", "ison", "isreceptacleobject"),
    *("isreceptacleobjectfull", "issliced", "istoggled", "moveable", "openable", "opened", "pickupable"),
    *("sliceable", "toggleable"),
)
_BINARY = (
    *("atlocation", "cancontain", "holds", "inreceptacle", "inreceptacleobject", "objectatlocation"),
    *("objecttype", "receptacleatlocation", "receptacletype", "wasinreceptacle"),
)
PREDICATES: Mapping[str, int] = dict.fromkeys(_UNARY, 1) | dict.fromkeys(_BINARY, 2)
"""The domain's predicates and their numbers of arguments."""


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts in which the two editions of the game differ: the released files, and those of alfworld 0.4.2."""

    put: str
    """The command that puts {o} into {r}."""
    put_done: str
    """The answer to it."""
    arrive: str
    """The beginning of the answer to going to {r}, which is at the location {lend}."""
    help: str | None
    """The answer to `help`; None if the game has no such command."""
    sink_cleans: bool
    """Whether receptacles of the type `sinktype` clean too, besides those of `sinkbasintype`."""


RELEASED = Wording("put {o} in/on {r}", "You put the {o} in/on the {r}.", "You arrive at {lend}. ", None, True)
"""As in the files of json_2.1.1."""

_HELP = (
    ("look", "look around your current location"),
    ("inventory", "check your current inventory"),
    ("go to (receptacle)", "move to a receptacle"),
    ("open (receptacle)", "open a receptacle"),
    ("close (receptacle)", "close a receptacle"),
    ("take (object) from (receptacle)", "take an object from a receptacle"),
    ("move (object) to (receptacle)", "place an object in or on a receptacle"),
    ("examine (something)", "examine a receptacle or an object"),
    ("use (object)", "use an object"),
    ("heat (object) with (receptacle)", "heat an object using a receptacle"),
    ("clean (object) with (receptacle)", "clean an object using a receptacle"),
    ("cool (object) with (receptacle)", "cool an object using a receptacle"),
    ("slice (object) with (object)", "slice an object using a sharp object"),
)


def _help_text() -> str:
    """Return the help text of alfworld 0.4.2: a column of 34 characters, except in the line of `move`."""
    lines = [
        f"  {command}:  {what}" if command.startswith("move") else f"  {command + ':':<34}{what}"
        for command, what in _HELP
    ]
    return "Available commands:\n" + "\n".join(lines) + "\n"


PACKAGED = Wording("move {o} to {r}", "You move the {o} to the {r}.", "You arrive at {r}. ", _help_text(), False)
"""As in the domain and grammar of alfworld 0.4.2, and in files generated with them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A house, where everything in it is, and the goal."""

    name: str
    """Name of the problem."""
    objects: Mapping[str, str]
    """Identifier -> type (one of `TYPES`), classes (`apple` of type `object`, `appletype` of `otype`) included."""
    facts: tuple[tuple[str, ...], ...]
    """What holds at the start: (predicate, argument, ...), without negative facts."""
    goal: Formula
    """What wins the game."""
    task: str
    """The task in words, as after "Your task is to: ", without the full stop."""
    family: str
    """One of `FAMILIES`, or another name for games of other kinds."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The task's classes as the files spell them: object_target, parent_target, toggle_target, mrecep_target."""
    wording: Wording = PACKAGED
    """The edition of the game's texts."""


def family_goal(family: str, obj: str, recep: str = "", toggle: str = "") -> Formula:
    """Return the goal of a family for classes such as "Apple" and "SideTable"; DataError if there is no such family."""
    otype, rtype = f"{obj.lower()}type", f"{recep.lower()}type"
    if family == "look_at_obj_in_light":
        lamp = (
            "and",
            ("objecttype", "?ot", f"{toggle.lower()}type"),
            ("toggleable", "?ot"),
            ("istoggled", "?ot"),
            ("receptacleatlocation", "?r", "?l"),
            ("atlocation", "?a", "?l"),
            ("inreceptacle", "?ot", "?r"),
        )
        held = ("and", ("objecttype", "?o", otype), ("holds", "?a", "?o"))
        where = (("?ot", "object"), ("?r", "receptacle"), ("?a", "agent"), ("?l", "location"))
        return ("and", ("exists", where, lamp), ("exists", (("?o", "object"), ("?a", "agent")), held))
    first: tuple[Formula, ...]
    if family == "pick_and_place_simple":
        first = (("inreceptacle", "?o", "?r"), ("objecttype", "?o", otype), ("receptacletype", "?r", rtype))
    elif family == "pick_two_obj_and_place":
        second = (
            "and",
            ("not", ("=", "?o1", "?o2")),
            ("objecttype", "?o2", otype),
            ("receptacletype", "?r", rtype),
            ("inreceptacle", "?o2", "?r"),
        )
        first = (
            ("objecttype", "?o1", otype),
            ("receptacletype", "?r", rtype),
            ("inreceptacle", "?o1", "?r"),
            ("exists", (("?o2", "object"),), second),
        )
    elif family in _CHANGES:
        can, done = _CHANGES[family]
        first = (
            (can, "?o"),
            ("objecttype", "?o", otype),
            ("receptacletype", "?r", rtype),
            (done, "?o"),
            ("inreceptacle", "?o", "?r"),
        )
    else:
        raise DataError(f"there is no task family {family!r}; the families are: {', '.join(FAMILIES)}")
    variable = "?o1" if family == "pick_two_obj_and_place" else "?o"
    inner = ("exists", ((variable, "object"),), ("and", *first))
    return ("and", ("exists", (("?r", "receptacle"),), inner))


_CHANGES = {
    "pick_clean_then_place_in_recep": ("cleanable", "isclean"),
    "pick_cool_then_place_in_recep": ("coolable", "iscool"),
    "pick_heat_then_place_in_recep": ("heatable", "ishot"),
}


def display_names(identifiers: Iterable[str]) -> dict[str, str]:
    """Return what the game calls things: class and number, numbered in descending order of identifiers.

    An identifier is `class_bar_position`; one that contains `basin` is a basin. An identifier without a position keeps
    its name, followed by a space.

    >>> names = display_names(["apple_bar__plus_1", "apple_bar__plus_2", "sink_bar__plus_1_bar_sinkbasin", "agent1"])
    >>> sorted(names.values())
    ['agent1 ', 'apple 1', 'apple 2', 'sinkbasin 1']
    >>> names["apple_bar__plus_2"]
    'apple 1'
    """
    classes = {}
    for identifier in sorted(set(identifiers)):
        name, bar, _ = identifier.partition("_bar_")
        classes[identifier] = name + ("basin" if bar and "basin" in identifier else ""), bool(bar)
    left = Counter(name for name, numbered in classes.values() if numbered)
    names = {}
    for identifier, (name, numbered) in classes.items():
        if numbered:
            names[identifier] = sys.intern(f"{name} {left[name]}")  # thousands of games have a "cabinet 1"
            left[name] -= 1
        else:
            plain = re.sub(r"_(minus|plus|dot|comma)_", lambda match: _MARKS[match[1]], identifier)
            names[identifier] = f"{plain} "
    return names


_MARKS = {"minus": "-", "plus": "+", "dot": ".", "comma": ","}
