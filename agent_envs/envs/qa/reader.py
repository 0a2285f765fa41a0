"""Reads questions and articles of the generated encyclopaedia.

The reader knows the encyclopaedia's language (the forms of its clauses, phrases and questions) but none of its facts:
all it concludes follows from the text of the question and of the articles that it is given.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent_envs.datasets.qa.generated.encyclopaedia import MONTHS
from agent_envs.datasets.qa.generated.relations import KINDS, RELATIONS
from agent_envs.rewards.short_answers import normalize_answer

RELATIONS_BY_NAME = {relation.name: relation for relation in RELATIONS}

_NAME = r"(?:(?:The|Under the) )?[A-Z][\w-]*(?:(?: of| &)? [A-Z][\w-]*)*"
_NOUNS = "|".join(sorted({noun for kind in KINDS.values() for noun in kind.nouns}))
_MENTION = rf"(?:[Tt]he (?:(?P<noun>{_NOUNS}) )?)?(?P<name>{_NAME})"
_SUBJECT = rf"(?:[Ss]he|[Hh]e|[Ii]t|(?:[Tt]he )?{_NAME})"
_POSSESSIVE = rf"(?:[Hh]er|[Hh]is|[Ii]ts|(?:[Tt]he )?{_NAME}'s)"
_VALUES = {"date": r"\d{1,2} [A-Z][a-z]+ \d{4}", "year": r"\d{4}", "number": r"\d[\d,]*\b", "word": r"[a-z]+"}
_OTHER_NAME = re.compile(r"\(in full ([^)]+)\)|, also known as ([^,]+),|, officially the ([^,]+),")
_LONGEST_QUESTION = 2000


@dataclass(frozen=True, slots=True)
class Mention:
    """A thing as a text mentions it."""

    name: str
    """Its name."""
    noun: str = ""
    """What kind of thing the text calls it, or ""."""


@dataclass(frozen=True, slots=True)
class Side:
    """A thing, and the names of the facts to follow from it."""

    start: Mention
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a question asks for."""

    mode: str
    """Either "value" (of one side), or "first", "last", "below", "same" of two."""
    sides: tuple[Side, ...]
    """One side, or two."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact to find out next."""

    mention: Mention
    """The thing whose article is needed."""
    fact: str
    """The name of the fact to read there."""
    title: str = ""
    """The title of its article if that was seen but did not contain the fact, else ""."""


@functools.lru_cache(maxsize=4096)
def parse_question(question: str) -> Plan | None:
    """Return what a question asks for, or None if its form is unknown.

    >>> plan = parse_question("Who taught the director of the film The Gripom Road?")
    >>> plan.sides[0].start.name, plan.sides[0].facts
    ('The Gripom Road', ('director', 'teacher'))
    """
    if len(question) > _LONGEST_QUESTION:
        return None
    for mode, fact, form in _question_forms():
        match = form.fullmatch(question)
        if match is None:
            continue
        sides = [side for part in match.groups() if (side := _parse_name(part))]
        if len(sides) == form.groups:
            return Plan(mode, tuple(Side(side.start, (*side.facts, fact)) for side in sides))
    return None


@functools.cache
def _question_forms() -> tuple[tuple[str, str, re.Pattern[str]], ...]:
    forms = []
    for r in RELATIONS_BY_NAME.values():
        asked = {"value": r.questions, "first": r.first, "last": r.last, "below": r.below, "same": r.same}
        forms += [(mode, r.name, _pattern(form)) for mode, some in asked.items() for form in some]
    return tuple(forms)


@functools.cache
def _phrase_forms() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((r.name, _pattern(form)) for r in RELATIONS_BY_NAME.values() for form in r.phrases)


def _pattern(form: str) -> re.Pattern[str]:
    """Compile a form, with `{x}` and `{y}` as groups; case is ignored."""
    return re.compile("(.+)".join(map(re.escape, re.split(r"\{[xy]\}", form))), re.IGNORECASE)


def _parse_name(text: str) -> Side | None:
    """Take a noun phrase apart, down to the thing that it names."""
    for fact, form in _phrase_forms():
        match = form.fullmatch(text)
        inner = _parse_name(match[1]) if match else None
        if inner is not None:
            return Side(inner.start, (*inner.facts, fact))
    match = re.fullmatch(_MENTION, text)
    return Side(Mention(match["name"], match["noun"] or ""), ()) if match else None


@functools.cache
def _clause_patterns(fact: str) -> tuple[re.Pattern[str], ...]:
    relation = RELATIONS_BY_NAME[fact]
    wanted = _MENTION if relation.target in KINDS else f"(?P<name>{_VALUES[relation.target]})"
    holes = {"s": _SUBJECT, "p": _POSSESSIVE, "m": "(?:her|him|it)", "o": wanted}
    patterns = []
    for clause in relation.clauses:
        # The article is about its subject, so a subject at the beginning need not be matched.
        parts = re.split(r"\{([spmo])\}", re.sub(r"^\{[sp]\} ", "", clause))
        pattern = "".join(holes[part] if n % 2 else re.escape(part) for n, part in enumerate(parts))
        if pattern[0].islower() and not clause.startswith("{"):
            pattern = f"[{pattern[0].upper()}{pattern[0]}]{pattern[1:]}"
        patterns.append(re.compile(rf"(?<![\w-]){pattern}(?![\w-])"))
    return tuple(patterns)


def read_fact(fact: str, text: str) -> Mention | None:
    """Return what an article says about a fact, or None if it says nothing.

    >>> read_fact("teacher", "Tadan Rirek was a surveyor. She was taught by the lawyer Stadan Brocask in her youth.")
    Mention(name='Stadan Brocask', noun='lawyer')
    """
    for pattern in _clause_patterns(fact):
        if match := pattern.search(text):
            return Mention(match["name"], match.groupdict().get("noun") or "")
    return None


def find_article(mention: Mention, pages: Mapping[str, str]) -> str | None:
    """Return the title of the article about a thing among pages (title to text), or None."""
    wanted = normalize_answer(mention.name)
    for title, text in pages.items():
        base, bracket, noun = title.removesuffix(")").partition(" (")
        if bracket and mention.noun and noun != mention.noun:
            continue
        other = _OTHER_NAME.search(text.partition(". ")[0])
        if wanted == normalize_answer(base) or (other and wanted == normalize_answer(other[other.lastindex or 0])):
            return title
    return None


def solve(plan: Plan, pages: Mapping[str, str]) -> str | tuple[Missing, ...]:
    """Return the answer that the pages (title to text) give, or the missing facts, one for each side."""
    ends = [_follow(side, pages) for side in plan.sides]
    reached = [end for end in ends if not isinstance(end, Missing)]
    if len(reached) < len(ends):
        return tuple(end for end in ends if isinstance(end, Missing))
    subject, value = reached[0]
    if plan.mode == "value":
        return value.name
    other_subject, other_value = reached[1]
    if plan.mode == "same":
        return "yes" if normalize_answer(value.name) == normalize_answer(other_value.name) else "no"
    below = _ordered(value.name) < _ordered(other_value.name)
    if plan.mode == "below":
        return "yes" if below else "no"
    return subject.name if below == (plan.mode == "first") else other_subject.name


def _follow(side: Side, pages: Mapping[str, str]) -> tuple[Mention, Mention] | Missing:
    """Return the last thing of a chain and what its fact says, or the missing fact."""
    subject, here = side.start, side.start
    for fact in side.facts:
        subject, title = here, find_article(here, pages)
        if title is None:
            return Missing(subject, fact)
        read = read_fact(fact, pages[title])
        if read is None:
            return Missing(subject, fact, title)
        here = read
    return subject, here


def _ordered(value: str) -> tuple[int, ...]:
    """Return a date or a number as a tuple that sorts."""
    words = value.replace(",", "").split()
    if len(words) == 3 and words[1] in MONTHS:
        return int(words[2]), MONTHS.index(words[1]), int(words[0])
    return (int(words[0]),)


def queries_for(missing: Missing) -> Iterable[str]:
    """Return different search queries for an article, the most specific first."""
    name, relation = missing.mention.name, RELATIONS_BY_NAME[missing.fact]
    kinds = [KINDS[r.source] for r in RELATIONS if r.name == missing.fact]
    noun = missing.mention.noun or (kinds[0].nouns[0] if len(kinds[0].nouns) == 1 else "")
    cues = " ".join(relation.cues)
    queries = [f"{name} {noun}".strip(), f"{name} {noun} {cues}".strip()]
    if len(kinds) > 1:
        queries.append(" ".join([name, *(kind.nouns[0] for kind in kinds), cues]))
    # The words of first sentences distinguish an article from those whose longer names contain this name.
    queries += [opening.format(s=name, a="", noun=noun) for kind in kinds for opening in kind.openings]
    return dict.fromkeys((*queries, name, f"{name} in full also known as"))
