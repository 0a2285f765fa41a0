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

from agent_envs.files import table

Formula = tuple[Any, ...]
"""A condition: ("and", f, ...), ("or", f, ...), ("not", f), ("exists", ((variable, type), ...), f) or an atom such as
("inreceptacle", "?o", "?r") and ("=", "?a", "?b"); all lower case, variables with their question mark."""

SPLIT_ALIASES: Mapping[str, str] = {"validation": "valid_seen", "test": "valid_unseen"}
"""The names that other environments use for the held-out splits."""

TYPES: tuple[str, ...] = ("agent", "location", "object", "otype", "receptacle", "rtype")
"""The types of identifiers. All others derive from `object`."""

_GAME = table(__package__, "game.json")

FAMILIES: tuple[str, ...] = tuple(sorted(_GAME["goals"]))
"""The six families of tasks, sorted."""

PREDICATES: Mapping[str, int] = {name: int(count) for count, names in _GAME["predicates"].items() for name in names}
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

_HELP = "\n".join(_GAME["help"]) + "\n"
PACKAGED = Wording("move {o} to {r}", "You move the {o} to the {r}.", "You arrive at {r}. ", _HELP, False)
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
