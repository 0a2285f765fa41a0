"""A player of ALFWorld that sees everything: a shortest plan for each way of reaching the goal, the best of them.

A step is a command. Going anywhere takes one, so a plan's length follows from what it fetches, in which order, and
where it brings it; ways that differ in nothing that counts are tried once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from agent_envs.envs.alfworld.engine import GameState
from agent_envs.envs.alfworld.game import House

__all__ = ["oracle_action", "oracle_plan"]

Fact = tuple[str, ...]

_VERBS = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}
_ABILITIES = {"isclean": "cleanable", "ishot": "heatable", "iscool": "coolable"}


def oracle_action(house: House, state: GameState) -> str | None:
    """The first command of a shortest plan, or None where the goal is reached or cannot be."""
    plan = oracle_plan(house, state)
    return plan[0] if plan else None


def oracle_plan(house: House, state: GameState) -> list[str] | None:
    """The commands of a shortest plan that wins from here; [] where it is won, None where there is none."""
    if state.won:
        return []
    if state.full_hands and not state.held:
        return None
    best: list[str] | None = None
    for facts in _ways(house, state):
        for walk in _walks(house, state, facts, best):
            if walk and (best is None or len(walk) < len(best)):
                best = walk
    return best


def _ways(house: House, state: GameState) -> Iterator[tuple[Fact, ...]]:
    """The sets of facts any of which wins, without those that differ from another in nothing that counts."""
    things = {word for _, ways in house.goal for facts in ways for fact in facts for word in fact[1:]} & set(
        house.things
    )
    near = {state.place}
    for receptacle, inside in state.contents.items():
        if receptacle in house.locations and not things.isdisjoint(inside):
            near.update(house.locations[receptacle])
    for device in (*house.cleaners, *house.heaters, *house.coolers):
        near.update(house.locations[device])

    def kind(word: str) -> object:
        if word not in house.locations:
            return word
        places = tuple(place for place in house.locations[word] if place in near)
        return places, word in house.openable and word not in state.opened

    conditions = []
    for _, ways in house.goal:
        different = {frozenset(tuple(kind(word) for word in fact) for fact in facts): facts for facts in ways}
        conditions.append(list(different.values()))
    for choice in itertools.product(*conditions):
        yield tuple(dict.fromkeys(itertools.chain(*choice)))


def _walks(house: House, state: GameState, facts: Sequence[Fact], best: list[str] | None) -> Iterator[list[str] | None]:
    """Plans that bring a set of facts about, one for each order of what is to be moved."""
    movable = house.uses["pickupable"]
    marks = {fact for fact in facts if fact[0] in _VERBS and fact not in state.marks}
    moves: list[tuple[str, str]] = []
    for fact in facts:
        if fact[0] == "inreceptacle":
            _, thing, receptacle = fact
            there = thing in state.contents.get(receptacle, ())
            if not there or any(mark[1] == thing for mark in marks):
                if thing not in movable:
                    return
                moves.append((thing, receptacle))
    held = [fact[2] for fact in facts if fact[0] == "holds"]
    used = [fact[1] for fact in facts if fact[0] == "istoggled" and fact not in state.marks]
    place = next((fact[2] for fact in facts if fact[0] == "atlocation"), "")
    limit = len(best) if best is not None else 1_000
    for order in itertools.permutations(moves):
        walk = _Walk(house, state, limit)
        good = all(
            walk.fetch(thing)
            and all(walk.change(thing, mark) for mark, other in marks if other == thing)
            and walk.bring(thing, receptacle)
            for thing, receptacle in order
        )
        good = good and all(walk.fetch(thing) for thing in held)
        good = good and (not place or walk.stand_at(place)) and all(walk.use(thing) for thing in used)
        yield walk.commands if good else None


class _Walk:
    """A plan in the making: the commands so far, and what they change."""

    def __init__(self, house: House, state: GameState, limit: int) -> None:
        self.house = house
        self.state = state
        self.limit = limit
        self.commands: list[str] = []
        self.place = state.place
        self.held = state.held
        self.opened = set(state.opened)
        self.lying: dict[str, str] = {}

    def fetch(self, thing: str) -> bool:
        """Have a thing in hand."""
        if thing in self.held:
            return True
        sources = self._holders(thing)
        if not sources or thing not in self.house.uses["pickupable"]:
            return False
        source = min(sources, key=self._effort)
        if self.held and not self._put_away(source):
            return False
        self._reach(source)
        self.commands.append(f"take {thing} from {source}")
        self.held = (*self.held, thing)
        return len(self.commands) < self.limit

    def change(self, thing: str, mark: str) -> bool:
        """Clean, heat or cool what is in hand."""
        house = self.house
        devices = {"isclean": house.cleaners, "ishot": house.heaters, "iscool": house.coolers}[mark]
        if not devices or thing not in house.uses[_ABILITIES[mark]]:
            return False
        device = min(sorted(devices), key=lambda name: not self._is_here(name))
        self._go(device)
        self.commands.append(f"{_VERBS[mark]} {thing} with {device}")
        return len(self.commands) < self.limit

    def bring(self, thing: str, receptacle: str) -> bool:
        """Put what is in hand into a receptacle."""
        if receptacle not in self.house.locations or not self.house.fits(thing, receptacle):
            return False
        self._reach(receptacle)
        self.commands.append(self.house.wording.put.format(o=thing, r=receptacle))
        self.held = tuple(other for other in self.held if other != thing)
        self.lying[thing] = receptacle
        return len(self.commands) <= self.limit

    def stand_at(self, place: str) -> bool:
        """Be at a place."""
        if self.place != place:
            there = self.house.here.get(place)
            if not there:
                return False
            self._go(there[0])
        return len(self.commands) <= self.limit

    def use(self, thing: str) -> bool:
        """Turn on what stands here."""
        self.commands.append(f"use {thing}")
        return any(self._is_here(holder) for holder in self._holders(thing))

    # -- parts of commands ---------------------------------------------------------------------------------------

    def _holders(self, thing: str) -> list[str]:
        if thing in self.lying:
            return [self.lying[thing]]
        return [r for r in self.house.locations if thing in self.state.contents.get(r, ())]

    def _is_here(self, receptacle: str) -> bool:
        return receptacle in self.house.here.get(self.place, ())

    def _is_shut(self, receptacle: str) -> bool:
        return receptacle in self.house.openable and receptacle not in self.opened

    def _effort(self, receptacle: str) -> int:
        return (not self._is_here(receptacle)) + self._is_shut(receptacle)

    def _go(self, receptacle: str) -> None:
        if not self._is_here(receptacle):
            self.commands.append(f"go to {receptacle}")
            self.place = self.house.locations[receptacle][0]

    def _reach(self, receptacle: str) -> None:
        self._go(receptacle)
        if self._is_shut(receptacle):
            self.commands.append(f"open {receptacle}")
            self.opened.add(receptacle)

    def _put_away(self, on_the_way: str) -> bool:
        """Free the hands, where it costs least and best on the way."""
        for thing in self.held:
            fitting = [r for r in self.house.locations if self.house.fits(thing, r)]
            if not fitting:
                return False

            def cost(receptacle: str) -> int:
                """Commands to get there, and from there on."""
                beside = set(self.house.locations[receptacle]) & set(self.house.locations[on_the_way])
                return self._effort(receptacle) + (receptacle != on_the_way) * (not beside)

            self.bring(thing, min(fitting, key=cost))
        return not self.held
