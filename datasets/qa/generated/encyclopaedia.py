"""The world of a fictional encyclopaedia: invented people, places and works, and facts about them.

    "Tadan Rirek" -> "Tadan Rirek (in full Tadan Gaeman Rirek) was a surveyor. She was born in Upper Sithir, and her
                      teacher was the lawyer Stadan Brocask. A street in Praenul Falls bears her name. ..."

Nothing is stored: every name and fact is a function of the split, the size and a number, so that a world of a million
articles takes no memory and streams to disk. Facts agree with each other (a teacher is older than the pupil, a film
later than its novel), each is told in one article only, and no two splits share a word in their names. `articles.py`
writes the articles.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from dataclasses import dataclass

from agent_envs.checks import choice, integer
from agent_envs.datasets.generated_tasks import Draws
from agent_envs.datasets.qa.generated.names import SPLITS, Shuffle, mix, spell
from agent_envs.datasets.qa.generated.relations import KINDS, OCCUPATIONS, RELATIONS, Relation
from agent_envs.files import table

SMALLEST, LARGEST = 200, 5_000_000
MONTHS: tuple[str, ...] = table(__package__, "words.json")["months"]
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that has an article."""

    kind: str
    """Its kind, a key of `KINDS`."""
    number: int
    name: str
    """Its name, without the noun that tells namesakes apart."""
    noun: str
    """What it is: "film", "town", or a person's occupation."""
    namesake: bool
    """Whether another thing has the same name, so that texts must add the noun."""
    aliases: tuple[str, ...]
    """Its other names, which its article gives."""
    female: bool | None
    """A person's gender; None for things."""

    @property
    def title(self) -> str:
        """The title of its article."""
        return f"{self.name} ({self.noun})" if self.namesake else self.name


class World:
    """The facts of one encyclopaedia.

    Args:
        split: "train", "validation" or "test": worlds that share no name.
        articles: How many articles it has, 200 to 5,000,000.
    """

    def __init__(self, split: str, articles: int) -> None:
        self.split = choice("split", split, SPLITS)
        self.articles = integer("articles", articles, minimum=SMALLEST, maximum=LARGEST)
        self.version = _VERSION
        self._split = SPLITS.index(split)
        self._seed = zlib.crc32(f"encyclopaedia {_VERSION} {split} {articles}".encode())
        self.counts = {name: articles * kind.share // 100 for name, kind in KINDS.items()}
        self.counts["person"] += articles - sum(self.counts.values())
        self.starts = dict(zip(self.counts, itertools.accumulate(self.counts.values(), initial=0), strict=False))
        """The index of each kind's first article."""
        self._older = self.counts["person"] // 2
        # Surnames, places and titles are made of the same words, so that names overlap.
        self._words = max(40, self.counts["town"] // 2)
        self._given = max(24, -(-self.counts["person"] * 3 // (2 * self._words)))
        names = {name: self._words * len(kind.shapes) * len(kind.words) for name, kind in KINDS.items()}
        names["person"] = self._given * self._words
        self._shuffles = {name: Shuffle(count, self._seed + n) for n, (name, count) in enumerate(names.items())}
        self._links = {
            (relation.name, relation.source): Shuffle(
                len(self.halves(relation.source, relation.source_half)), self._seed + 100 + n
            )
            for n, relation in enumerate(RELATIONS)
        }

    def __len__(self) -> int:
        return self.articles

    def halves(self, kind: str, half: int | None) -> range:
        """Return the numbers of a kind, or of the older (0) or younger (1) half of the people."""
        if half is None:
            return range(self.counts[kind])
        return range(self._older) if half == 0 else range(self._older, self.counts["person"])

    def _name(self, kind: str, number: int) -> str:
        code = self._shuffles[kind](number)
        if kind == "person":
            word, given = divmod(code, self._given)
            return f"{spell(given, self._split)} {self._word(word)}"
        code, shape = divmod(code, len(KINDS[kind].shapes))
        word, noun = divmod(code, len(KINDS[kind].words))
        return KINDS[kind].shapes[shape].format(w=self._word(word), n=KINDS[kind].words[noun])

    def _word(self, number: int) -> str:
        return spell(self._given + number, self._split)

    def thing(self, kind: str, number: int) -> Thing:
        """Return a thing by its kind and number."""
        if kind == "person":
            return self._person(number)
        name, namesake = self._name(kind, number), False
        aliases: tuple[str, ...] = ()
        if kind == "novel":
            film = self.sources("adapted", "film", number)
            namesake = bool(film) and self._takes_title(film[0])
        elif kind == "film" and self._takes_title(number):
            name, namesake = self._name("novel", self.target("adapted", "film", number)), True
        elif kind == "country":
            aliases = (f"{('Republic', 'Kingdom', 'Union')[mix(self._seed, number) % 3]} of {name}",)
        elif kind == "town" and mix(self._seed + 1, number) % 4 == 0:
            aliases = (spell(self._given + self._words + self.counts["country"] * 2 + number, self._split),)
        return Thing(kind, number, name, KINDS[kind].nouns[0], namesake, aliases, None)

    def _person(self, number: int) -> Thing:
        # Some of the younger people share the name of an older one.
        twin = number if number < self._older else number - self._older
        namesake = (
            twin + self._older < self.counts["person"] and twin < self._older and mix(self._seed + 7, twin) % 6 == 0
        )
        name = self._name("person", twin if namesake else number)
        occupation = mix(self._seed + 2, twin if namesake else number) % len(OCCUPATIONS)
        if namesake and number != twin:
            occupation = (occupation + 1 + mix(self._seed + 3, twin) % (len(OCCUPATIONS) - 1)) % len(OCCUPATIONS)
        aliases: tuple[str, ...] = ()
        if not namesake and mix(self._seed + 4, number) % 3 == 0:
            given, family = name.split(" ")
            middle = spell(mix(self._seed + 5, number) % self._given, self._split)
            aliases = (f"{given} {middle} {family}",) if middle != given else ()
        female = mix(self._seed + 6, number) % 2 == 0
        return Thing("person", number, name, OCCUPATIONS[occupation], namesake, aliases, female)

    def _takes_title(self, film: int) -> bool:
        return mix(self._seed + 8, film) % 3 == 0

    def has(self, relation: Relation, number: int) -> bool:
        """Return whether a thing of the relation's kind has it."""
        return number in self.halves(relation.source, relation.source_half)

    def target(self, name: str, source: str, number: int) -> int:
        """Return the number of what a relation leads to."""
        subjects, targets, used, stride, turn = self._reached(_RELATION[name, source])
        return targets[(self._links[name, source](number - subjects.start) % used * stride + turn) % len(targets)]

    def sources(self, name: str, source: str, target: int) -> tuple[int, ...]:
        """Return the numbers of everything whose relation leads to a target, at most the first 64."""
        subjects, targets, used, stride, turn = self._reached(_RELATION[name, source])
        position, rest = divmod((target - targets.start - turn) % len(targets), stride)
        if target not in targets or rest or position >= used:
            return ()
        link = self._links[name, source]
        return tuple(subjects.start + link.undo(linked) for linked in range(position, link.size, used)[:64])

    def _reached(self, relation: Relation) -> tuple[range, range, int, int, int]:
        """Return a relation's subjects and possible targets, how many of these it reaches, their distance, the first.

        If questions ask whether two things have the fact in common, 5 subjects share 3 targets, so that some do.
        """
        subjects = self.halves(relation.source, relation.source_half)
        targets = self.halves(relation.target, relation.target_half)
        used = min(len(targets), max(1, len(subjects) * 3 // 5)) if relation.same else len(targets)
        turn = mix(self._seed + 11, zlib.crc32(f"{relation.name} {relation.source}".encode())) % len(targets)
        return subjects, targets, used, len(targets) // used, turn

    def birth(self, person: int) -> tuple[int, int, int]:
        """Return year, month and day of a birth: 1850 to 1867 in the older half, 1880 to 1899 in the younger."""
        draw = mix(self._seed + 9, person)
        year = 1850 + draw % 18 if person < self._older else 1880 + draw % 20
        return year, 1 + (draw >> 8) % 12, 1 + (draw >> 16) % 28

    def value(self, name: str, source: str, number: int) -> tuple[int, ...]:
        """Return a fact that is a date or a number, in a form that compares: (year, month, day) or (number,)."""
        if name == "birth":
            return self.birth(number)
        draw = mix(self._seed + 10 + zlib.crc32(name.encode()), number)
        relation = _RELATION[name, source]
        earliest = [
            self.value(fact, _RELATION[link, source].target, self.target(link, source, number))[0] + years
            for link, fact, years in relation.after
        ]
        return (max(earliest, default=relation.least) + draw % relation.spread,)

    def answer(self, relation: Relation, number: int) -> tuple[str, tuple[str, ...]]:
        """Return what a relation leads to in words, and its aliases."""
        if relation.target in KINDS:
            thing = self.thing(relation.target, self.target(relation.name, relation.source, number))
            return thing.name, thing.aliases
        if relation.target == "word":
            return spell(self._given + self._words + number, self._split).lower(), ()
        value = self.value(relation.name, relation.source, number)
        if relation.target == "date":
            year, month, day = value
            return f"{day} {MONTHS[month - 1]} {year}", (f"{MONTHS[month - 1]} {day}, {year}",)
        if relation.target == "number" and value[0] >= 1000:
            return f"{value[0]:,}", (str(value[0]),)
        return str(value[0]), ()

    def entry(self, index: int) -> tuple[str, int]:
        """Return the kind and number of the thing that article `index` is about; IndexError outside the world."""
        if not 0 <= index < self.articles:
            raise IndexError(f"the encyclopaedia has articles 0 to {self.articles - 1}, got {index}")
        kind = next(kind for kind, start in reversed(self.starts.items()) if index >= start)
        return kind, index - self.starts[kind]

    def some(self, kind: str, draws: Draws) -> Thing:
        """Draw a thing of a kind."""
        return self.thing(kind, draws.between(0, self.counts[kind] - 1))


_RELATION = {(relation.name, relation.source): relation for relation in RELATIONS}


@functools.lru_cache(maxsize=16)
def encyclopaedia(split: str, articles: int = 1000) -> World:
    """Return the world of a split, one object per process."""
    return World(split, articles)
