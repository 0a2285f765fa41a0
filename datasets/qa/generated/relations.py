"""Facts of the generated encyclopaedia about people, towns, regions, countries and rivers, and the words for them.

A clause of an article has `{s}` for its subject (a name or a pronoun), `{p}` for "her", "its" or "Korvath's", `{m}` for
"her" or "it", and `{o}` for what the fact is about. A phrase names that thing from outside, a question asks for it;
both have `{x}` for the subject. Every fact is told in the article of its subject and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PEOPLE_AND_PLACES", "Relation"]


@dataclass(frozen=True, slots=True)
class Relation:
    """One fact that every thing of a kind has."""

    name: str
    """What it is called."""
    source: str
    """Kind of its subjects."""
    target: str
    """Kind of what it leads to; "date", "year", "number" and "word" end a chain."""
    clauses: tuple[str, ...]
    """How an article tells it."""
    phrases: tuple[str, ...] = ()
    """How another question speaks of it: "the director of {x}"."""
    questions: tuple[str, ...] = ()
    """How it is asked for."""
    cues: tuple[str, ...] = ()
    """Words of which every clause has one."""
    source_half: int | None = None
    """0 or 1 where only the older or the younger half of the people has it."""
    target_half: int | None = None
    """0 or 1 where it leads to the older or the younger half of the people only."""
    same: tuple[str, ...] = ()
    """Yes/no questions whether `{x}` and `{y}` have it in common."""
    first: tuple[str, ...] = ()
    """Questions which of `{x}` and `{y}` has the lower value."""
    last: tuple[str, ...] = ()
    """Questions which of them has the higher value."""
    below: tuple[str, ...] = ()
    """Yes/no questions whether the value of `{x}` is below that of `{y}`."""


PEOPLE_AND_PLACES = (
    Relation(
        *("birthplace", "person", "town"),
        (
            "{s} was born in {o}",
            "{s} was born above a bakery in {o}",
            "{s} was a native of {o}",
            "{p} birthplace was {o}",
            "{o} was {p} birthplace",
            "it was in {o} that {s} was born",
        ),
        ("the town where {x} was born", "the birthplace of {x}"),
        ("In which town was {x} born?", "Where was {x} born?", "What is the birthplace of {x}?"),
        ("born", "birthplace", "native"),
        same=("Were {x} and {y} born in the same town?", "Did {x} and {y} have the same birthplace?"),
    ),
    Relation(
        *("deathplace", "person", "town"),
        (
            "{s} died in {o}",
            "{s} died at a friend's house in {o}",
            "it was in {o} that {s} died",
            "{p} death, in {o}, went almost unnoticed",
            "{o} was the place of {p} death",
        ),
        ("the town where {x} died", "the place of death of {x}"),
        ("In which town did {x} die?", "Where did {x} die?"),
        ("died", "death"),
        same=("Did {x} and {y} die in the same town?",),
    ),
    Relation(
        *("education", "person", "school"),
        (
            "{s} studied at {o}",
            "{s} took a degree at {o}",
            "{s} graduated from {o}",
            "{p} student years were spent at {o}",
            "{o} was where {s} studied",
        ),
        ("the school where {x} studied", "the school that {x} attended"),
        ("At which school did {x} study?", "Which school did {x} attend?"),
        ("stud", "degree", "graduated"),
        same=("Did {x} and {y} study at the same school?", "Did {x} and {y} attend the same school?"),
    ),
    Relation(
        *("teacher", "person", "person"),
        (
            "{s} was taught by {o}",
            "{s} was taught the trade by {o}",
            "{p} teacher was {o}",
            "{o} was {p} teacher",
            "{s} always named {o} as {p} teacher",
        ),
        ("the teacher of {x}", "the person who taught {x}"),
        ("Who was the teacher of {x}?", "Who taught {x}?", "By whom was {x} taught?"),
        ("taught", "teacher"),
        source_half=1,
        target_half=0,
    ),
    Relation(
        *("employer", "person", "company"),
        (
            "{s} worked for {o}",
            "{s} was employed by {o}",
            "{p} employer was {o}",
            "{s} drew a salary from {o}",
            "{o} employed {m} for decades",
        ),
        ("the company that employed {x}", "the employer of {x}"),
        ("Which company employed {x}?", "For which company did {x} work?"),
        ("employ", "work", "salary"),
        source_half=1,
    ),
    Relation(
        *("birth", "person", "date"),
        (
            "{s} was born on {o}",
            "{p} date of birth is given as {o}",
            "parish records put {p} birth on {o}",
            "{s} came into the world on {o}",
        ),
        (),
        ("On what date was {x} born?", "When was {x} born?", "What is the date of birth of {x}?"),
        ("born", "birth", "world"),
        first=("Who was born first, {x} or {y}?", "Who is older, {x} or {y}?"),
        last=("Who was born later, {x} or {y}?", "Who is younger, {x} or {y}?"),
        below=("Was {x} born before {y}?", "Is {x} older than {y}?"),
    ),
    Relation(
        *("region", "town", "region"),
        (
            "{s} lies in {o}",
            "{s} belongs to {o}",
            "{s} is part of {o}",
            "administratively {s} falls under {o}",
            "{s} is counted among the towns of {o}",
        ),
        ("the region that {x} belongs to", "the region in which {x} lies"),
        ("Which region does {x} belong to?", "In which region does {x} lie?"),
        ("lies in", "belongs", "part of", "falls under", "counted"),
        same=("Do {x} and {y} lie in the same region?", "Do {x} and {y} belong to the same region?"),
    ),
    Relation(
        *("river", "town", "river"),
        (
            "{s} was built along {o}",
            "{o} flows through {m}",
            "{o} runs past the oldest quarter",
            "{p} harbour opens onto {o}",
            "{s} draws water from {o}",
        ),
        ("the river that flows through {x}", "the river on which {x} was built"),
        ("Which river flows through {x}?", "On which river was {x} built?"),
        ("River",),
        same=("Does the same river flow through {x} and {y}?",),
    ),
    Relation(
        *("mayor", "town", "person"),
        (
            "{p} mayor is {o}",
            "{o} is mayor of the town",
            "the office of mayor is held by {o}",
            "the council is led by the mayor, {o}",
            "{s} elected {o} as mayor",
        ),
        ("the mayor of {x}", "the person who serves as mayor of {x}"),
        ("Who is the mayor of {x}?", "Who serves as mayor of {x}?"),
        ("mayor",),
        target_half=1,
    ),
    Relation(
        *("founded", "town", "year"),
        (
            "{s} was founded in {o}",
            "{p} founding dates from {o}",
            "salt traders founded {m} in {o}",
            "the year of {p} founding is {o}",
        ),
        (),
        ("In what year was {x} founded?", "When was {x} founded?"),
        ("found",),
        first=("Which town was founded first, {x} or {y}?", "Which of the two towns is older, {x} or {y}?"),
        last=("Which town was founded later, {x} or {y}?",),
        below=("Was {x} founded before {y}?", "Is {x} an older town than {y}?"),
    ),
    Relation(
        *("population", "town", "number"),
        (
            "{s} has {o} inhabitants",
            "{p} population is {o}",
            "the last census counted {o} inhabitants",
            "a population of {o} was recorded",
        ),
        (),
        ("How many inhabitants does {x} have?", "What is the population of {x}?"),
        ("inhabitants", "population"),
        first=("Which town has fewer inhabitants, {x} or {y}?",),
        last=("Which town has more inhabitants, {x} or {y}?", "Which town is more populous, {x} or {y}?"),
        below=("Does {x} have fewer inhabitants than {y}?",),
    ),
    Relation(
        *("country", "region", "country"),
        (
            "{s} forms part of {o}",
            "{s} is one of the regions of {o}",
            "{o} has held {m} for centuries",
            "{s} lies within the borders of {o}",
            "{s} is governed under the laws of {o}",
        ),
        ("the country that {x} is part of", "the country to which {x} belongs"),
        ("Which country is {x} part of?", "To which country does {x} belong?"),
        ("part of", "regions of", "held", "borders", "laws"),
        same=("Are {x} and {y} part of the same country?",),
    ),
    Relation(
        *("governor", "region", "person"),
        (
            "{p} governor is {o}",
            "{o} is its governor",
            "the post of governor is held by {o}",
            "the present governor, {o}, was appointed late",
        ),
        ("the governor of {x}", "the person who governs {x}"),
        ("Who is the governor of {x}?", "Who governs {x}?"),
        ("governor",),
        target_half=1,
    ),
    Relation(
        *("currency", "country", "word"),
        (
            "{p} currency is the {o}",
            "the {o} is {p} currency",
            "prices are quoted in the {o}, the national currency",
            "{s} uses the {o} as currency",
        ),
        (),
        ("What is the currency of {x}?", "Which currency is used in {x}?"),
        ("currency",),
    ),
    Relation(
        *("president", "country", "person"),
        (
            "{p} president is {o}",
            "{o} serves as president",
            "{s} has {o} as president",
            "the president, {o}, resides in an old fort",
        ),
        ("the president of {x}", "the person who serves as president of {x}"),
        ("Who is the president of {x}?", "Who serves as president of {x}?"),
        ("president",),
        target_half=1,
    ),
    Relation(
        *("source", "river", "region"),
        (
            "{s} rises in {o}",
            "{p} source is in {o}",
            "{p} springs lie in {o}",
            "{s} has several sources, all in {o}",
        ),
        ("the region where {x} rises", "the region that holds the source of {x}"),
        ("In which region does {x} rise?", "In which region is the source of {x}?"),
        ("rises", "source", "springs"),
        same=("Do {x} and {y} rise in the same region?",),
    ),
    Relation(
        *("mouth", "river", "town"),
        (
            "{s} reaches the sea at {o}",
            "{p} mouth is at {o}",
            "{s} empties into the sea near {o}",
            "{o} guards {p} mouth",
        ),
        ("the town at the mouth of {x}", "the town where {x} reaches the sea"),
        ("Which town lies at the mouth of {x}?", "At which town does {x} reach the sea?"),
        ("sea", "mouth"),
    ),
    Relation(
        *("length", "river", "number"),
        (
            "{s} is {o} kilometres long",
            "{p} length is {o} kilometres",
            "{s} runs for {o} kilometres",
            "surveyors measured {o} kilometres from end to end",
        ),
        (),
        ("How many kilometres long is {x}?", "What is the length of {x} in kilometres?"),
        ("kilometres",),
        first=("Which river is shorter, {x} or {y}?",),
        last=("Which river is longer, {x} or {y}?",),
        below=("Is {x} shorter than {y}?",),
    ),
)
