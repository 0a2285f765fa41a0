"""ALFWorld's engine in plain Python: what a command does, what the game answers, and which commands are admissible.

Answers and admissible commands equal the original's, in the same order:

- Blanks around a command are ignored. A command that is not admissible changes nothing and is answered by "Nothing
  happens.".
- Things are listed in the order of their identifiers in the game file, not of the names shown; commands are sorted as
  text.
- `go to X` is admissible only if it leads elsewhere.
- `examine X` is admissible for the receptacles at the agent's place and for what is in hand, but not for things lying
  around: the domain's rule for those names a type that does not exist (`location,` with its comma).
- The things on the floor that `look` lists are those at this place that were taken out of a receptacle here and are not
  back in it.
- A device that was used once stays on; using it again gives the same answer.

An episode is a `GameState` over a shared `GroundedGame`; a copy branches it. Episodes share nothing that changes, so
threads need no lock.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent_envs.envs.alfworld.game import MARKS, NO_TRAITS, GroundedGame

NOTHING = "Nothing happens."
"""The answer to a command that is not admissible."""

_CARRY = frozenset({"inreceptacle", "holds", "holdsany", "objectatlocation"})
_TOUCHED = {
    "go": frozenset({"atlocation"}),
    "open": frozenset({"opened"}),
    "close": frozenset({"opened"}),
    "take": _CARRY,
    "put": _CARRY,
    "clean": frozenset({"isclean"}),
    "heat": frozenset({"ishot", "iscool"}),
    "cool": frozenset({"ishot", "iscool"}),
    "use": frozenset({"istoggled"}),
    "slice": frozenset({"issliced"}),
}


@dataclass(slots=True)
class GameState:
    """Everything that changes in a game. Copies and pickles are cheap."""

    place: str
    """The identifier of the agent's place."""
    contents: dict[str, tuple[str, ...]]
    """The things in each receptacle, in the order in which they are listed."""
    opened: frozenset[str]
    """The open receptacles."""
    held: tuple[str, ...]
    """The things that the agent carries."""
    full_hands: bool
    """Whether the agent cannot take anything more."""
    at: frozenset[tuple[str, str]]
    """Pairs of a thing and its place."""
    taken: frozenset[tuple[str, str]]
    """Pairs of a thing and a receptacle that it was taken out of and is not back in."""
    marks: frozenset[tuple[str, str]]
    """Marks of things: ("isclean", thing) and so on."""
    moved: dict[str, str]
    """The receptacle of each thing that was put somewhere."""
    met: tuple[bool, ...] = ()
    """Whether each of the goal's conditions holds."""
    commands: list[str] = field(default_factory=list)
    """The admissible commands, sorted. Do not change the list in place."""
    local: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The verb and its arguments for each admissible command that depends on more than the place."""

    def __deepcopy__(self, memo: dict[int, Any]) -> GameState:
        return copy.copy(self)  # attributes are replaced and never changed in place, so copies can share them

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return all(self.met)


def begin(game: GroundedGame) -> GameState:
    """Return the state in which a game starts."""
    start = game.start, game.contents, game.opened, game.held, game.full_hands, game.at
    state = GameState(*start, taken=frozenset(), marks=game.marks, moved={})
    state.met = tuple(_met(state, alternatives) for _, alternatives in game.goal)
    _list_commands(game, state)
    return state


def intro(game: GroundedGame, state: GameState) -> str:
    """Return the first observation of a game."""
    view = _look(game, state) if state.place in game.here else _room(game.receptacles)
    return f"-= Welcome to TextWorld, ALFRED! =-\n\n{view}\n\nYour task is to: {game.task}."


def play(game: GroundedGame, state: GameState, command: str) -> str:
    """Carry out a command: change `state` and return the answer."""
    command = command.strip()
    action = state.local.get(command)
    if action is None:
        receptacle = command.removeprefix("go to ")
        if receptacle != command and receptacle in game.locations:
            return _go(game, state, receptacle)
        return _glance(game, state, command)
    verb = action[0]
    answer = _ACTIONS[verb](game, state, *action[1:])
    if verb in _TOUCHED:
        _changed(game, state, _TOUCHED[verb])
    return answer


# -- what commands do --------------------------------------------------------------------------------------------


def _go(game: GroundedGame, state: GameState, receptacle: str) -> str:
    target = game.target(receptacle, state.place)
    if target is None:
        return NOTHING
    state.place = target
    _changed(game, state, _TOUCHED["go"])
    return game.wording.arrive.format(r=receptacle, lend=game.names[target]) + _receptacle(state, receptacle, game)


def _glance(game: GroundedGame, state: GameState, command: str) -> str:
    """Answer a command that changes nothing and depends on the place alone."""
    if command == "look":
        return _look(game, state)
    if command == "inventory":
        carried = f"You are carrying: {_listed_as_a(state.held)}."
        return carried if state.full_hands else "You are not carrying anything."
    if command == "help" and game.wording.help is not None:
        return game.wording.help
    name = command.removeprefix("examine ")
    if name != command and name in game.here.get(state.place, ()):
        return _receptacle(state, name, game)
    return NOTHING


def _open(game: GroundedGame, state: GameState, receptacle: str) -> str:
    state.opened |= {receptacle}
    return f"You open the {receptacle}. {_receptacle(state, receptacle, game)}"


def _close(game: GroundedGame, state: GameState, receptacle: str) -> str:
    state.opened -= {receptacle}
    return f"You close the {receptacle}."


def _take(game: GroundedGame, state: GameState, thing: str, receptacle: str) -> str:
    left = tuple(other for other in state.contents[receptacle] if other != thing)
    state.contents = {**state.contents, receptacle: left}
    state.held = tuple(sorted({*state.held, thing}, key=game.rank.__getitem__))
    state.full_hands = True
    state.at -= {(thing, state.place)}
    state.taken |= {(thing, receptacle)}
    if state.moved.get(thing) == receptacle:
        state.moved = {o: r for o, r in state.moved.items() if o != thing}
    return f"You pick up the {thing} from the {receptacle}."


def _put(game: GroundedGame, state: GameState, thing: str, receptacle: str) -> str:
    inside = tuple(sorted({*state.contents[receptacle], thing}, key=game.rank.__getitem__))
    state.contents = {**state.contents, receptacle: inside}
    state.held = tuple(other for other in state.held if other != thing)
    state.full_hands = False
    state.at |= {(thing, state.place)}
    state.taken -= {(thing, receptacle)}
    state.moved = {**state.moved, thing: receptacle}
    return game.wording.put_done.format(o=thing, r=receptacle)


def _mark(mark: str, ended: str, said: str, game: GroundedGame, state: GameState, thing: str, *using: str) -> str:
    state.marks = (state.marks | {(mark, thing)}) - {(ended, thing)}
    return said.format(thing, *using)


def _examine(game: GroundedGame, state: GameState, thing: str) -> str:
    if thing in game.holders:
        return f"This is a normal {thing}. In it, you see {_listed_as_a(game.inner.get(thing, ()))}."
    clean, cool, hot, sliced, used = ((mark, thing) in state.marks for mark in MARKS)
    heat = "hot" if hot else "cool" if cool else ""
    if sliced and (clean or heat):
        return f"This is a {' and '.join(filter(None, (heat, 'clean' if clean else '')))} sliced {thing}."
    if clean and heat:
        return f"This is a {heat} and clean {thing}."
    if hot or clean or cool:
        return f"This is a {'hot' if hot else 'clean' if clean else 'cold'} {thing}."
    if used and game.can(thing, "toggleable"):
        return f"This {thing} is on."
    if sliced and game.can(thing, "sliceable"):
        return f"This is a sliced {thing}."
    return f"There's nothing special about {thing}."


_ACTIONS: dict[str, Callable[..., str]] = {
    "clean": functools.partial(_mark, "isclean", "", "You clean the {} using the {}."),
    "close": _close,
    "cool": functools.partial(_mark, "iscool", "ishot", "You cool the {} using the {}."),
    "examine": _examine,
    "heat": functools.partial(_mark, "ishot", "iscool", "You heat the {} using the {}."),
    "open": _open,
    "put": _put,
    "slice": functools.partial(_mark, "issliced", "", "You sliced the {} with the {}."),
    "take": _take,
    "use": functools.partial(_mark, "istoggled", "", "You turn on the {}."),
}


# -- what the game says ------------------------------------------------------------------------------------------


def _listed(names: tuple[str, ...]) -> str:
    """Write `x`, `x, and y`, `x, y, and z`, or "nothing"."""
    if not names:
        return "nothing"
    return ", ".join(names) if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"


def _listed_as_a(names: tuple[str, ...]) -> str:
    return _listed(tuple(f"a {name}" for name in names))


def _room(receptacles: tuple[str, ...]) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {_listed_as_a(receptacles)}."


def _look(game: GroundedGame, state: GameState) -> str:
    here = game.here.get(state.place)
    if here is None:
        return _room(())
    floor: tuple[str, ...] = ()
    if state.taken:
        things = sorted((thing for thing, place in state.at if place == state.place), key=game.rank.__getitem__)
        floor = tuple(thing for thing in things for receptacle in here if (thing, receptacle) in state.taken)
    return f"You are facing the {_listed(here)}. Next to it, you see {_listed_as_a(floor)}."


def _receptacle(state: GameState, receptacle: str, game: GroundedGame) -> str:
    if receptacle in game.openable:
        if receptacle not in state.opened:
            return f"The {receptacle} is closed."
        return f"The {receptacle} is open. In it, you see {_listed_as_a(state.contents[receptacle])}."
    return f"On the {receptacle}, you see {_listed_as_a(state.contents[receptacle])}."


# -- after a change ----------------------------------------------------------------------------------------------


def _changed(game: GroundedGame, state: GameState, touched: frozenset[str]) -> None:
    if any(kinds & touched for kinds, _ in game.goal):
        state.met = tuple(
            _met(state, alternatives) if kinds & touched else before
            for (kinds, alternatives), before in zip(game.goal, state.met, strict=True)
        )
    _list_commands(game, state)


def _met(state: GameState, alternatives: tuple[tuple[tuple[str, ...], ...], ...]) -> bool:
    for facts in alternatives:
        for fact in facts:
            if not _holds(state, fact):
                break
        else:
            return True
    return False


def _holds(state: GameState, fact: tuple[str, ...]) -> bool:
    kind = fact[0]
    if kind == "inreceptacle":
        return fact[1] in state.contents.get(fact[2], ())
    if kind == "holds":
        return fact[2] in state.held
    if kind == "atlocation":
        return state.place == fact[2]
    if kind == "opened":
        return fact[1] in state.opened
    if kind == "objectatlocation":
        return fact[1:] in state.at
    if kind == "holdsany":
        return state.full_hands
    return fact in state.marks


def _list_commands(game: GroundedGame, state: GameState) -> None:
    """Set the admissible commands: those of the place, and those that depend on what is in it and in hand."""
    local: dict[str, tuple[str, ...]] = {}
    place, held, traits_of = state.place, state.held, game.things.get
    for receptacle in game.here.get(place, ()):
        visible = True
        if receptacle in game.openable:
            visible = receptacle in state.opened
            verb = "close" if visible else "open"
            local[f"{verb} {receptacle}"] = (verb, receptacle)
        for thing in state.contents[receptacle]:
            uses = traits_of(thing, NO_TRAITS).uses
            if visible and not state.full_hands and "pickupable" in uses:
                local[f"take {thing} from {receptacle}"] = ("take", thing, receptacle)
            if "toggleable" in uses:
                local[f"use {thing}"] = ("use", thing)
        for thing in held:
            uses = traits_of(thing, NO_TRAITS).uses
            if visible and game.fits(thing, receptacle):
                local[game.wording.put.format(o=thing, r=receptacle)] = ("put", thing, receptacle)
            if receptacle in game.cleaners and "cleanable" in uses:
                local[f"clean {thing} with {receptacle}"] = ("clean", thing, receptacle)
            if receptacle in game.heaters and "heatable" in uses:
                local[f"heat {thing} with {receptacle}"] = ("heat", thing, receptacle)
            if receptacle in game.coolers and "coolable" in uses:
                local[f"cool {thing} with {receptacle}"] = ("cool", thing, receptacle)
    for thing in held:
        local[f"examine {thing}"] = ("examine", thing)
        if thing in game.tools:
            for other, location in state.at:
                if location == place and game.can(other, "sliceable"):
                    local[f"slice {other} with {thing}"] = ("slice", other, thing)
    if game.odd:  # a thing that is also a receptacle is examined as a receptacle where it stands
        for receptacle in game.here.get(place, ()):
            local.pop(f"examine {receptacle}", None)
    state.local = local
    state.commands = sorted([*game.base(place), *local])
