"""What the rules of a book mean: chains of a bar and its exceptions, and shares by case.

    2.1 The hire may not be cancelled if the hire starts in fewer than 3 days.    bar
    2.2 Rule 2.1 does not apply if the reason given is illness.                   exception
    2.3 Rule 2.2 does not apply if the member owes more than 10 euros.            exception to the exception

Links are followed from the bar on as long as their conditions hold: an odd number of them bars the act. The reason of a
refusal is the lowest number of a bar whose chain bars. Nothing else decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, lt
from typing import Any, NamedTuple

from agent_envs.datasets.generated_tasks import Draws

Value = str | int | bool
"""A value of a row; a date is its distance from today in days until the row is shown."""
_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {"is": eq, ">": gt, "<": lt, ">=": ge}


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
        numbers = self.kind in ("number", "date")
        return range(int(self.values[0]), int(self.values[1]) + 1) if numbers else self.values


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
        past = self.test.startswith("days_since")  # dates are counted from today on
        return _TESTS[self.test.rpartition(" ")[2]](-int(actual) if past else actual, value)

    def draw(self, draws: Draws, value: Value, holds: bool) -> Value:
        """Draw what the field is so that the test holds or fails; integers are beside the border half of the time."""
        possible = self.options.possible
        if not isinstance(possible, range):
            return draws.pick([found for found in possible if self.holds(found, value) == holds])
        past = self.test.startswith("days_since")
        above = (self.test[-1] == ">") != past
        border = (-int(value) if past else int(value)) + above
        if above == holds:
            return border if draws.between(0, 1) else draws.between(border, possible[-1])
        return border - 1 if draws.between(0, 1) else draws.between(possible[0], border - 1)


def value_key(value: Value) -> str:
    """Return a value as the key of an object in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Link(NamedTuple):
    """A condition with the value that it compares with."""

    condition: Condition
    value: Value


Facts = Callable[[Condition], Any]
"""What the field of a condition is; None while it is not drawn."""


class Chain(NamedTuple):
    """A bar and its exceptions."""

    first: int
    """The number of the bar in its section; the exceptions follow it."""
    links: tuple[Link, ...]

    def counts(self, facts: Facts) -> list[int]:
        """Return how many links may hold before the first that fails: one number once all facts are set."""
        possible = []
        for count, (condition, value) in enumerate(self.links):
            if (actual := facts(condition)) is None or not condition.holds(actual, value):
                possible.append(count)
                if actual is not None:
                    return possible
        return [*possible, len(self.links)]


class Share(NamedTuple):
    """The rule of an amount: one of two shares in percent."""

    link: Link
    if_so: int
    otherwise: int
