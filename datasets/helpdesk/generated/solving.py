"""What is right: the wishes of a customer played in order under a book, with the deeds that they call for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from agent_envs.datasets.helpdesk.generated.book import OUTSIDE_RULE, Book, Section
from agent_envs.datasets.helpdesk.generated.domain import Domain
from agent_envs.datasets.helpdesk.generated.rules import Condition, Facts, Value

Rows = dict[str, dict[str, dict[str, Any]]]
"""The rows of each scope ("customer", "item", "catalogue") by id; dates are days from today."""


class Wish(NamedTuple):
    """One thing that a customer would have done."""

    act: str
    item: str
    asks: dict[str, Value]
    """What only the customer knows."""
    told: tuple[str, ...] = ()
    """Which of it is said with the wish."""
    change: Mapping[str, Value] = {}
    """What the customer wants instead once it is offered."""
    question: bool = False
    """Whether the customer asks for the amount."""
    pleas: int = 0
    """How often the customer pleads after a refusal."""

    @property
    def wanted(self) -> dict[str, Value]:
        """What the customer wants in the end."""
        return {**self.asks, **self.change}


class Request(NamedTuple):
    """What a customer calls about: the next wish counts once the one before it has been refused."""

    wishes: tuple[Wish, ...]
    named: str = "number"
    """How the item is named: by "number" or "label"."""
    misread: str = ""
    """The wrong number that is said first, "" if none is."""
    dropped: bool = False
    """Whether the customer thinks better of it once it is offered."""
    outside: str = ""
    """The sentence of a request that no rule is about."""
    trouble: str = ""
    """The sentence of a request about the device; its wishes are what would set it right, on the customer."""
    slack: str = ""
    """What the customer first says to have done and has not, "" for nothing."""


class Deed(NamedTuple):
    """What was done or has to be: an act, a refusal noted with its rule, or a request passed on."""

    kind: str
    """"act", "decline", "transfer", or "press" for what a customer does to the device."""
    act: str = ""
    item: str = ""
    rule: str = ""
    arguments: Mapping[str, Value] = {}
    """What an act was done with, the amount too."""
    told: int | None = None
    """The amount that the customer has to know."""


class Solution(NamedTuple):
    """What is right, and what it takes."""

    deeds: tuple[Deed, ...]
    deciding: int
    """How many rules each change the deeds if they alone are struck out."""
    texts: int
    """How many texts an agent needs that makes no mistake."""


class HelpDeskTask(NamedTuple):
    """One generated conversation's world."""

    task_id: str
    """`helpdesk/SPLIT/LEVELS/INDEX`, with the domains after the levels unless all are drawn from."""
    domain: str
    level: int
    today: date
    shop: str
    book: Book
    rows: Rows
    codes: dict[str, str]
    """The code word of each customer."""
    customer: str
    """Id of the customer who calls."""
    requests: tuple[Request, ...]
    solution: Solution

    @property
    def patience(self) -> int:
        """How many texts the customer listens to: more than an agent needs from whom none is understood."""
        facts = 3 + sum(len(wish.asks) for request in self.requests for wish in request.wishes)
        facts += len(self.rows.get("device", {}).get("device", {}))
        return 2 * self.solution.texts + 2 * facts + 8


class WishFacts:
    """The fields that conditions of a wish test, None where one is not drawn yet. `done` counts each act."""

    def __init__(self, domain: Domain, rows: Rows, customer: str, wish: Wish, done: Mapping[str, int]) -> None:
        item = rows["item"].get(wish.item, {})
        entry = rows["catalogue"].get(item.get(domain.label, ""), {})
        day = {name: done.get(name, 0) for name in domain.acts}
        row = rows["customer"][customer]
        self.rows = {"customer": row, "item": item, "catalogue": entry, "ask": wish.asks, "day": day}

    def __call__(self, condition: Condition) -> Any:
        return self.rows[condition.scope].get(condition.field)


def amount_of(section: Section, item: Mapping[str, Any], facts: Facts) -> int | None:
    """Return the amount that the rules set, None if they set none."""
    amount = section.act.amount
    if section.share is None or amount is None:
        return None
    (condition, value), if_so, otherwise = section.share
    percent = if_so if condition.holds(facts(condition), value) else otherwise
    return int(item[amount.of]) * percent // 100


def solve(domain: Domain, book: Book, rows: Rows, customer: str, requests: Sequence[Request]) -> Solution:
    """Play the requests in order."""
    deeds: list[Deed] = []
    deciding: set[str] = set()
    done: Counter[str] = Counter()
    texts = 1
    for request in requests:
        deeds += [Deed("transfer", rule=OUTSIDE_RULE)] * bool(request.outside)
        texts += bool(request.outside) + bool(request.misread) + 3 * bool(request.trouble)
        for wish in request.wishes:
            section, reason = book.sections.get(wish.act), ""  # what is done to a device may have no rules
            facts = WishFacts(domain, rows, customer, wish, done)
            if section is not None:
                held = section.held(facts)
                reason = section.barred_by(held)
                for place, chain in enumerate(section.chains):
                    for length in range(held[place]):  # what follows a rule in its chain is struck out with it
                        if section.barred_by([*held[:place], length, *held[place + 1 :]]) != reason:
                            deciding.add(f"{section.number}.{chain.first + length}")
            texts += len(wish.asks) > len(wish.told)
            if reason or request.trouble or section is None:
                deeds.append(Deed("decline" if reason else "press", wish.act, wish.item, reason))
                texts += 3 if request.trouble else 1 + wish.pleas
                continue
            texts += 2 + bool(wish.change)
            if not (request.dropped and wish is request.wishes[-1]):
                amount, arguments = amount_of(section, rows["item"][wish.item], facts), wish.wanted
                if amount is not None and section.act.amount is not None:
                    arguments[section.act.amount.name] = amount
                    deciding.add(f"{section.number}.share")
                deeds.append(Deed("act", wish.act, wish.item, "", arguments, amount if wish.question else None))
                done[wish.act] += 1
            break
    return Solution(tuple(deeds), len(deciding), texts)
