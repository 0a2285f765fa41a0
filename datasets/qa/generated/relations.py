"""The kinds of things in the generated encyclopaedia and the facts about them (`kinds.json`, `relations.json`).

A clause of an article has `{s}` for its subject (a name or a pronoun), `{p}` for "her", "its" or "Korvath's", `{m}` for
"her" or "it", and `{o}` for what the fact is about. A phrase refers to that thing from outside, a question asks for it;
both have `{x}` for the subject. Every fact is told in the article of its subject and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_envs.files import table


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that has articles."""

    name: str
    share: int
    """Articles of this kind out of 100."""
    nouns: tuple[str, ...]
    """The noun used in titles' brackets, before its names and in "the film"; for people, their occupations."""
    shapes: tuple[str, ...]
    """Forms of its names: `{w}` is an invented word, `{g}` a given name, `{n}` one of `words`."""
    openings: tuple[str, ...]
    """First sentences: `{s}` is the name, `{a}` the clause with another name (may be empty), `{noun}` a noun."""
    fillers: tuple[str, ...]
    """Sentences that state no fact: `{town}` and `{person}` are unrelated ones."""
    article: bool = False
    """Whether "the" goes before its names in running text."""
    words: tuple[str, ...] = ("",)
    """What `{n}` may be."""
    alias: str = ""
    """The clause of its other name, with `{a}`; "" if it has none."""


KINDS: dict[str, Kind] = {fields["name"]: Kind(**fields) for fields in table(__package__, "kinds.json")}
OCCUPATIONS = KINDS["person"].nouns


@dataclass(frozen=True, slots=True)
class Relation:
    """One fact that every thing of a kind has."""

    name: str
    source: str
    """Kind of its subjects."""
    target: str
    """Kind of what it leads to; "date", "year", "number" and "word" end a chain."""
    clauses: tuple[str, ...]
    """How an article tells it."""
    phrases: tuple[str, ...] = ()
    """How another question refers to it: "the director of {x}"."""
    questions: tuple[str, ...] = ()
    """How it is asked for."""
    cues: tuple[str, ...] = ()
    """Words of which every clause has one."""
    source_half: int | None = None
    """0 or 1 if only the older or the younger half of the people has it."""
    target_half: int | None = None
    """0 or 1 if it leads to the older or the younger half of the people only."""
    same: tuple[str, ...] = ()
    """Yes/no questions whether `{x}` and `{y}` have it in common."""
    first: tuple[str, ...] = ()
    """Questions which of `{x}` and `{y}` has the lower value."""
    last: tuple[str, ...] = ()
    """Questions which of them has the higher value."""
    below: tuple[str, ...] = ()
    """Yes/no questions whether the value of `{x}` is below that of `{y}`."""
    after: tuple[tuple[str, str, int], ...] = ()
    """Of a year: relations, a fact of what each leads to, and how many years later it is at least."""
    least: int = 0
    """The least value of a number, or of a year that comes after nothing."""
    spread: int = 1
    """How many values there are from the least one on."""


RELATIONS: tuple[Relation, ...] = tuple(Relation(**fields) for fields in table(__package__, "relations.json"))
RELATIONS_OF = {kind: tuple(r for r in RELATIONS if r.source == kind) for kind in KINDS}
"""The facts that things of each kind have."""
