"""What the rules of a book mean: chains of a bar and its exceptions, and shares by case.

    2.1 The hire may not be cancelled if the hire starts in fewer than 3 days.    bar
    2.2 Rule 2.1 does not apply if the reason given is illness.                   exception
    2.3 Rule 2.2 does not apply if the member owes more than 10 euros.            exception to the exception

Links are followed from the bar on as long as their conditions hold: an odd number of them bars the act. The reason of a
refusal is the lowest number of a bar whose chain bars. Nothing else decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent_envs.datasets.helpdesk.generated.conditions import Condition, Value
from agent_envs.datasets.helpdesk.generated.domain import Act


class Link(NamedTuple):
    """A condition with the value that it compares with."""

    condition: Condition
    value: Value

    @property
    def clause(self) -> str:
        """Its words."""
        return self.condition.clause(self.value)

    def holds(self, actual: Value) -> bool:
        """Return whether a field that is `actual` meets it."""
        return self.condition.holds(actual, self.value)


Facts = Callable[[Condition], Value]
"""What the field of a condition is."""


class Chain(NamedTuple):
    """A bar and its exceptions."""

    first: int
    """The number of the bar in its section; the exceptions follow it."""
    links: tuple[Link, ...]

    def count(self, facts: Facts) -> int:
        """Return how many links hold before the first that fails."""
        for count, (condition, value) in enumerate(self.links):
            if not condition.holds(facts(condition), value):
                return count
        return len(self.links)


class Share(NamedTuple):
    """The rule of an amount: one of two shares in percent."""

    link: Link
    if_so: int
    otherwise: int

    def percent(self, facts: Facts) -> int:
        """Return the share that the facts call for."""
        return self.if_so if self.link.holds(facts(self.link.condition)) else self.otherwise


class Section(NamedTuple):
    """The rules about one act."""

    number: int
    act: Act
    chains: tuple[Chain, ...]
    share: Share | None

    def reason(self, facts: Facts) -> str:
        """Return the number of the rule that forbids the act, "" if none does."""
        for chain in self.chains:
            if chain.count(facts) % 2:
                return f"{self.number}.{chain.first}"
        return ""

    def links(self) -> Iterator[Link]:
        """Yield every condition that its rules depend on."""
        for chain in self.chains:
            yield from chain.links
        if self.share is not None:
            yield self.share.link
