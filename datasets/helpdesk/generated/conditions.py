"""What a field may be, and what a rule may test of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws

Value = str | int | bool
"""A value of a row; a date is its distance from today in days until the row is shown."""


class Field(NamedTuple):
    """What a field of a row may be: one of some values, or an integer in a range (of days from today, for a date)."""

    name: str
    kind: str
    """"words", "flag", "number" or "date"."""
    values: tuple[Value, ...]
    """The words, or the lowest and the highest integer."""

    @property
    def possible(self) -> Sequence[Value]:
        """All values that it may have."""
        if self.kind in ("number", "date"):
            return range(int(self.values[0]), int(self.values[1]) + 1)
        return self.values


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """What a rule may depend on: a test of one field with one of several values."""

    scope: str
    """"customer", "item", "catalogue", "ask" or "day"."""
    field: str
    test: str
    values: tuple[Value, ...]
    say: str | Mapping[str, str]
    term: str
    acts: tuple[str, ...]
    options: Field
    """What the field may be."""

    def clause(self, value: Value) -> str:
        """Return the words for the test with a value."""
        return self.say.replace("{n}", str(value)) if isinstance(self.say, str) else self.say[value_key(value)]

    def holds(self, actual: Value, value: Value) -> bool:
        """Return whether a field that is `actual` meets the test with a value."""
        if self.test == "is":
            return actual == value
        number = -int(actual) if self.test.startswith("days_since") else int(actual)
        sign = self.test[-1]
        return number > int(value) if sign == ">" else number < int(value) if sign == "<" else number >= int(value)

    def draw(self, draws: Draws, value: Value, holds: bool) -> Value:
        """Draw what the field is so that the test holds or fails; integers are beside the border half of the time."""
        possible = self.options.possible
        if not isinstance(possible, range):
            return draws.pick([found for found in possible if self.holds(found, value) == holds])
        past = self.test.startswith("days_since")  # dates are counted from today on
        above = (self.test[-1] == ">") != past
        border = (-int(value) if past else int(value)) + above
        if above == holds:
            return border if draws.between(0, 1) else draws.between(border, possible[-1])
        return border - 1 if draws.between(0, 1) else draws.between(possible[0], border - 1)


def value_key(value: Value) -> str:
    """Return a value as the key of an object in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
