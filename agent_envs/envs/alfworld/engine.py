"""ALFWorld's state machine in plain Python: what a command does, what the game answers, which commands it takes.

It says what the original says, command for command, and lists the same commands in the same order:

- A command is looked up among the admissible ones after blanks around it are stripped; any other is answered by
  "Nothing happens." and changes nothing.
- What is listed is sorted by the identifiers in the game file, not by the names shown; commands are sorted as text.
- `go to X` is admissible where it leads elsewhere: not for what stands at the agent's own place.
- `examine X` is admissible for the receptacles at the agent's place and for what is in hand, not for what lies about:
  the domain's rule for that names a type that does not exist (`location,` with its comma).
- Things on the floor, which `look` lists, are those whose place is here and that were once taken out of a receptacle
  here and are not back in it.
- A device once used counts as on for ever; using it again says so again.

Episodes are `GameState`s over one shared `House`; `copy` branches them. Nothing that changes is shared between
episodes: threads need no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_envs.envs.alfworld.game import MARKS, House

__all__ = ["NOTHING", "GameState", "begin", "intro", "play"]

NOTHING = "Nothing happens."
"""The answer to what is not admissible."""

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


class GameState:
    """Everything that changes in a game; `copy` and pickle are cheap."""

    __slots__ = (
        "at",
        "commands",
        "contents",
        "full_hands",
        "held",
        "local",
        "marks",
        "met",
        "moved",
        "opened",
        "place",
        "taken",
    )

    place: str
    """Identifier of the agent's place."""
    contents: dict[str, tuple[str, ...]]
    """What is in each receptacle, in the order of listing."""
    opened: frozenset[str]
    """Receptacles that are open."""
    held: tuple[str, ...]
    """What the agent carries."""
    full_hands: bool
    """Whether the agent can take nothing more."""
    at: frozenset[tuple[str, str]]
    """Things and the places they are at."""
    taken: frozenset[tuple[str, str]]
    """Things and the receptacles they were taken out of and are not back in."""
    marks: frozenset[tuple[str, str]]
    """What things have become: ("isclean", thing) and so on."""
    moved: dict[str, str]
    """Where things are that were put somewhere."""
    met: tuple[bool, ...]
    """Which of the goal's conditions hold."""
    commands: list[str]
    """The admissible commands, sorted. Not to be changed in place."""
    local: dict[str, tuple[str, ...]]
    """What those commands mean that depend on more than the place."""

    def copy(self) -> GameState:
        """A state that goes its own way from here."""
        twin = GameState.__new__(GameState)
        for name in GameState.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    # Every attribute is replaced, never changed in place: sharing them is safe.
    def __deepcopy__(self, memo: dict[int, Any]) -> GameState:
        return self.copy()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in GameState.__slots__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GameState):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in GameState.__slots__)

    __hash__ = None  # type: ignore[assignment]

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return all(self.met)


def begin(house: House) -> GameState:
    """The state a game starts in."""
    state = GameState()
    state.place = house.start
    state.contents = house.contents
    state.opened = house.opened
    state.held = house.held
    state.full_hands = house.full_hands
    state.at = house.at
    state.taken = frozenset()
    state.marks = house.marks
    state.moved = {}
    state.met = tuple(_met(state, alternatives) for _, alternatives in house.goal)
    _list_commands(house, state)
    return state


def intro(house: House, state: GameState) -> str:
    """The game's first words."""
    view = _look(house, state) if state.place in house.here else _room(house.receptacles)
    return f"-= Welcome to TextWorld, ALFRED! =-\n\n{view}\n\nYour task is to: {house.task}."


def play(house: House, state: GameState, command: str) -> str:
    """Carry out a command: `state` changes, the answer is returned."""
    command = command.strip()
    action = state.local.get(command)
    if action is None:
        receptacle = house.go.get(command)
        if receptacle is not None:
            return _go(house, state, receptacle)
        return _glance(house, state, command)
    verb = action[0]
    answer = _ACTIONS[verb](house, state, *action[1:])
    touched = _TOUCHED.get(verb)
    if touched is not None:
        _changed(house, state, touched)
    return answer


# -- what commands do --------------------------------------------------------------------------------------------


def _go(house: House, state: GameState, receptacle: str) -> str:
    target = house.target(receptacle, state.place)
    if target is None:
        return NOTHING
    state.place = target
    _changed(house, state, _TOUCHED["go"])
    arrival = house.wording.arrive.format(r=receptacle, lend=house.names[target])
    return arrival + _receptacle(state, receptacle, house)


def _glance(house: House, state: GameState, command: str) -> str:
    """The commands that change nothing and depend on the place alone."""
    if command == "look":
        return _look(house, state)
    if command == "inventory":
        return _inventory(house, state)
    if command == "help" and house.wording.help is not None:
        return house.wording.help
    if command.startswith("examine "):
        name = command[8:]
        if name in house.here.get(state.place, ()):
            return _receptacle(state, name, house)
    return NOTHING


def _open(house: House, state: GameState, receptacle: str) -> str:
    state.opened |= {receptacle}
    return f"You open the {receptacle}. {_receptacle(state, receptacle, house)}"


def _close(house: House, state: GameState, receptacle: str) -> str:
    state.opened -= {receptacle}
    return f"You close the {receptacle}."


def _take(house: House, state: GameState, thing: str, receptacle: str) -> str:
    left = tuple(other for other in state.contents[receptacle] if other != thing)
    state.contents = {**state.contents, receptacle: left}
    state.held = tuple(sorted({*state.held, thing}, key=house.rank.__getitem__))
    state.full_hands = True
    state.at -= {(thing, state.place)}
    state.taken |= {(thing, receptacle)}
    if state.moved.get(thing) == receptacle:
        state.moved = {o: r for o, r in state.moved.items() if o != thing}
    return f"You pick up the {thing} from the {receptacle}."


def _put(house: House, state: GameState, thing: str, receptacle: str) -> str:
    inside = tuple(sorted({*state.contents[receptacle], thing}, key=house.rank.__getitem__))
    state.contents = {**state.contents, receptacle: inside}
    state.held = tuple(other for other in state.held if other != thing)
    state.full_hands = False
    state.at |= {(thing, state.place)}
    state.taken -= {(thing, receptacle)}
    state.moved = {**state.moved, thing: receptacle}
    return house.wording.put_done.format(o=thing, r=receptacle)


def _clean(house: House, state: GameState, thing: str, receptacle: str) -> str:
    state.marks |= {("isclean", thing)}
    return f"You clean the {thing} using the {receptacle}."


def _heat(house: House, state: GameState, thing: str, receptacle: str) -> str:
    state.marks = (state.marks | {("ishot", thing)}) - {("iscool", thing)}
    return f"You heat the {thing} using the {receptacle}."


def _cool(house: House, state: GameState, thing: str, receptacle: str) -> str:
    state.marks = (state.marks | {("iscool", thing)}) - {("ishot", thing)}
    return f"You cool the {thing} using the {receptacle}."


def _use(house: House, state: GameState, thing: str) -> str:
    state.marks |= {("istoggled", thing)}
    return f"You turn on the {thing}."


def _slice(house: House, state: GameState, thing: str, knife: str) -> str:
    state.marks |= {("issliced", thing)}
    return f"You sliced the {thing} with the {knife}."


def _examine(house: House, state: GameState, thing: str) -> str:
    if thing in house.holders:
        return f"This is a normal {thing}. In it, you see {_listed_as_a(house.inner.get(thing, ()))}."
    clean, cool, hot, sliced, used = ((mark, thing) in state.marks for mark in MARKS)
    heat = "hot" if hot else "cool" if cool else ""
    if sliced and (clean or heat):
        return f"This is a {' and '.join(filter(None, (heat, 'clean' if clean else '')))} sliced {thing}."
    if clean and heat:
        return f"This is a {heat} and clean {thing}."
    if hot or clean or cool:
        return f"This is a {'hot' if hot else 'clean' if clean else 'cold'} {thing}."
    if used and thing in house.uses["toggleable"]:
        return f"This {thing} is on."
    if sliced and thing in house.uses["sliceable"]:
        return f"This is a sliced {thing}."
    return f"There's nothing special about {thing}."


_ACTIONS: dict[str, Callable[..., str]] = {
    "clean": _clean,
    "close": _close,
    "cool": _cool,
    "examine": _examine,
    "heat": _heat,
    "open": _open,
    "put": _put,
    "slice": _slice,
    "take": _take,
    "use": _use,
}


# -- what the game says ------------------------------------------------------------------------------------------


def _listed(names: tuple[str, ...]) -> str:
    """`x`, `x, and y`, `x, y, and z`; "nothing" for nothing."""
    if not names:
        return "nothing"
    return ", ".join(names) if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"


def _listed_as_a(names: tuple[str, ...]) -> str:
    return _listed(tuple(f"a {name}" for name in names))


def _room(receptacles: tuple[str, ...]) -> str:
    view = _listed_as_a(receptacles)
    return f"You are in the middle of a room. Looking quickly around you, you see {view}."


def _look(house: House, state: GameState) -> str:
    here = house.here.get(state.place)
    if here is None:
        return _room(())
    floor: tuple[str, ...] = ()
    if state.taken:
        things = sorted((thing for thing, place in state.at if place == state.place), key=house.rank.__getitem__)
        floor = tuple(thing for thing in things for receptacle in here if (thing, receptacle) in state.taken)
    return f"You are facing the {_listed(here)}. Next to it, you see {_listed_as_a(floor)}."


def _receptacle(state: GameState, receptacle: str, house: House) -> str:
    if receptacle in house.openable:
        if receptacle not in state.opened:
            return f"The {receptacle} is closed."
        return f"The {receptacle} is open. In it, you see {_listed_as_a(state.contents[receptacle])}."
    return f"On the {receptacle}, you see {_listed_as_a(state.contents[receptacle])}."


def _inventory(house: House, state: GameState) -> str:
    if not state.full_hands:
        return "You are not carrying anything."
    return f"You are carrying: {_listed_as_a(state.held)}."


# -- after a change ----------------------------------------------------------------------------------------------


def _changed(house: House, state: GameState, touched: frozenset[str]) -> None:
    met = state.met
    if any(kinds & touched for kinds, _ in house.goal):
        state.met = tuple(
            _met(state, alternatives) if kinds & touched else before
            for (kinds, alternatives), before in zip(house.goal, met, strict=True)
        )
    _list_commands(house, state)


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


def _list_commands(house: House, state: GameState) -> None:
    """Find the admissible commands: those of the place, and those that depend on what is in it and in hand."""
    local: dict[str, tuple[str, ...]] = {}
    place, held, uses = state.place, state.held, house.uses
    pickupable, toggleable = uses["pickupable"], uses["toggleable"]
    for receptacle in house.here.get(place, ()):
        visible = True
        if receptacle in house.openable:
            visible = receptacle in state.opened
            verb = "close" if visible else "open"
            local[f"{verb} {receptacle}"] = (verb, receptacle)
        for thing in state.contents[receptacle]:
            if visible and not state.full_hands and thing in pickupable:
                local[f"take {thing} from {receptacle}"] = ("take", thing, receptacle)
            if thing in toggleable:
                local[f"use {thing}"] = ("use", thing)
        for thing in held:
            if visible and house.fits(thing, receptacle):
                local[house.wording.put.format(o=thing, r=receptacle)] = ("put", thing, receptacle)
            if receptacle in house.cleaners and thing in uses["cleanable"]:
                local[f"clean {thing} with {receptacle}"] = ("clean", thing, receptacle)
            if receptacle in house.heaters and thing in uses["heatable"]:
                local[f"heat {thing} with {receptacle}"] = ("heat", thing, receptacle)
            if receptacle in house.coolers and thing in uses["coolable"]:
                local[f"cool {thing} with {receptacle}"] = ("cool", thing, receptacle)
    for thing in held:
        local[f"examine {thing}"] = ("examine", thing)
        if thing in house.tools:
            for other, location in state.at:
                if location == place and other in uses["sliceable"]:
                    local[f"slice {other} with {thing}"] = ("slice", other, thing)
    if house.odd:  # a thing may be a receptacle too: examined as such where it stands
        for receptacle in house.here.get(place, ()):
            local.pop(f"examine {receptacle}", None)
    state.local = local
    state.commands = sorted([*house.base(place), *local])
