"""An ALFWorld expert that sees the whole state and follows a shortest plan.

It makes a shortest plan for each way of reaching the goal and takes the best one. A step is a command, and going
anywhere takes one step, so a plan's length depends only on what it fetches, in which order, and where it puts it. Ways
of equal cost are tried once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from agent_envs.envs.alfworld.engine import GameState
from agent_envs.envs.alfworld.game import GroundedGame

Fact = tuple[str, ...]

_VERBS = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}
_ABILITIES = {"isclean": "cleanable", "ishot": "heatable", "iscool": "coolable"}


def oracle_action(game: GroundedGame, state: GameState) -> str | None:
    """Return the first command of a shortest plan, or None if the goal is reached or unreachable."""
    plan = oracle_plan(game, state)
    return plan[0] if plan else None


def oracle_plan(game: GroundedGame, state: GameState) -> list[str] | None:
    """Return the commands of a shortest winning plan: [] if the game is won already, None if there is no plan."""
    if state.won:
        return []
    if state.full_hands and not state.held:
        return None
    best: list[str] | None = None
    for facts in _ways(game, state):
        for walk in _walks(game, state, facts, best):
            if walk and (best is None or len(walk) < len(best)):
                best = walk
    return best


def _ways(game: GroundedGame, state: GameState) -> Iterator[tuple[Fact, ...]]:
    """Yield the sets of facts each of which wins, one of each group with equal costs."""
    things = {word for _, ways in game.goal for facts in ways for fact in facts for word in fact[1:]} & set(game.things)
    near = {state.place}
    for receptacle, inside in state.contents.items():
        if receptacle in game.locations and not things.isdisjoint(inside):
            near.update(game.locations[receptacle])
    for device in (*game.cleaners, *game.heaters, *game.coolers):
        near.update(game.locations[device])

    def kind(word: str) -> object:
        if word not in game.locations:
            return word
        places = tuple(place for place in game.locations[word] if place in near)
        return places, word in game.openable and word not in state.opened

    conditions = []
    for _, ways in game.goal:
        different = {frozenset(tuple(kind(word) for word in fact) for fact in facts): facts for facts in ways}
        conditions.append(list(different.values()))
    for choice in itertools.product(*conditions):
        yield tuple(dict.fromkeys(itertools.chain(*choice)))


def _walks(
    game: GroundedGame, state: GameState, facts: Sequence[Fact], best: list[str] | None
) -> Iterator[list[str] | None]:
    """Yield plans that bring about a set of facts, one for each order in which things are moved."""
    marks = [fact for fact in facts if fact[0] in _VERBS and fact not in state.marks]
    moves: list[tuple[str, str]] = []
    for fact in facts:
        if fact[0] == "inreceptacle":
            _, thing, receptacle = fact
            there = thing in state.contents.get(receptacle, ())
            if not there or any(mark[1] == thing for mark in marks):
                if not game.can(thing, "pickupable"):
                    return
                moves.append((thing, receptacle))
    held = [fact[2] for fact in facts if fact[0] == "holds"]
    used = [fact[1] for fact in facts if fact[0] == "istoggled" and fact not in state.marks]
    place = next((fact[2] for fact in facts if fact[0] == "atlocation"), "")
    limit = len(best) if best is not None else 1_000
    for order in itertools.permutations(moves):
        walk = _Walk(game, state, limit)
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
    """A plan under construction: the commands so far and the state after them."""

    def __init__(self, game: GroundedGame, state: GameState, limit: int) -> None:
        self.game = game
        self.state = state
        self.limit = limit
        self.commands: list[str] = []
        self.place = state.place
        self.held = state.held
        self.opened = set(state.opened)
        self.moved_to: dict[str, str] = {}

    def fetch(self, thing: str) -> bool:
        """Take a thing, unless it is in hand."""
        if thing in self.held:
            return True
        sources = self._holders(thing)
        if not sources or not self.game.can(thing, "pickupable"):
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
        game = self.game
        devices = {"isclean": game.cleaners, "ishot": game.heaters, "iscool": game.coolers}[mark]
        if not devices or not game.can(thing, _ABILITIES[mark]):
            return False
        device = min(sorted(devices), key=lambda name: not self._is_here(name))
        self._go(device)
        self.commands.append(f"{_VERBS[mark]} {thing} with {device}")
        return len(self.commands) < self.limit

    def bring(self, thing: str, receptacle: str) -> bool:
        """Put what is in hand into a receptacle."""
        if receptacle not in self.game.locations or not self.game.fits(thing, receptacle):
            return False
        self._reach(receptacle)
        self.commands.append(self.game.wording.put.format(o=thing, r=receptacle))
        self.held = tuple(other for other in self.held if other != thing)
        self.moved_to[thing] = receptacle
        return len(self.commands) <= self.limit

    def stand_at(self, place: str) -> bool:
        """Go to a place."""
        if self.place != place:
            there = self.game.here.get(place)
            if not there:
                return False
            self._go(there[0])
        return len(self.commands) <= self.limit

    def use(self, thing: str) -> bool:
        """Turn on a device at this place."""
        self.commands.append(f"use {thing}")
        return any(self._is_here(holder) for holder in self._holders(thing))

    # -- parts of commands ---------------------------------------------------------------------------------------

    def _holders(self, thing: str) -> list[str]:
        if thing in self.moved_to:
            return [self.moved_to[thing]]
        return [r for r in self.game.locations if thing in self.state.contents.get(r, ())]

    def _is_here(self, receptacle: str) -> bool:
        return receptacle in self.game.here.get(self.place, ())

    def _is_shut(self, receptacle: str) -> bool:
        return receptacle in self.game.openable and receptacle not in self.opened

    def _effort(self, receptacle: str) -> int:
        return (not self._is_here(receptacle)) + self._is_shut(receptacle)

    def _go(self, receptacle: str) -> None:
        if not self._is_here(receptacle):
            self.commands.append(f"go to {receptacle}")
            self.place = self.game.locations[receptacle][0]

    def _reach(self, receptacle: str) -> None:
        self._go(receptacle)
        if self._is_shut(receptacle):
            self.commands.append(f"open {receptacle}")
            self.opened.add(receptacle)

    def _put_away(self, on_the_way: str) -> bool:
        """Free the hands at the least cost, preferably on the way."""
        for thing in self.held:
            fitting = [r for r in self.game.locations if self.game.fits(thing, r)]
            if not fitting:
                return False

            def cost(receptacle: str) -> int:
                """Return the number of commands to get there and on to the next receptacle."""
                beside = set(self.game.locations[receptacle]) & set(self.game.locations[on_the_way])
                return self._effort(receptacle) + (receptacle != on_the_way) * (not beside)

            self.bring(thing, min(fitting, key=cost))
        return not self.held
