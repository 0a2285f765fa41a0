"""What an ALFWorld player knows who has only read: made out of the texts of an episode, nothing else.

Reads both editions of the texts: "You arrive at loc 3. On the shelf 1, you see a vase 2, and a book 1." and
"You arrive at shelf 1. ...".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Errand", "Memory", "class_of", "read_errand", "remember"]

_ERRANDS = (
    (re.compile(r"(?:put|find) two (\w+)(?: and put them)? (?:in|on) (\w+)"), "two", (1, 2, 0)),
    (re.compile(r"(?:look at|examine) (?:the )?(\w+) (?:under|with) the (\w+)"), "look", (1, 0, 2)),
    (re.compile(r"(clean|heat|cool) some (\w+) and put it (?:in|on) (\w+)"), "", (2, 3, 0)),
    (re.compile(r"put an? (clean|hot|cool) (\w+) (?:in|on) (\w+)"), "", (2, 3, 0)),
    (re.compile(r"put (?:an?|some) (\w+) (?:in|on) (\w+)"), "put", (1, 2, 0)),
)
_SEEN = re.compile(r"(?:On the|The) (\w+ \d+)(?: is open. In it)?, you see ([^.]*)\.")
_CLOSED = re.compile(r"The (\w+ \d+) is closed\.")
_CLOSES = re.compile(r"You close the (\w+ \d+)\.")
_TAKES = re.compile(r"You pick up the (\w+ \d+) from the (\w+ \d+)\.")
_PUTS = re.compile(r"You (?:put|move) the (\w+ \d+) (?:in/on|to) the (\w+ \d+)\.")
_CHANGES = re.compile(r"You (clean|heat|cool) the (\w+ \d+) using the (\w+ \d+)\.")
_CARRIES = re.compile(r"You are carrying: an? (\w+ \d+)\.")
_NAME = re.compile(r"\ban? (\w+ \d+)")


@dataclass(frozen=True, slots=True)
class Errand:
    """A task, understood from its words."""

    kind: str
    """"put", "two", "look", "clean", "heat" or "cool"."""
    thing: str
    """The class of the thing, in lower case as in all texts."""
    place: str
    """The class of the place it goes to, "" where there is none."""
    lamp: str
    """The class of the lamp it is looked at under, "" where there is none."""


@dataclass(slots=True)
class Memory:
    """What has been read so far. Names are those of the texts: `cabinet 3`."""

    errand: Errand
    """The task."""
    places: list[str] = field(default_factory=list)
    """The receptacles of the room as first told."""
    contents: dict[str, list[str]] = field(default_factory=dict)
    """Receptacle -> what lies there, for those that have been seen open."""
    closed: set[str] = field(default_factory=set)
    """Receptacles known to be closed now."""
    at: str = ""
    """The receptacle last gone to, "" at the start."""
    holding: str = ""
    """What is carried, "" for nothing."""
    changed: dict[str, set[str]] = field(default_factory=dict)
    """Thing -> "clean", "heat", "cool" as done to it."""
    tried: set[str] = field(default_factory=set)
    """Commands that made nothing happen since something last did."""


def class_of(name: str) -> str:
    """The class in a name.

    >>> class_of("soapbar 12")
    'soapbar'
    """
    return name.rpartition(" ")[0]


def read_errand(text: str) -> Errand | None:
    """The task in a first observation, or None where it is worded in a way of its own.

    >>> read_errand("Your task is to: find two keychain and put them in dresser.")
    Errand(kind='two', thing='keychain', place='dresser', lamp='')
    >>> read_errand("Your task is to: put a hot mug in coffeemachine.").kind
    'heat'
    """
    task = text.partition("Your task is to: ")[2].strip().rstrip(".")
    for pattern, kind, (thing, place, lamp) in _ERRANDS:
        match = pattern.fullmatch(task)
        if match:
            kind = kind or {"hot": "heat"}.get(match[1], match[1])
            return Errand(kind, match[thing], match[place] if place else "", match[lamp] if lamp else "")
    return None


def remember(transcript: Sequence[str]) -> Memory | None:
    """What the texts of an episode tell.

    Args:
        transcript: The first observation, an action, an observation, an action ...

    Returns:
        The memory, or None where the task is not understood.
    """
    errand = read_errand(transcript[0])
    if errand is None:
        return None
    memory = Memory(errand)
    room = transcript[0].partition("you see ")[2].partition("\n")[0]
    memory.places = _NAME.findall(room)
    for step in range(1, len(transcript) - 1, 2):
        _read_step(memory, transcript[step].strip(), transcript[step + 1])
    return memory


def _read_step(memory: Memory, command: str, answer: str) -> None:
    if answer.startswith("Nothing happens"):
        memory.tried.add(command)
        return
    memory.tried.clear()
    if answer.startswith("You arrive at "):
        memory.at = command.removeprefix("go to ").strip()
    for seen in _SEEN.finditer(answer):
        memory.contents[seen[1]] = _NAME.findall(seen[2])
        memory.closed.discard(seen[1])
    match = _CLOSED.search(answer) or _CLOSES.search(answer)
    if match:
        memory.closed.add(match[1])
    elif match := _TAKES.search(answer):
        memory.holding = match[1]
        for there in memory.contents.values():
            if match[1] in there:
                there.remove(match[1])
    elif match := _PUTS.search(answer):
        memory.holding = ""
        memory.contents.setdefault(match[2], []).append(match[1])
    elif match := _CHANGES.search(answer):
        changes = memory.changed.setdefault(match[2], set())
        changes -= {"heat": {"cool"}, "cool": {"heat"}}.get(match[1], set())
        changes.add(match[1])
    elif match := _CARRIES.search(answer):
        memory.holding = match[1]
