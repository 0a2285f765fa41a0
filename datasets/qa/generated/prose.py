"""How an article of the generated encyclopaedia is told: a first sentence, then facts and asides in no fixed order."""

from __future__ import annotations

from agent_envs.datasets.draws import Draws
from agent_envs.datasets.qa.generated.encyclopaedia import Thing, World
from agent_envs.datasets.qa.generated.kinds import KINDS
from agent_envs.datasets.qa.generated.works import relations_of

__all__ = ["mention", "write_article"]

_JOINTS = (", and ", "; ", ", while ", ", and ")


def mention(thing: Thing, draws: Draws, alias: bool = True) -> str:
    """A thing as a text names it: "the painter Tadan Rirek", "the River Sithir", "the novel The Lantern of Gripom".

    Args:
        thing: What is named.
        draws: Where the choice comes from.
        alias: Whether one of its other names may stand for it.
    """
    kind = KINDS[thing.kind]
    name = thing.name
    if thing.aliases and alias and thing.kind != "country" and draws.between(0, 5) == 0:
        name = draws.pick(thing.aliases)
    if thing.namesake or kind.words != ("",) or (thing.kind == "person" and draws.between(0, 3) == 0):
        return f"the {thing.noun} {name}"
    return f"the {name}" if (kind.article and " of " in name) or thing.kind == "river" else name


def write_article(world: World, thing: Thing, draws: Draws) -> str:
    """The text of the article about a thing."""
    kind = KINDS[thing.kind]
    noun = f"an {thing.noun}" if thing.noun[0] in "aeiou" else f"a {thing.noun}"
    alias = kind.alias.format(a=thing.aliases[0]) if thing.aliases else ""
    opening = draws.pick(kind.openings).format(s=_named(thing), a=alias, noun=noun)
    facts = [relation for relation in relations_of(thing.kind) if world.has(relation, thing.number)]
    for last in range(len(facts) - 1, 0, -1):
        other = draws.between(0, last)
        facts[last], facts[other] = facts[other], facts[last]
    sentences: list[str] = []
    while facts:
        sentence = ""
        for _ in range(min(len(facts), draws.pick((1, 2, 2, 2, 3)))):
            relation = facts.pop()
            if relation.target in KINDS:
                target = world.thing(relation.target, world.target(relation.name, relation.source, thing.number))
                told = mention(target, draws)
            else:
                told = world.answer(relation, thing.number)[0]
            clause = _tell(draws.pick(relation.clauses), thing, told, draws, first=not sentence)
            sentence += draws.pick(_JOINTS) + clause if sentence else clause
        sentences.append(sentence + ".")
    asides = list(kind.fillers)
    for _ in range(draws.between(1, 2)):
        aside = asides.pop(draws.between(0, len(asides) - 1))
        town, person = world.some("town", draws), world.some("person", draws)
        subject, possessive, objective = _pronouns(thing)
        told = aside.format(
            s=subject, p=possessive, m=objective, town=mention(town, draws), person=mention(person, draws)
        )
        sentences.insert(draws.between(0, len(sentences)), told)
    return " ".join(_capital(sentence) for sentence in [opening, *sentences])


def _named(thing: Thing) -> str:
    return f"the {thing.name}" if KINDS[thing.kind].article and " of " in thing.name else thing.name


def _pronouns(thing: Thing) -> tuple[str, str, str]:
    if thing.female is None:
        return "it", "its", "it"
    return ("she", "her", "her") if thing.female else ("he", "his", "him")


def _tell(clause: str, thing: Thing, told: str, draws: Draws, *, first: bool) -> str:
    subject, possessive, objective = _pronouns(thing)
    if first and draws.between(0, 2) == 0:
        name = _named(thing) if thing.female is None or draws.between(0, 1) else thing.name.split(" ")[-1]
        subject, possessive = name, f"{name}'s"
    return clause.format(s=subject, p=possessive, m=objective, o=told)


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
