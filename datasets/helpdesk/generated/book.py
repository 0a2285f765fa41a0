"""Drawing a rule book and writing it down: a section of general rules and one for each act."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws, shuffled
from agent_envs.datasets.helpdesk.generated.domain import PACKAGE, PHRASES, Act, Condition, Domain
from agent_envs.datasets.helpdesk.generated.rules import Chain, Facts, Link, Share
from agent_envs.files import table

BUCKETS = {"train": tuple(range(8)), "validation": (8,), "test": (9,), "twins": (9,), "new": tuple(range(10))}
"""The classes of sections, of ten, that each split may have: so no section of one is in another."""
GENERAL = ("identify", "consent", "refuse", "round", "outside")
OUTSIDE_RULE = f"1.{GENERAL.index('outside') + 1}"
"""The number of the rule that says what to pass on."""
_SHARES = (0, 10, 20, 25, 30, 40, 50, 60, 75, 80, 100)
_SCOPES = {"customer": 5, "item": 5, "catalogue": 2}  # how often a condition is on each


class Level(NamedTuple):
    """What a level of difficulty has."""

    requests: int
    options: int
    links: int
    chains: int
    acts: int
    named: tuple[str, ...]
    """How items may be named: by "number" or by "label"."""
    hidden: bool = False
    amounts: bool = False
    terms: bool = False
    moods: bool = False
    """Whether minds are changed, requests dropped and refusals pleaded against."""
    history: bool = False
    """Whether rules depend on what was done before."""
    devices: int = 0
    """How many faults a device has."""


LEVELS = {int(level): Level(**row) for level, row in table(PACKAGE, "levels.json").items()}


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

    def links(self) -> list[Link]:
        """Return every condition that its rules depend on."""
        return [link for chain in self.chains for link in chain.links] + ([self.share.link] if self.share else [])


class Book(NamedTuple):
    """A rule book."""

    sections: Mapping[str, Section]
    """By the name of the act."""
    text: str


@functools.cache
def frames(key: str, split: str) -> tuple[str, ...]:
    """Return the frames of a kind of sentence; training has not the last tenth of five or more."""
    phrases: tuple[str, ...] = PHRASES[key]
    return phrases[: -(-len(phrases) * 9 // 10) - 1] if split == "train" and len(phrases) >= 5 else phrases


def draw_book(draws: Draws, domain: Domain, level: int, split: str) -> Book:
    """Draw the rules about some acts of a domain and write them down."""
    features = LEVELS[level]
    acts = shuffled(draws, list(domain.acts.values()))[: features.acts]
    earlier = [act.name for act in acts] if features.history else []
    sections = [_section(draws, domain, act, features, split, earlier) for act in acts]
    if features.devices and domain.device:
        short = features._replace(links=2, chains=2)
        acts = shuffled(draws, list(domain.device.acts.values()))[:3]
        sections += [_section(draws, domain, act, short, split, earlier) for act in acts]
    sections = [section._replace(number=number) for number, section in enumerate(sections, 2)]
    return Book({section.act.name: section for section in sections}, _written(draws, domain, sections, features, split))


def _section(draws: Draws, domain: Domain, act: Act, level: Level, split: str, earlier: Collection[str]) -> Section:
    """Draw the rules about an act, which may ask whether `earlier` acts were done; their class is one of the split."""
    while True:
        section = _any_section(draws, domain, act, level, earlier)
        for _ in range(60):
            if section_class(section) in BUCKETS[split]:
                firsts = itertools.accumulate((len(chain.links) for chain in section.chains), initial=1)
                chains = (chain._replace(first=first) for first, chain in zip(firsts, section.chains, strict=False))
                return section._replace(chains=tuple(chains))
            section = _varied(draws, section)


def _any_section(draws: Draws, domain: Domain, act: Act, level: Level, earlier: Collection[str]) -> Section:
    """Draw the rules about an act, not yet numbered."""
    by_scope: dict[str, list[Condition]] = {}
    for found in domain.conditions_of(act):
        by_scope.setdefault(found.scope, []).append(found)
    history = [condition for condition in by_scope.pop("day", []) if condition.field in earlier]
    asked = by_scope.pop("ask", []) * level.hidden
    weighted = [conditions for scope, conditions in by_scope.items() for _ in range(_SCOPES[scope])]
    lengths = shuffled(draws, [level.links, *(draws.between(1, level.links) for _ in range(level.chains - 1))])
    hidden = (-1, -1)  # the place of what the customer is asked: in two of three an even one, where it can bar
    if asked:
        places = range(int(draws.between(1, 3) > 2), level.links, 2)
        hidden = (lengths.index(level.links), draws.pick(places))
    used: set[tuple[str, str]] = set()

    def unused(conditions: Sequence[Condition]) -> Condition | None:
        for condition in (draws.pick(conditions), draws.pick(conditions)):
            if (key := (condition.scope, condition.field)) not in used:
                used.add(key)
                return condition
        return None

    def visible(tries: int) -> Condition | None:
        return next(filter(None, (unused(draws.pick(weighted)) for _ in range(tries))), None)

    chains = []
    for place, length in enumerate(lengths):
        links: list[Link] = []
        for position in range(length):
            seldom = asked if (place, position) == hidden else history * (bool(history) and draws.between(1, 6) == 1)
            condition = (unused(seldom) if seldom else None) or visible(6)
            if condition is None:
                break
            links.append(Link(condition, draws.pick(condition.values)))
        if links:
            chains.append(Chain(1, tuple(links)))
    share = None
    if level.amounts and act.amount is not None and (tested := visible(20)):
        high, low = shuffled(draws, _SHARES)[:2]
        share = Share(Link(tested, draws.pick(tested.values)), high, low)
    return Section(0, act, tuple(chains), share)


def _varied(draws: Draws, section: Section) -> Section:
    """Return a section with another value somewhere, and now and then with its chains in another order."""
    chains = list(section.chains)
    place = draws.between(0, len(chains) - 1)
    links = list(chains[place].links)
    position = draws.between(0, len(links) - 1)
    links[position] = links[position]._replace(value=draws.pick(links[position].condition.values))
    chains[place] = chains[place]._replace(links=tuple(links))
    if draws.between(1, 3) == 1:  # values may be too few: another order is another section, too
        chains = shuffled(draws, chains)
    return section._replace(chains=tuple(chains))


def signature(section: Section) -> str:
    """Return what makes a section the same rules as another: its act, and its chains' conditions with their values."""
    chains = ("|".join(f"{c.scope}.{c.field} {c.test} {value}" for c, value in chain.links) for chain in section.chains)
    return f"{section.act.name}: {'; '.join(chains)}"


def section_class(section: Section) -> int:
    """Return the class of a section's rules, 0 to 9."""
    return int.from_bytes(hashlib.sha256(signature(section).encode()).digest()[:4], "big") % 10


def _written(draws: Draws, domain: Domain, sections: Sequence[Section], level: Level, split: str) -> str:
    terms: dict[str, Link] = {}
    texts = []
    for section in sections:
        act, number, lines = section.act, section.number, list[str]()
        thing = act.object.replace("{item}", f"the {domain.item.noun}")
        words = {"object": thing, "Object": thing[0].upper() + thing[1:], "done": act.done}
        for chain in section.chains:
            for rule, link in enumerate(chain.links, chain.first):
                clause, term = link.condition.clause(link.value), link.condition.term
                if level.terms and term and terms.setdefault(term, link) == link:
                    clause = term
                frame = draws.pick(frames("exception" if rule > chain.first else "bar", split))
                said = frame.format(**words, verb=draws.pick(act.verbs), c=clause, r=f"{number}.{rule - 1}")
                lines.append(f"{number}.{rule} {said}")
        if section.share is not None and act.amount is not None:
            (condition, value), if_so, otherwise = section.share
            words = {"amount": act.amount.name, "of": act.amount.of.replace("_", " "), "c": condition.clause(value)}
            said = draws.pick(frames("amount", split)).format(**words, a=if_so, b=otherwise)
            lines.append(f"{number}.{len(lines) + 1} {said}")
        texts.append("\n".join(lines))
    device = domain.device if level.devices else None
    words = {"customer": domain.customer.noun, "device": device.noun if device else ""}
    keys = (*GENERAL, "device") if device else GENERAL
    general = [f"1.{rule} {draws.pick(PHRASES['general'][key]).format(**words)}" for rule, key in enumerate(keys, 1)]
    if level.terms:
        texts = shuffled(draws, texts)
    defined = [
        f"{len(sections) + 2}.{number} "
        + draws.pick(frames("term", split)).format(term=term, c=link.condition.clause(link.value))
        for number, (term, link) in enumerate(terms.items(), 1)
    ]
    return "\n\n".join(filter(None, ("\n".join(general), *texts, "\n".join(defined))))
