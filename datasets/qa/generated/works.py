"""Facts of the generated encyclopaedia about institutions and works, and the list of all facts.

Clauses, phrases and questions are written as in `encyclopaedia_relations`.
"""

from __future__ import annotations

from dataclasses import replace

from agent_envs.datasets.qa.generated.kinds import KINDS
from agent_envs.datasets.qa.generated.relations import PEOPLE_AND_PLACES, Relation

__all__ = ["RELATIONS", "relations_of"]

_LOCATION = Relation(
    *("location", "school", "town"),
    (
        "{s} is located in {o}",
        "{s} stands in {o}",
        "{o} is where {s} is located",
        "{s} occupies a whole block of {o}",
        "{s} is a landmark of {o}",
    ),
    ("the town where {x} is located", "the town in which {x} stands"),
    ("In which town is {x} located?", "What is the name of the town where {x} stands?"),
    ("located", "stands", "block", "landmark"),
    same=("Are {x} and {y} located in the same town?", "Do {x} and {y} stand in the same town?"),
)

RELATIONS = (
    *PEOPLE_AND_PLACES,
    _LOCATION,
    replace(_LOCATION, source="building"),
    Relation(
        *("rector", "school", "person"),
        ("{p} rector is {o}", "{o} serves as rector", "{s} chose {o} as rector", "the rector, {o}, teaches no more"),
        ("the rector of {x}", "the person who serves as rector of {x}"),
        ("Who is the rector of {x}?", "Who serves as rector of {x}?"),
        ("rector",),
        target_half=1,
    ),
    Relation(
        *("founder", "company", "person"),
        ("{s} was founded by {o}", "{p} founder was {o}", "{o} founded {m}", "{s} was set up by {o}"),
        ("the founder of {x}", "the person who founded {x}"),
        ("Who founded {x}?", "Who was the founder of {x}?", "By whom was {x} founded?"),
        ("found", "set up"),
        target_half=0,
    ),
    Relation(
        *("headquarters", "company", "town"),
        (
            "{p} headquarters are in {o}",
            "{p} head office is in {o}",
            "{s} is based in {o}",
            "{s} is run from an office in {o}",
        ),
        ("the town where {x} is based", "the town where {x} has its headquarters"),
        ("In which town is {x} based?", "In which town does {x} have its headquarters?"),
        ("headquarters", "office", "based"),
        same=("Are {x} and {y} based in the same town?",),
    ),
    Relation(
        *("established", "company", "year"),
        ("{s} was established in {o}", "{s} opened for business in {o}", "{p} first accounts date from {o}"),
        cues=("established", "opened", "accounts"),
        first=("Which company was established first, {x} or {y}?",),
        last=("Which company was established later, {x} or {y}?",),
        below=("Was {x} established before {y}?",),
    ),
    Relation(
        *("author", "novel", "person"),
        (
            "{s} was written by {o}",
            "{p} author is {o}",
            "{o} wrote {m}",
            "{s} came from the pen of {o}",
            "{s} is a work by {o}",
        ),
        ("the author of {x}", "the person who wrote {x}"),
        ("Who wrote {x}?", "Who is the author of {x}?", "By whom was {x} written?"),
        ("written", "author", "wrote", "pen", "work"),
        same=("Were {x} and {y} written by the same person?",),
    ),
    Relation(
        *("publisher", "novel", "company"),
        ("{s} was published by {o}", "{o} published {m}", "{p} publisher was {o}", "{s} was brought out by {o}"),
        ("the company that published {x}", "the publisher of {x}"),
        ("Which company published {x}?", "Who was the publisher of {x}?"),
        ("publish", "brought out"),
        same=("Were {x} and {y} published by the same company?",),
    ),
    Relation(
        *("setting", "novel", "town"),
        (
            "{s} is set in {o}",
            "{p} plot unfolds in {o}",
            "the story takes place in {o}",
            "{o} provides the setting",
        ),
        ("the town where {x} is set", "the town in which the story of {x} takes place"),
        ("In which town is {x} set?", "In which town does the story of {x} take place?"),
        ("set", "plot", "place"),
    ),
    Relation(
        *("published", "novel", "year"),
        ("{s} came out in {o}", "{s} first appeared in {o}", "the first edition is dated {o}"),
        cues=("came out", "appeared", "edition"),
        first=("Which novel came out first, {x} or {y}?",),
        last=("Which novel came out later, {x} or {y}?",),
        below=("Did {x} come out before {y}?",),
    ),
    Relation(
        *("director", "film", "person"),
        (
            "{s} was directed by {o}",
            "{o} directed {m}",
            "{p} director was {o}",
            "{o} was in the director's chair",
            "{s} was made under the direction of {o}",
        ),
        ("the director of {x}", "the person who directed {x}"),
        ("Who directed {x}?", "Who was the director of {x}?", "By whom was {x} directed?"),
        ("direct",),
        same=("Were {x} and {y} directed by the same person?",),
    ),
    Relation(
        *("composer", "film", "person"),
        ("{p} score was composed by {o}", "{o} composed the music", "the music is by {o}", "{o} supplied the music"),
        ("the composer of the music for {x}", "the person who composed the score of {x}"),
        ("Who composed the music for {x}?", "Who composed the score of {x}?"),
        ("score", "music"),
    ),
    Relation(
        *("adapted", "film", "novel"),
        ("{s} is based on {o}", "{s} is an adaptation of {o}", "{p} screenplay follows {o}", "{o} supplied the plot"),
        ("the novel that {x} is based on", "the novel adapted in {x}"),
        ("Which novel is {x} based on?", "Which novel was adapted in {x}?"),
        ("based", "adaptation", "screenplay", "plot"),
    ),
    Relation(
        *("released", "film", "year"),
        ("{s} was released in {o}", "{s} reached cinemas in {o}", "{p} premiere took place in {o}"),
        cues=("released", "cinemas", "premiere"),
        first=("Which film was released first, {x} or {y}?",),
        last=("Which film was released later, {x} or {y}?",),
        below=("Was {x} released before {y}?",),
    ),
    Relation(
        *("artist", "painting", "person"),
        ("{s} was painted by {o}", "{o} painted {m}", "{p} maker was {o}", "{s} is from the hand of {o}"),
        ("the artist of {x}", "the person who painted {x}"),
        ("Who painted {x}?", "Who is the artist of {x}?", "By whom was {x} painted?"),
        ("painted", "maker", "hand"),
        same=("Were {x} and {y} painted by the same person?",),
    ),
    Relation(
        *("home", "painting", "building"),
        (
            "{s} hangs in {o}",
            "{s} is kept at {o}",
            "{o} has {m} on display",
            "visitors can see {m} at {o}",
        ),
        ("the building where {x} hangs", "the building that houses {x}"),
        ("In which building does {x} hang?", "Which building houses {x}?"),
        ("hangs", "kept", "display", "visitors"),
        same=("Do {x} and {y} hang in the same building?",),
    ),
    Relation(
        *("finished", "painting", "year"),
        ("{s} was finished in {o}", "{s} is signed and dated {o}", "work on {m} ended in {o}"),
        cues=("finished", "dated", "ended"),
        first=("Which painting was finished first, {x} or {y}?",),
        last=("Which painting was finished later, {x} or {y}?",),
        below=("Was {x} finished before {y}?",),
    ),
    Relation(
        *("architect", "building", "person"),
        ("{s} was designed by {o}", "{o} designed {m}", "{p} architect was {o}", "the plans were drawn by {o}"),
        ("the architect of {x}", "the person who designed {x}"),
        ("Who designed {x}?", "Who was the architect of {x}?", "By whom was {x} designed?"),
        ("designed", "architect", "plans"),
        target_half=0,
        same=("Were {x} and {y} designed by the same person?",),
    ),
    Relation(
        *("opened", "building", "year"),
        ("{s} was opened in {o}", "{s} has stood since {o}", "the doors first opened in {o}"),
        cues=("opened", "stood"),
        first=("Which building was opened first, {x} or {y}?",),
        last=("Which building was opened later, {x} or {y}?",),
        below=("Was {x} opened before {y}?",),
    ),
)


def relations_of(kind: str) -> tuple[Relation, ...]:
    """The facts that a kind of thing has."""
    return _BY_KIND[kind]


_BY_KIND = {kind: tuple(r for r in RELATIONS if r.source == kind) for kind in KINDS}
