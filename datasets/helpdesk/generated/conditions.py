"""What a field may be, and what a rule may test of it."""

from __future__ import annotations

from collections.abc import Mapping
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

    def draw(self, draws: Draws) -> Value:
        """Draw a value."""
        ranged = self.kind in ("number", "date")
        return draws.between(int(self.values[0]), int(self.values[1])) if ranged else draws.pick(self.values)


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

    def decides(self, value: Value) -> bool:
        """Return whether the test with a value can hold and can fail."""
        field = self.options
        ranged = field.kind in ("number", "date")
        ends = range(int(field.values[0]), int(field.values[1]) + 1) if ranged else field.values
        return len({self.holds(actual, value) for actual in ends}) == 2

    def draw(self, draws: Draws, value: Value, holds: bool) -> Value:
        """Draw what the field is so that the test holds or fails; integers are beside the border half of the time."""
        field = self.options
        if field.kind in ("words", "flag"):
            return draws.pick([found for found in field.values if self.holds(found, value) == holds])
        low, high = int(field.values[0]), int(field.values[1])
        border = -int(value) if self.test.startswith("days_since") else int(value)
        if self.test == "is":
            if holds:
                return border
            drawn = draws.between(low, high - 1)
            return drawn if drawn < border else drawn + 1
        above = (self.test[-1] == ">") != self.test.startswith("days_since")
        if above == holds:
            low = border + 1 if above else border
            return low if draws.between(0, 1) else draws.between(low, high)
        high = border if above else border - 1
        return high if draws.between(0, 1) else draws.between(low, high)


def value_key(value: Value) -> str:
    """Return a value as the key of an object in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)
