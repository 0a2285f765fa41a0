"""What a player knows of an ALFWorld episode from its texts alone.

Both editions of the texts are read: "You arrive at loc 3. On the shelf 1, you see a vase 2, and a book 1." and
"You arrive at shelf 1. ...".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """A task as its words describe it."""

    kind: str
    """"put", "two", "look", "clean", "heat" or "cool"."""
    thing: str
    """The class of the thing, in lower case as in all texts."""
    place: str
    """The class of the place it goes to, or ""."""
    lamp: str
    """The class of the lamp to look at it under, or ""."""


@dataclass(slots=True)
class RoomNotes:
    """What the texts have told so far. Names are as in the texts: `cabinet 3`."""

    errand: Errand
    """The task."""
    places: list[str] = field(default_factory=list)
    """The receptacles of the room, in the order of the first observation."""
    contents: dict[str, list[str]] = field(default_factory=dict)
    """The things in each receptacle that was seen open."""
    closed: set[str] = field(default_factory=set)
    """The receptacles known to be closed."""
    at: str = ""
    """The receptacle that the agent went to last, "" at the start."""
    holding: str = ""
    """The thing in hand, or ""."""
    changed: dict[str, set[str]] = field(default_factory=dict)
    """What was done to each thing: "clean", "heat", "cool"."""
    tried: set[str] = field(default_factory=set)
    """The commands that had no effect since the last one that had."""


def class_of(name: str) -> str:
    """Return the class part of a name.

    >>> class_of("soapbar 12")
    'soapbar'
    """
    return name.rpartition(" ")[0]


def read_errand(text: str) -> Errand | None:
    """Return the task in a first observation, or None if its wording is unknown.

    >>> read_errand("Your task is to: find two keychain and put them in dresser.")
    Errand(kind='two', thing='keychain', place='dresser', lamp='')
    >>> read_errand("Your task is to: put a hot mug in coffeemachine.").kind
    'heat'
    """
    task = text.partition("Your task is to: ")[2].strip().rstrip(".")
    for pattern, kind, (thing, place, lamp) in _ERRANDS:
        if match := pattern.fullmatch(task):
            kind = kind or {"hot": "heat"}.get(match[1], match[1])
            return Errand(kind, match[thing], match[place] if place else "", match[lamp] if lamp else "")
    return None


def read_transcript(transcript: Sequence[str]) -> RoomNotes | None:
    """Return what the texts of an episode tell, or None if the wording of the task is unknown."""
    errand = read_errand(transcript[0])
    if errand is None:
        return None
    room = transcript[0].partition("you see ")[2].partition("\n")[0]
    notes = RoomNotes(errand, places=_NAME.findall(room))
    for step in range(1, len(transcript) - 1, 2):
        _read_step(notes, transcript[step].strip(), transcript[step + 1])
    return notes


def _read_step(notes: RoomNotes, command: str, answer: str) -> None:
    if answer.startswith("Nothing happens"):
        notes.tried.add(command)
        return
    notes.tried.clear()
    if answer.startswith("You arrive at "):
        notes.at = command.removeprefix("go to ").strip()
    for seen in _SEEN.finditer(answer):
        notes.contents[seen[1]] = _NAME.findall(seen[2])
        notes.closed.discard(seen[1])
    if match := _CLOSED.search(answer) or _CLOSES.search(answer):
        notes.closed.add(match[1])
    elif match := _TAKES.search(answer):
        notes.holding = match[1]
        for there in notes.contents.values():
            if match[1] in there:
                there.remove(match[1])
    elif match := _PUTS.search(answer):
        notes.holding = ""
        notes.contents.setdefault(match[2], []).append(match[1])
    elif match := _CHANGES.search(answer):
        changes = notes.changed.setdefault(match[2], set())
        changes -= {"heat": {"cool"}, "cool": {"heat"}}.get(match[1], set())
        changes.add(match[1])
    elif match := _CARRIES.search(answer):
        notes.holding = match[1]
