"""Questions about the generated encyclopaedia whose answers need several of its articles.

    bridge       "Who is the mayor of the town where the author of the novel The Saeram Orchard was born?"
    comparison   "Which film was released first, the film The Gripom Road or the film The Last Island of Suful?"
    yesno        "Were Tadan Rirek and the director of the film The Gripom Road born in the same town?"

Task i of a split is a function of the split, i and the arguments alone. The number of hops is the number of articles
that have to be read: no article before the last mentions the answer or a thing further along the chain, so that none of
them can be skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from agent_envs.datasets.generated_tasks import Draws, GeneratedTasks, Impossible, parse_range, stream
from agent_envs.datasets.qa.generated.articles import article_about, mention
from agent_envs.datasets.qa.generated.encyclopaedia import Thing, World, encyclopaedia
from agent_envs.datasets.qa.generated.relations import KINDS, RELATIONS, Relation
from agent_envs.datasets.qa.rows import QATask
from agent_envs.errors import ConfigError

MIXES = {
    "hotpotqa": ("bridge",) * 7 + ("comparison",) * 2 + ("yesno",),
    "2wiki": ("bridge",) * 4 + ("comparison",) * 4 + ("yesno",) * 2,
    "musique": ("bridge",),
}
"""The mix of question types in each data set."""
HOPS = (2, 4)
"""The fewest and the most articles that a question needs."""
_ATTEMPTS = 10_000
# Facts that lead to a kind.
_ENTERING = {kind: tuple(r for r in RELATIONS if r.target == kind and r.phrases) for kind in KINDS}
_ASKED = {
    "bridge": tuple(relation for relation in RELATIONS if relation.questions),
    "comparison": tuple(relation for relation in RELATIONS if relation.first),
    "yesno": tuple(relation for relation in RELATIONS if relation.same or relation.below),
}


@dataclass(frozen=True, slots=True)
class _Chain:
    """A thing, and the facts that lead from it to others in turn."""

    things: tuple[Thing, ...]
    """The thing that the question names, then what each fact leads to."""
    relations: tuple[Relation, ...]
    """The facts, one fewer than things."""


@functools.cache
def _depth(kind: str, deepest: int = 3) -> int:
    """Return the length of the longest chain of facts that ends in a kind, up to `deepest`."""
    return max((1 + _depth(r.source, deepest - 1) for r in _ENTERING[kind]), default=0) if deepest else 0


class GeneratedQA(GeneratedTasks[QATask]):
    """The generated questions of one split.

    Args:
        dataset: "hotpotqa", "2wiki" or "musique": how often bridges, comparisons and yes/no questions are asked.
        split: "train" (100,000 questions), "validation" or "test" (1,000 each). Each asks about a world of its own.
        hops: Articles needed per question: 2, 3 or 4, or a range like "2-4" from which each question draws evenly.
        articles: Articles of the split's world.
    """

    def __init__(self, dataset: str, split: str, hops: int | str, articles: int) -> None:
        self.world = encyclopaedia(split, articles)
        self.dataset = dataset
        self.hops = parse_range("hops", hops, *HOPS)
        super().__init__(split, dataset, split, self.hops, articles, cache=1024)

    def get(self, index: int) -> QATask:
        name = f"{self.dataset}-generated/{self.split}/{self.world.articles}/{self.hops}/{index}"
        draws = stream(name)
        hops = draws.between(*self.hops)
        kind = draws.pick(MIXES[self.dataset])
        # What is asked and whether the answer is yes are drawn first, so that questions hard to place are as frequent.
        longest = hops - 1 if kind == "bridge" else (hops - 1) // 2  # steps that lead to the thing asked about
        choices = tuple(r for r in _ASKED[kind] if _depth(r.source) >= longest)
        relation, verdict = draws.pick(choices), draws.between(0, 1) == 0
        ask = {"bridge": _bridge, "comparison": _comparison, "yesno": _yes_or_no}[kind]
        for _ in range(_ATTEMPTS):
            try:
                question, answers, chains = ask(self.world, draws, hops, relation, verdict)
                supporting = _checked(self.world, chains)
            except Impossible:
                continue
            question = question[0].upper() + question[1:]
            return QATask(name, question, tuple(dict.fromkeys(answers)), supporting, question_type=kind, hops=hops)
        raise ConfigError(f"a world of {self.world.articles} articles is too small for {kind} questions of {hops} hops")


_Question = tuple[str, Sequence[str], Sequence[_Chain]]


def _bridge(world: World, draws: Draws, hops: int, last: Relation, _: bool) -> _Question:
    """Ask for the end of a chain, drawn before the chain so that ends of many chains are not favoured."""
    end = world.some(last.source, draws)
    if not world.has(last, end.number):
        raise Impossible
    chain = _leading_to(world, draws, end, hops)
    answer, aliases = world.answer(last, end.number)
    question = draws.pick(last.questions).format(x=_named(chain, draws))
    before = [_article(world, thing) for thing in chain.things[:-1]]
    if any(name in text for name in (answer, *aliases) for text in (question, *before)):
        raise Impossible
    return question, (answer, *aliases), [chain]


def _comparison(world: World, draws: Draws, hops: int, relation: Relation, lower: bool) -> _Question:
    """Ask which of two things comes first (or last) by a date or number."""
    ends = [world.some(relation.source, draws) for _ in range(2)]
    values = [world.value(relation.name, relation.source, end.number) for end in ends]
    if values[0] == values[1] or ends[0].name == ends[1].name:
        raise Impossible
    winner = ends[0] if (values[0] < values[1]) == lower else ends[1]
    question, chains = _ask_both(world, draws, relation.first if lower else relation.last, ends, hops)
    return question, (winner.name, *winner.aliases), chains


def _yes_or_no(world: World, draws: Draws, hops: int, relation: Relation, yes: bool) -> _Question:
    """Ask whether two things have a fact in common, or whether one comes before the other."""
    one = world.some(relation.source, draws)
    if not world.has(relation, one.number):
        raise Impossible
    if relation.below:
        ends = [one, world.some(relation.source, draws)]
        values = [world.value(relation.name, relation.source, end.number) for end in ends]
        if values[0] == values[1]:
            raise Impossible
        if (values[0] < values[1]) != yes:
            ends.reverse()
        forms = relation.below
    else:
        shared = _next(world, relation, one)
        if yes:
            others = world.sources(relation.name, relation.source, shared.number)
            other = world.thing(relation.source, draws.pick(others))
            # Under an alias in one of the articles, it would take a third article to see that it is the same.
            if not all(shared.name in _article(world, end) for end in (one, other)):
                raise Impossible
        else:
            other = world.some(relation.source, draws)
            if not world.has(relation, other.number) or _next(world, relation, other) == shared:
                raise Impossible
        ends = [one, other]
        forms = relation.same
    if ends[0].name == ends[1].name:
        raise Impossible
    question, chains = _ask_both(world, draws, forms, ends, hops)
    return question, ("yes" if yes else "no",), chains


def _ask_both(
    world: World, draws: Draws, forms: Sequence[str], ends: Sequence[Thing], hops: int
) -> tuple[str, list[_Chain]]:
    """Ask about two things; return the chains too that end in them and together have as many things as `hops`."""
    first = draws.between(1, hops - 1)
    chains = [_leading_to(world, draws, end, n) for end, n in zip(ends, (first, hops - first), strict=True)]
    form = draws.pick(forms)
    one, other = (_named(chain, draws) for chain in chains)
    return form.format(x=one, y=other), chains


def _leading_to(world: World, draws: Draws, end: Thing, length: int) -> _Chain:
    things = [end]
    relations: list[Relation] = []
    for _ in range(length - 1):
        entering = _ENTERING[things[0].kind]
        if not entering:
            raise Impossible
        relation = draws.pick(entering)
        numbers = world.sources(relation.name, relation.source, things[0].number)
        if not numbers:
            raise Impossible
        things.insert(0, world.thing(relation.source, draws.pick(numbers)))
        relations.insert(0, relation)
    return _Chain(tuple(things), tuple(relations))


def _named(chain: _Chain, draws: Draws) -> str:
    """Return the end of a chain as a question calls it: "the author of the novel that the film The Gripom Road ..."."""
    name = mention(chain.things[0], draws, alias=False)
    for relation in chain.relations:
        name = draws.pick(relation.phrases).format(x=name)
    return name


def _next(world: World, relation: Relation, thing: Thing) -> Thing:
    return world.thing(relation.target, world.target(relation.name, thing.kind, thing.number))


def _article(world: World, thing: Thing) -> str:
    return article_about(world, thing.kind, thing.number).text


def _checked(world: World, chains: Sequence[_Chain]) -> tuple[str, ...]:
    """Return the titles of all things; Impossible if two have the same name or one gives away a later one."""
    things = [thing for chain in chains for thing in chain.things]
    if len({thing.name for thing in things}) < len(things):
        raise Impossible
    for chain in chains:
        for position, thing in enumerate(chain.things):
            following = [later for later in things if later not in (thing, *chain.things[position : position + 2])]
            hidden = [later for later in following if later not in [c.things[0] for c in chains]]
            text = _article(world, thing)
            if any(name in text for later in hidden for name in (later.name, *later.aliases)):
                raise Impossible
    return tuple(thing.title for thing in things)
