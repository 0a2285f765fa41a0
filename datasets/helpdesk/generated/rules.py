"""What the rules of a book mean: chains of a bar and its exceptions, and shares by case.

    2.1 The hire may not be cancelled if the hire starts in fewer than 3 days.    bar
    2.2 Rule 2.1 does not apply if the reason given is illness.                   exception
    2.3 Rule 2.2 does not apply if the member owes more than 10 euros.            exception to the exception

Links are followed from the bar on as long as their conditions hold: an odd number of them bars the act. The reason of a
refusal is the lowest number of a bar whose chain bars. Nothing else decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agent_envs.datasets.helpdesk.generated.domain import Act, Condition, Value


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


class Section(NamedTuple):
    """The rules about one act."""

    number: int
    act: Act
    chains: tuple[Chain, ...]
    share: Share | None

    def reason(self, facts: Facts) -> str:
        """Return the number of the rule that forbids the act, "" if none does."""
        return self.barred_by(self.held(facts))

    def held(self, facts: Facts) -> list[int]:
        """Return how many links of each chain hold, all facts being set."""
        return [chain.counts(facts)[0] for chain in self.chains]

    def barred_by(self, counts: Sequence[int]) -> str:
        """Return the reason if so many links of each chain hold."""
        barring = (chain.first for chain, count in zip(self.chains, counts, strict=True) if count % 2)
        return next((f"{self.number}.{first}" for first in barring), "")

    def links(self) -> Iterator[Link]:
        """Yield every condition that its rules depend on."""
        for chain in self.chains:
            yield from chain.links
        if self.share is not None:
            yield self.share.link
