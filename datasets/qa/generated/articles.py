"""The articles of the generated encyclopaedia: a first sentence, then facts and asides in a drawn order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws, shuffled, stream
from agent_envs.datasets.qa.generated.encyclopaedia import Thing, World
from agent_envs.datasets.qa.generated.relations import KINDS, RELATIONS_OF

_JOINTS = (", and ", "; ", ", while ", ", and ")


class Article(NamedTuple):
    """One article."""

    id: str
    """Its number in the world, as text."""
    title: str
    """Its title, which is unique."""
    text: str


def article_at(world: World, index: int) -> Article:
    """Return article `index` of the encyclopaedia, 0 to articles - 1; IndexError outside."""
    return article_about(world, *world.entry(index))


def article_about(world: World, kind: str, number: int) -> Article:
    """Return the article about a thing, by its kind and its number within the kind."""
    thing = world.thing(kind, number)
    draws = stream(f"article/{world.split}/{world.articles}/{kind}/{number}")
    return Article(f"{world.starts[kind] + number:07d}", thing.title, _write(world, thing, draws))


def article_rows(world: World) -> Iterator[dict[str, str]]:
    """Yield all articles as rows of a corpus: {"id", "title", "text"}."""
    for index in range(len(world)):
        yield article_at(world, index)._asdict()


def mention(thing: Thing, draws: Draws, alias: bool = True) -> str:
    """Return a thing as a text names it: "the painter Tadan Rirek", "the River Sithir", "the novel The Last Winter"."""
    kind = KINDS[thing.kind]
    name = thing.name
    if thing.aliases and alias and thing.kind != "country" and draws.between(0, 5) == 0:
        name = draws.pick(thing.aliases)
    if thing.namesake or kind.words != ("",) or (thing.kind == "person" and draws.between(0, 3) == 0):
        return f"the {thing.noun} {name}"
    return f"the {name}" if (kind.article and " of " in name) or thing.kind == "river" else name


def _write(world: World, thing: Thing, draws: Draws) -> str:
    kind = KINDS[thing.kind]
    noun = f"an {thing.noun}" if thing.noun[0] in "aeiou" else f"a {thing.noun}"
    alias = kind.alias.format(a=thing.aliases[0]) if thing.aliases else ""
    opening = draws.pick(kind.openings).format(s=_with_article(thing), a=alias, noun=noun)
    facts = shuffled(draws, [relation for relation in RELATIONS_OF[thing.kind] if world.has(relation, thing.number)])
    sentences: list[str] = []
    pronouns = _pronouns(thing)
    while facts:
        sentence = ""
        for _ in range(min(len(facts), draws.pick((1, 2, 2, 2, 3)))):
            relation = facts.pop()
            if relation.target in KINDS:
                target = world.thing(relation.target, world.target(relation.name, relation.source, thing.number))
                answer = mention(target, draws)
            else:
                answer = world.answer(relation, thing.number)[0]
            clause = draws.pick(relation.clauses)
            called = pronouns
            if not sentence and draws.between(0, 2) == 0:
                impersonal = thing.female is None or draws.between(0, 1)
                subject = _with_article(thing) if impersonal else thing.name.split(" ")[-1]
                called = {**pronouns, "s": subject, "p": f"{subject}'s"}
            clause = clause.format(**called, o=answer)
            sentence += draws.pick(_JOINTS) + clause if sentence else clause
        sentences.append(sentence + ".")
    fillers = list(kind.fillers)
    for _ in range(draws.between(1, 2)):
        filler = fillers.pop(draws.between(0, len(fillers) - 1))
        town, person = world.some("town", draws), world.some("person", draws)
        aside = filler.format(**pronouns, town=mention(town, draws), person=mention(person, draws))
        sentences.insert(draws.between(0, len(sentences)), aside)
    return " ".join(sentence[0].upper() + sentence[1:] for sentence in [opening, *sentences])


def _with_article(thing: Thing) -> str:
    return f"the {thing.name}" if KINDS[thing.kind].article and " of " in thing.name else thing.name


def _pronouns(thing: Thing) -> dict[str, str]:
    """Return what the slots of a clause stand for: its subject, the possessor, and the object."""
    if thing.female is None:
        return {"s": "it", "p": "its", "m": "it"}
    return {"s": "she", "p": "her", "m": "her"} if thing.female else {"s": "he", "p": "his", "m": "him"}
