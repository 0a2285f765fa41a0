"""Drawing a rule book and writing it down: a section of general rules and one for each act."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws, shuffled
from agent_envs.datasets.helpdesk.generated.conditions import Condition
from agent_envs.datasets.helpdesk.generated.domain import PHRASES, Act, Domain
from agent_envs.datasets.helpdesk.generated.rules import Chain, Link, Section, Share

BUCKETS: Mapping[str, tuple[int, ...]] = {
    "train": tuple(range(8)),
    "validation": (8,),
    "test": (9,),
    "twins": (9,),
    "new": tuple(range(10)),
}
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
    hidden: bool
    amounts: bool
    terms: bool
    moods: bool
    """Whether minds are changed, requests dropped and refusals pleaded against."""
    history: bool
    """Whether rules depend on what was done before."""
    devices: int
    """How many faults a device has."""


_BY_NUMBER, _EITHER, _BY_LABEL = ("number",), ("number", "label"), ("label",)
LEVELS: Mapping[int, Level] = {
    1: Level(1, 1, 1, 3, 1, _BY_NUMBER, False, False, False, False, False, 0),
    2: Level(1, 1, 2, 4, 2, _EITHER, False, False, False, False, False, 0),
    3: Level(1, 2, 3, 4, 3, _EITHER, True, False, False, False, False, 0),
    4: Level(2, 2, 3, 3, 3, _EITHER, True, True, False, False, False, 0),
    5: Level(2, 2, 4, 3, 4, _EITHER, True, True, True, False, False, 1),
    6: Level(3, 3, 4, 3, 4, _BY_LABEL, True, True, True, True, False, 1),
    7: Level(4, 3, 4, 4, 5, _BY_LABEL, True, True, True, True, True, 2),
    8: Level(6, 3, 5, 4, 6, _BY_LABEL, True, True, True, True, True, 2),
}


class Book(NamedTuple):
    """A rule book."""

    sections: Mapping[str, Section]
    """By the name of the act."""
    text: str


@functools.cache
def frames(key: str, split: str) -> tuple[str, ...]:
    """Return the frames of a kind of sentence; training has not the last tenth of five or more."""
    found: tuple[str, ...] = PHRASES[key]
    return found[: -(-len(found) * 9 // 10) - 1] if split == "train" and len(found) >= 5 else found


def draw_book(draws: Draws, domain: Domain, level: int, split: str) -> Book:
    """Draw the rules about some acts of a domain and write them down."""
    rules = LEVELS[level]
    acts = shuffled(draws, list(domain.acts.values()))[: rules.acts]
    sections = [_section(draws, domain, act, number, rules, split) for number, act in enumerate(acts, 2)]
    if rules.devices and domain.device:
        plain = rules._replace(links=2, chains=2, hidden=False, amounts=False, history=False)
        for act in shuffled(draws, list(domain.device.acts.values()))[:3]:
            sections.append(_section(draws, domain, act, len(sections) + 2, plain, split))
    return Book({section.act.name: section for section in sections}, _written(draws, domain, sections, rules, split))


def _section(draws: Draws, domain: Domain, act: Act, number: int, level: Level, split: str) -> Section:
    """Draw the rules about an act; they are of a class that the split may have."""
    while True:
        if found := _of_class(draws, _any_section(draws, domain, act, number, level), BUCKETS[split]):
            return found


def _any_section(draws: Draws, domain: Domain, act: Act, number: int, level: Level) -> Section:
    by_scope: dict[str, list[Condition]] = {}
    for condition in domain.conditions_of(act):
        by_scope.setdefault(condition.scope, []).append(condition)
    history = by_scope.pop("day", []) if level.history else []
    asked = by_scope.pop("ask", []) if level.hidden else []
    for other in ("ask", "day"):
        by_scope.pop(other, None)
    weights = [scope for scope in by_scope for _ in range(_SCOPES[scope])]
    lengths = [level.links, *(draws.between(1, level.links) for _ in range(level.chains - 1))]
    lengths = shuffled(draws, lengths)
    hidden = (lengths.index(level.links), _hidden_place(draws, level.links)) if asked else (-1, -1)
    used: set[tuple[str, str]] = set()
    chains = []
    for place, length in enumerate(lengths):
        links: list[Link] = []
        for position in range(length):
            if (place, position) == hidden:
                found = _unused(draws, asked, used)
            elif history and draws.between(1, 6) == 1:
                found = _unused(draws, history, used)
            else:
                found = None
            for _ in range(6):
                found = found or _unused(draws, by_scope[draws.pick(weights)], used)
            if found is None:
                break
            links.append(Link(found, draws.pick(found.values)))
        if links:
            chains.append(Chain(1, tuple(links)))
    share = None
    if level.amounts and act.amount is not None:
        for _ in range(20):
            if found := _unused(draws, by_scope[draws.pick(weights)], used):
                high, low = shuffled(draws, _SHARES)[:2]
                share = Share(Link(found, draws.pick(found.values)), high, low)
                break
    return Section(number, act, _numbered(chains), share)


def _hidden_place(draws: Draws, links: int) -> int:
    """Return where a chain asks the customer: at an even place, where the answer can bar, in two of three."""
    places = range(0, links, 2) if draws.between(1, 3) <= 2 else range(1, links, 2)
    return draws.pick(places)


def _unused(draws: Draws, conditions: Sequence[Condition], used: set[tuple[str, str]]) -> Condition | None:
    """Return a condition on a field that the section has not tested, None if there is none."""
    for condition in (draws.pick(conditions), draws.pick(conditions)):
        if (key := (condition.scope, condition.field)) not in used:
            used.add(key)
            return condition
    return None


def _of_class(draws: Draws, section: Section, classes: Sequence[int]) -> Section | None:
    """Return the section with such values that its class is one of those wanted; None if none are found."""
    for _ in range(60):
        if section_class(section) in classes:
            return section
        place = draws.between(0, len(section.chains) - 1)
        chain = section.chains[place]
        position = draws.between(0, len(chain.links) - 1)
        condition = chain.links[position].condition
        links = (*chain.links[:position], Link(condition, draws.pick(condition.values)), *chain.links[position + 1 :])
        chains = (*section.chains[:place], chain._replace(links=links), *section.chains[place + 1 :])
        if draws.between(1, 3) == 1:  # values may be too few: another order is another section, too
            chains = _numbered(shuffled(draws, chains))
        section = section._replace(chains=chains)
    return None


def _numbered(chains: Sequence[Chain]) -> tuple[Chain, ...]:
    firsts = itertools.accumulate((len(chain.links) for chain in chains), initial=1)
    return tuple(Chain(first, chain.links) for first, chain in zip(firsts, chains, strict=False))


def signature(section: Section) -> str:
    """Return what makes a section the same rules as another: its act, and its chains' conditions with their values."""
    chains = ("|".join(f"{c.scope}.{c.field} {c.test} {value}" for c, value in chain.links) for chain in section.chains)
    return f"{section.act.name}: {'; '.join(chains)}"


def section_class(section: Section) -> int:
    """Return the class of a section's rules, 0 to 9."""
    return int.from_bytes(hashlib.sha256(signature(section).encode()).digest()[:4], "big") % 10


def _written(draws: Draws, domain: Domain, sections: Sequence[Section], level: Level, split: str) -> str:
    terms: dict[str, Link] = {}
    texts = [_section_text(draws, domain, section, level, split, terms) for section in sections]
    device = domain.device if level.devices else None
    keys = (*GENERAL, "device") if device else GENERAL
    general = [f"1.{number} {draws.pick(PHRASES['general'][key])}" for number, key in enumerate(keys, 1)]
    head = (
        "\n".join(general)
        .replace("{customer}", domain.customer.noun)
        .replace("{device}", device.noun if device else "")
    )
    if level.terms:
        texts = shuffled(draws, texts)
    defined = [
        f"{len(sections) + 2}.{number} {draws.pick(frames('term', split)).format(term=term, c=link.clause)}"
        for number, (term, link) in enumerate(terms.items(), 1)
    ]
    return "\n\n".join([head, *texts, *(["\n".join(defined)] if defined else [])])


def _section_text(
    draws: Draws, domain: Domain, section: Section, level: Level, split: str, terms: dict[str, Link]
) -> str:
    act, number = section.act, section.number
    thing = act.object.replace("{item}", f"the {domain.item.noun}")
    words = {"object": thing, "Object": thing[0].upper() + thing[1:], "done": act.done}
    lines = []
    for chain in section.chains:
        for place, link in enumerate(chain.links):
            rule = f"{number}.{chain.first + place}"
            clause, condition = link.clause, link.condition
            if level.terms and condition.term and terms.setdefault(condition.term, link) == link:
                clause = condition.term
            frame = draws.pick(frames("exception" if place else "bar", split))
            said = frame.format(**words, verb=draws.pick(act.verbs), c=clause, r=f"{number}.{chain.first + place - 1}")
            lines.append(f"{rule} {said}")
    if section.share is not None and act.amount is not None:
        link, if_so, otherwise = section.share
        names = {"amount": act.amount.name, "of": act.amount.of.replace("_", " ")}
        said = draws.pick(frames("amount", split)).format(**names, c=link.clause, a=if_so, b=otherwise)
        lines.append(f"{number}.{sum(len(chain.links) for chain in section.chains) + 1} {said}")
    return "\n".join(lines)
