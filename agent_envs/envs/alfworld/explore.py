"""An ALFWorld expert that acts only on what it has read, and searches first where a thing usually is; and mistakes."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

from agent_envs.datasets.alfworld.generated.scenes import lamp_weight, placement_weight
from agent_envs.datasets.alfworld.object_classes import OBJECT_CLASSES, OPENABLE, RECEPTACLE_CLASSES
from agent_envs.envs.alfworld.notes import RoomNotes, class_of, read_transcript

EXPERTS = ("explore", "oracle")
"""`explore` acts only on what it has read, as a policy does; `oracle` sees the whole state."""

_MISTAKES = (("go to ", 0.55), ("examine ", 0.1), ("open ", 0.1), ("take ", 0.1), ("close ", 0.05), ("", 0.1))

_TAKE = re.compile(r"take (\w+ \d+) from (\w+ \d+)")
_PUT = re.compile(r"(?:put|move) (\w+ \d+) (?:in/on|to) (\w+ \d+)")
_OBJECTS = {name.lower(): name for name in OBJECT_CLASSES}
_RECEPTACLES = {name.lower(): name for name in RECEPTACLE_CLASSES}
_OPENABLE = frozenset(name.lower() for name in OPENABLE)
_APPLIANCES = {"clean": ("sinkbasin", "sink"), "heat": ("microwave",), "cool": ("fridge",)}


def explore_action(transcript: Sequence[str], admissible: Sequence[str]) -> str | None:
    """Return the next command, or None if the task's wording is unknown."""
    notes = read_transcript(transcript)
    return None if notes is None else _Player(notes, admissible).decide()


class _Player:
    """One decision."""

    def __init__(self, notes: RoomNotes, admissible: Sequence[str]) -> None:
        self.notes = notes
        self.errand = notes.errand
        self.can = {command: None for command in admissible if command not in notes.tried}

    def decide(self) -> str:
        notes, errand = self.notes, self.errand
        if not notes.holding:
            return self._fetch()
        if class_of(notes.holding) != errand.thing:
            return self._drop()
        if errand.kind in _APPLIANCES and errand.kind not in notes.changed.get(notes.holding, ()):
            return self._change()
        if errand.kind == "look":
            return self._light()
        return self._deliver()

    # -- the steps of a task -------------------------------------------------------------------------------------

    def _fetch(self) -> str:
        """Take a thing of the class that the task asks for, or look for one."""
        spared = self._kept()
        takes = (match.groups() for command in self.can if (match := _TAKE.fullmatch(command)))
        for thing, place in takes:
            if class_of(thing) == self.errand.thing and place != spared:
                return f"take {thing} from {place}"
        reachable = [
            place
            for place, things in self.notes.contents.items()
            if place != spared and any(class_of(t) == self.errand.thing for t in things)
            if place != self.notes.at or place in self.notes.closed
        ]
        if reachable:
            place = min(reachable, key=self._cost)
            return f"open {place}" if f"open {place}" in self.can else f"go to {place}"
        return self._search(self.errand.thing)

    def _change(self) -> str:
        """Clean, heat or cool what is held."""
        if commands := self._starting(f"{self.errand.kind} {self.notes.holding} with "):
            return commands[0]
        for place in self.notes.places:
            if place != self.notes.at and class_of(place) in _APPLIANCES[self.errand.kind]:
                return f"go to {place}"
        return self._idle()

    def _light(self) -> str:
        """Turn on a lamp while the thing is held."""
        for command in self._starting("use "):
            if class_of(command[4:]) == self.errand.lamp:
                return command
        for place, things in self.notes.contents.items():
            if place != self.notes.at and any(class_of(thing) == self.errand.lamp for thing in things):
                return f"go to {place}"
        return self._search(self.errand.lamp)

    def _deliver(self) -> str:
        """Put what is held where it belongs; the second of two things goes beside the first."""
        held, kept = self.notes.holding, self._kept()
        places = [kept] if kept else [p for p in self.notes.places if class_of(p) == self.errand.place]
        for place in places:
            for command in (f"move {held} to {place}", f"put {held} in/on {place}"):
                if command in self.can:
                    return command
        if here := [place for place in places if f"open {place}" in self.can]:
            return f"open {here[0]}"
        elsewhere = [place for place in places if place != self.notes.at]
        return f"go to {min(elsewhere, key=self._cost)}" if elsewhere else self._idle()

    def _drop(self) -> str:
        """Put down a thing that is not needed."""
        held = self.notes.holding
        avoided = (self.errand.place,) if class_of(held) == self.errand.thing else ()
        for command in self.can:
            put = _PUT.fullmatch(command)
            if put and put[1] == held and class_of(put[2]) not in avoided:
                return command
        homes = [
            place
            for place in self.notes.places
            if place != self.notes.at
            and class_of(place) not in avoided
            and placement_weight(_OBJECTS.get(class_of(held), ""), _RECEPTACLES.get(class_of(place), ""))
        ]
        return f"go to {min(homes, key=self._cost)}" if homes and not self._starting("open ") else self._idle()

    # -- searching -----------------------------------------------------------------------------------------------

    def _search(self, wanted: str) -> str:
        """Look next where a thing of a class is most likely to be found for the least effort."""
        best, best_rate = "", 0.0
        for place in self.notes.places:
            if place in self.notes.contents:
                continue
            command, effort = f"go to {place}", 2.0 if class_of(place) in _OPENABLE else 1.0
            if f"open {place}" in self.can:
                command, effort = f"open {place}", 1.0
            elif f"examine {place}" in self.can and place != self.notes.at:
                command, effort = f"examine {place}", 1.0
            rate = _weight(wanted, class_of(place)) / effort
            if rate > best_rate and command not in self.notes.tried:
                best, best_rate = command, rate
        return best or self._idle()

    def _idle(self) -> str:
        """Return a command for when nothing is left to try: look again at the first places."""
        if commands := self._starting("open "):
            return commands[0]
        return next((f"go to {place}" for place in self.notes.places if place != self.notes.at), "look")

    def _starting(self, start: str) -> list[str]:
        return [command for command in self.can if command.startswith(start)]

    # -- what is known -------------------------------------------------------------------------------------------

    def _kept(self) -> str:
        """Return where the first of two things was put, so that the other goes there too; "" if none was."""
        if self.errand.kind != "two":
            return ""
        counts = {
            place: sum(class_of(thing) == self.errand.thing for thing in things)
            for place, things in self.notes.contents.items()
            if class_of(place) == self.errand.place
        }
        best = max(counts, key=lambda place: counts[place], default="")
        return best if best and counts[best] else ""

    def _cost(self, place: str) -> tuple[int, int]:
        shut = place in self.notes.closed or (place not in self.notes.contents and class_of(place) in _OPENABLE)
        return (0 if place == self.notes.at else 1) + shut, self.notes.places.index(place)


@functools.cache
def _weight(wanted: str, place: str) -> float:
    """Return how likely a place of a class holds a thing of a class (a relative weight); names are in lower case."""
    receptacle = _RECEPTACLES.get(place, "")
    if wanted.endswith("lamp"):
        return lamp_weight(receptacle)
    return placement_weight(_OBJECTS.get(wanted, ""), receptacle) or (0.01 if place in _OPENABLE else 0.1)


def wrong_command(rng: np.random.Generator, admissible: Sequence[str], right: str) -> str:
    """Return an admissible command other than the right one, most often a `go to`.

    >>> wrong_command(np.random.default_rng(0), ["go to bed 1", "go to desk 1"], "go to bed 1")
    'go to desk 1'
    """
    some = []
    for start, weight in _MISTAKES:
        known = [each for each in admissible if each.startswith(start)] if start else ["look", "inventory"]
        if commands := [each for each in known if each != right and each in admissible]:
            some.append((commands, weight))
    if not some:
        return right
    weights = np.array([weight for _, weight in some])
    commands = some[int(rng.choice(len(some), p=weights / weights.sum()))][0]
    return commands[int(rng.integers(len(commands)))]
