"""The fixed part of an ALFWorld game: things, places, what fits where, and the goal as sets of ground facts.

A `GroundedGame` is made once from a `Problem` and never changes, so all episodes and threads share it. Things have the
names that the game shows ("mug 2"), which are unique. Thousands of games may be played at once, so equal strings and
sets are one object, and what only the making needs is not kept.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agent_envs.datasets.alfworld.problem import FAMILIES, Formula, Problem, display_names
from agent_envs.errors import DataError

Facts = dict[str, set[tuple[str, ...]]]

MARKS = ("isclean", "iscool", "ishot", "issliced", "istoggled")
"""What can become true of a thing."""

_FLUENTS = frozenset({*MARKS, "atlocation", "holds", "holdsany", "inreceptacle", "objectatlocation", "opened"})
_HIDDEN = frozenset({"checked", "ison"})  # these change too, but no text and no goal depends on them
_SINKS, _MICROWAVES, _FRIDGES = "sinkbasintype", "microwavetype", "fridgetype"
_KNIVES = frozenset({"knifetype", "butterknifetype"})
_TYPE_ORDER = ("object", "agent", "location", "otype", "receptacle", "rtype")
_USES = ("cleanable", "coolable", "heatable", "pickupable", "sliceable", "toggleable")
_ATTRIBUTES = """
    __weakref__ _base agent at cleaners contents coolers family full_hands goal heaters held here holders inner
    locations marks names odd openable opened rank receptacles room start task things tools wanted wording
"""  # more than an instance's dict is fast for


class Traits(NamedTuple):
    """What things of a class have in common."""

    kinds: frozenset[str]
    """Their types, which say where they fit."""
    uses: frozenset[str]
    """What can be done with them: "cleanable" and so on."""


NO_TRAITS = Traits(frozenset(), frozenset())
_traits = functools.lru_cache(maxsize=1024)(Traits)


class GroundedGame:
    """The fixed part of a game.

    Args:
        problem: The game's problem.
        where: Its name in error messages, such as its file.
    """

    __slots__ = tuple(_ATTRIBUTES.split())

    def __init__(self, problem: Problem, where: str = "the game") -> None:
        types = problem.objects
        facts: Facts = {}
        for predicate, *arguments in problem.facts:
            facts.setdefault(predicate, set()).add(tuple(arguments))
        names = display_names(name for fact in problem.facts for name in fact[1:])
        order = {kind: position for position, kind in enumerate(_TYPE_ORDER)}
        by_order = sorted(names, key=lambda name: (order[types[name]], name))
        self.names = {name: names[name] for name in names if types[name] == "location"}
        self.rank = {names[name]: position for position, name in enumerate(by_order)}
        self.task, self.family, self.wording = problem.task, problem.family, problem.wording
        self._place(facts, types, names, where)
        self._furnish(facts, types, names)
        self._fill(facts, types, names)
        self._aim(problem, facts, names, where)
        movable = {*self.held, *(thing for thing, _ in self.at), *itertools.chain(*self.contents.values())}
        self.rank = {thing: self.rank[thing] for thing in movable}
        self._base: dict[str, list[str]] = {}

    def _place(self, facts: Facts, types: Mapping[str, str], names: Mapping[str, str], where: str) -> None:
        """Read where the agent and the receptacles are."""
        agents = [name for name, kind in types.items() if kind == "agent"]
        stands = facts.get("atlocation", set())
        if len(agents) != 1 or len(stands) != 1:
            raise DataError(
                f"{where}: expected one agent at one place, got {len(agents)} agents and {len(stands)} (atLocation ...)"
            )
        ((self.agent, self.start),) = stands
        if self.agent != agents[0] or types[self.start] != "location":
            raise DataError(f"{where}: (atLocation {self.agent} {self.start}) does not put the agent at a location")
        pairs = sorted(
            (receptacle, location)
            for receptacle, location in facts.get("receptacleatlocation", ())
            if (types[receptacle], types[location]) == ("receptacle", "location")
        )
        self.receptacles = tuple(names[r] for r, _ in pairs)
        self.here = _grouped((location, names[receptacle]) for receptacle, location in pairs)
        self.locations = _grouped((names[receptacle], location) for receptacle, location in pairs)

    def _furnish(self, facts: Facts, types: Mapping[str, str], names: Mapping[str, str]) -> None:
        """Read what can be done with each receptacle and each thing."""
        rtypes = _grouped((names[name], kind) for name, kind in facts.get("receptacletype", ()))
        otypes = _grouped((names[name], kind) for name, kind in facts.get("objecttype", ()))
        fits = sorted(facts.get("cancontain", ()))
        shared = _grouped(fit for fit in fits if (types[fit[0]], types[fit[1]]) == ("rtype", "otype"))
        self.room = {}
        for receptacle in self.locations:
            kinds = [shared[kind] for kind in rtypes.get(receptacle, ()) if kind in shared]
            self.room[receptacle] = kinds[0] if len(kinds) == 1 else tuple(sorted({*itertools.chain(*kinds)}))
        sinks = {_SINKS, "sinktype"} if self.wording.sink_cleans else {_SINKS}
        self.cleaners = frozenset(r for r in self.locations if not sinks.isdisjoint(rtypes.get(r, ())))
        self.heaters = frozenset(r for r in self.locations if _MICROWAVES in rtypes.get(r, ()))
        self.coolers = frozenset(r for r in self.locations if _FRIDGES in rtypes.get(r, ()))
        self.openable = frozenset(_unary(facts, "openable", names))
        uses = _grouped((thing, use) for use in _USES for thing in _unary(facts, use, names))
        self.things = {
            thing: _traits(frozenset(otypes.get(thing, ())), frozenset(uses.get(thing, ())))
            for thing in {**otypes, **uses}
        }
        self.tools = frozenset(thing for thing, some in otypes.items() if not _KNIVES.isdisjoint(some))
        self.holders = frozenset(_unary(facts, "isreceptacleobject", names))
        pairs = facts.get("inreceptacleobject", ())
        inner = _grouped((names[outer], names[thing]) for thing, outer in pairs if thing != outer)
        self.inner = {outer: tuple(sorted(some, key=self.rank.__getitem__)) for outer, some in inner.items()}

    def _fill(self, facts: Facts, types: Mapping[str, str], names: Mapping[str, str]) -> None:
        """Read what is where at the start."""
        contents: dict[str, list[str]] = {receptacle: [] for receptacle in self.locations}
        for thing, receptacle in facts.get("inreceptacle", ()):
            if types[receptacle] == "receptacle" and thing != receptacle:
                contents.setdefault(names[receptacle], []).append(names[thing])
        self.contents = {r: tuple(sorted(some, key=self.rank.__getitem__)) for r, some in contents.items()}
        self.odd = any(thing in self.locations for some in self.contents.values() for thing in some)
        self.opened = frozenset(_unary(facts, "opened", names))
        self.held = tuple(sorted((names[thing] for _, thing in facts.get("holds", ())), key=self.rank.__getitem__))
        self.full_hands = bool(facts.get("holdsany"))
        self.at = frozenset((names[thing], location) for thing, location in facts.get("objectatlocation", ()))
        self.marks = frozenset((mark, thing) for mark in MARKS for thing in _unary(facts, mark, names))

    # -- the goal ------------------------------------------------------------------------------------------------

    def _aim(self, problem: Problem, facts: Facts, names: Mapping[str, str], where: str) -> None:
        """Read the goal as conditions: each has alternatives, each a tuple of facts that must hold together.

        A condition without alternatives never holds, as when two things are asked for and there is only one. Like the
        original, this plays such games, but refuses those that could not be won even if one thing counted as both.
        """
        reachable = self._reachable(facts, names)
        shown = {name: text for name, text in names.items() if name not in self.names}  # locations stay identifiers
        parts = []
        for variables, literals in _conditions(problem.goal, where):
            alternatives: dict[frozenset[tuple[str, ...]], tuple[tuple[str, ...], ...]] = {}
            for binding in _solutions(variables, literals, reachable, problem.objects):
                fluent = [_bound(one, binding) for one in literals if one[0] in _FLUENTS]
                ground = tuple((fact[0], *(shown.get(word, word) for word in fact[1:])) for fact in fluent)
                key = frozenset(ground)
                alternatives[key] = min(alternatives.get(key, ground), ground)
            alike = [one for one in literals if one[0] != "not"]
            if not alternatives and not any(_solutions(variables, alike, reachable, problem.objects)):
                raise DataError(
                    f"{where}: the goal cannot be reached because nothing in this household satisfies it; the released "
                    "data marks such games as unsolvable"
                )
            kinds = frozenset(fact[0] for some in alternatives.values() for fact in some)
            parts.append((kinds, tuple(sorted(alternatives.values()))))  # facts are sets: their order is not the game's
        self.goal = tuple(parts)
        self.wanted = _wanted(problem, facts, names)

    def _reachable(self, facts: Facts, names: Mapping[str, str]) -> Facts:
        """Return all facts that actions could bring about if nothing were ever undone."""
        reachable = {predicate: set(some) for predicate, some in facts.items()}
        identifiers = {shown: name for name, shown in names.items()}
        locations = {location for some in self.locations.values() for location in some}
        reachable["atlocation"] = {(self.agent, location) for location in {*locations, self.start}}
        reachable.setdefault("opened", set()).update((identifiers[r],) for r in self.locations if r in self.openable)
        lifted = {o for r in self.locations for o in self.contents[r] if self.can(o, "pickupable")} | set(self.held)
        reachable.setdefault("holds", set()).update((self.agent, identifiers[o]) for o in lifted)
        inside = reachable.setdefault("inreceptacle", set())
        there = reachable.setdefault("objectatlocation", set())
        for thing in lifted:
            for receptacle in self.room:
                if self.fits(thing, receptacle):
                    inside.add((identifiers[thing], identifiers[receptacle]))
                    there.update((identifiers[thing], location) for location in self.locations[receptacle])
        if lifted:
            reachable.setdefault("holdsany", set()).add((self.agent,))
        for mark, use, devices in (
            ("isclean", "cleanable", self.cleaners),
            ("ishot", "heatable", self.heaters),
            ("iscool", "coolable", self.coolers),
        ):
            if devices:
                reachable.setdefault(mark, set()).update((identifiers[o],) for o in lifted if self.can(o, use))
        stored = {names[thing] for thing, receptacle in inside if names[receptacle] in self.locations}
        reachable.setdefault("istoggled", set()).update((identifiers[o],) for o in stored if self.can(o, "toggleable"))
        if lifted & self.tools:
            near = {names[thing] for thing, location in there if location in locations or location == self.start}
            reachable.setdefault("issliced", set()).update((identifiers[o],) for o in near if self.can(o, "sliceable"))
        return reachable

    # -- for the engine ------------------------------------------------------------------------------------------

    def base(self, place: str) -> list[str]:
        """Return the commands that are always admissible at a place, sorted."""
        if place not in self._base:
            base = ["inventory", "look", *(f"examine {receptacle}" for receptacle in self.here.get(place, ()))]
            if self.wording.help is not None:
                base.append("help")
            base += [
                f"go to {receptacle}" for receptacle in self.locations if self.target(receptacle, place) is not None
            ]
            self._base[place] = sorted(map(sys.intern, base))
        return self._base[place]

    def target(self, receptacle: str, place: str) -> str | None:
        """Return the place that `go to receptacle` leads to, or None if the agent is there already."""
        return next((location for location in self.locations[receptacle] if location != place), None)

    def fits(self, thing: str, receptacle: str) -> bool:
        """Return whether the receptacle takes things of this kind."""
        return not self.things.get(thing, NO_TRAITS).kinds.isdisjoint(self.room[receptacle])

    def can(self, thing: str, use: str) -> bool:
        """Return whether a thing is "cleanable", "pickupable" and so on."""
        return use in self.things.get(thing, NO_TRAITS).uses


def _unary(facts: Facts, predicate: str, names: Mapping[str, str]) -> Iterator[str]:
    return (names[name] for (name,) in facts.get(predicate, ()))


def _grouped(pairs: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the second parts of pairs by the first, in the order of the pairs."""
    groups: dict[str, list[str]] = {}
    for first, second in pairs:
        groups.setdefault(first, []).append(second)
    return {first: tuple(some) for first, some in groups.items()}


def _conditions(goal: Formula, where: str) -> Iterator[tuple[dict[str, str], list[Formula]]]:
    """Yield the goal's independent conditions: variables with their types, and literals."""
    if goal[0] == "and":
        for part in goal[1:]:
            yield from _conditions(part, where)
        return
    variables: dict[str, str] = {}
    literals: list[Formula] = []

    def flatten(formula: Formula) -> None:
        if formula[0] == "and":
            for part in formula[1:]:
                flatten(part)
        elif formula[0] == "exists":
            for variable, kind in formula[1]:
                if variable in variables:
                    raise DataError(f"{where}: the goal binds {variable} twice")
                variables[variable] = kind
            flatten(formula[2])
        elif formula[0] == "or" or (formula[0] == "not" and formula[1][0] != "=") or formula[0] in _HIDDEN:
            problem = f"the goal contains {formula[0]!r}, which the native engine does not support"
            raise DataError(f'{where}: {problem}; use engine="textworld"')
        else:
            literals.append(formula)

    flatten(goal)
    yield variables, literals


def _solutions(
    variables: Mapping[str, str], literals: list[Formula], facts: Facts, types: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yield every binding of the variables that makes all literals true in `facts`."""
    different = [one[1][1:] for one in literals if one[0] == "not"]
    atoms = [one for one in literals if one[0] != "not"]

    def solve(binding: dict[str, str], left: list[Formula]) -> Iterator[dict[str, str]]:
        if any(len(set(_bound(pair, binding))) == 1 for pair in different):
            return
        if not left:
            yield binding
            return

        def cost(atom: Formula) -> int:
            unbound = sum(word.startswith("?") and word not in binding for word in atom[1:])
            return unbound * 100_000 + len(facts.get(atom[0], ())) * (unbound == len(atom) - 1) * 10

        atom = min(left, key=cost)
        rest = [other for other in left if other is not atom]
        wanted = _bound(atom[1:], binding)
        if atom[0] == "=":
            if wanted[0] == wanted[1]:
                yield from solve(binding, rest)
            return
        if not any(word.startswith("?") for word in wanted):
            if wanted in facts.get(atom[0], ()):
                yield from solve(binding, rest)
            return
        for fact in facts.get(atom[0], ()):
            extended: dict[str, Any] = dict(binding)
            for word, value in zip(wanted, fact, strict=True):
                if not word.startswith("?"):
                    if word != value:
                        break
                elif extended.setdefault(word, value) != value or variables[word] not in ("object", types[value]):
                    break
            else:
                yield from solve(extended, rest)

    yield from solve({}, atoms)


def _bound(words: Formula, binding: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(str(binding.get(word, word)) for word in words)


def _wanted(problem: Problem, facts: Facts, names: Mapping[str, str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the things and the receptacles that the goal of one of the six families is about."""
    if problem.family not in FAMILIES:
        return frozenset(), ()
    conditions = _conditions(problem.goal, "the goal")
    asked = {(literal[0], literal[-1]) for _, literals in conditions for literal in literals}
    things = frozenset(names[name] for name, kind in facts.get("objecttype", ()) if ("objecttype", kind) in asked)
    places = (names[name] for name, kind in facts.get("receptacletype", ()) if ("receptacletype", kind) in asked)
    return things, tuple(sorted(places))
