"""Kinds of things in the generated encyclopaedia: their names, first sentences and sentences that state no fact.

The kinds are in `kinds.json`, and the facts about them in `relations.json`.
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
