"""A fictional encyclopaedia: a world of invented people, places and works, and an article about each of them.

    "Tadan Rirek" -> "Tadan Rirek (in full Tadan Gaeman Rirek) was a surveyor. She was born in Upper Sithir, and her
                      teacher was the lawyer Stadan Brocask. A street in Praenul Falls bears her name. ..."

Nothing is stored: every name, fact and sentence is a function of the split, the size and a number, so that a world of
a million articles costs no memory and streams to disk. Facts agree with each other (a teacher is older than the pupil,
a film later than its novel), each is told in one article only, and the words of no two splits' names are the same.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.draws import Draws, stream
from agent_envs.datasets.qa.generated.kinds import KINDS, OCCUPATIONS
from agent_envs.datasets.qa.generated.names import SPLITS, Shuffle, mix, spell
from agent_envs.datasets.qa.generated.relations import Relation
from agent_envs.datasets.qa.generated.works import RELATIONS
from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["MONTHS", "Article", "Thing", "World", "encyclopaedia"]

SMALLEST, LARGEST = 200, 5_000_000
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that has an article."""

    kind: str
    """Its kind, a key of `KINDS`."""
    number: int
    """Its number among its kind."""
    name: str
    """Its name, without what tells namesakes apart."""
    noun: str
    """What it is: "film", "town", or a person's occupation."""
    namesake: bool
    """Whether another thing has the same name, so that the noun has to be said with it."""
    aliases: tuple[str, ...]
    """Its other names; its article gives them."""
    female: bool | None
    """A person's gender, None for things."""

    @property
    def title(self) -> str:
        """The title of its article."""
        return f"{self.name} ({self.noun})" if self.namesake else self.name


@dataclass(frozen=True, slots=True)
class Article:
    """One article."""

    id: str
    """Its number in the world, as text."""
    title: str
    """Its title, of which there is no second."""
    text: str
    """Its sentences."""


class World:
    """The facts of one encyclopaedia.

    Args:
        split: "train", "validation" or "test": worlds that share no name.
        articles: How many articles it has, 200 to 5,000,000.

    Raises:
        ConfigError: No such split, or a size out of range.
    """

    def __init__(self, split: str, articles: int) -> None:
        if split not in SPLITS:
            raise ConfigError(f"the generated encyclopaedia has no split {split!r}.{did_you_mean(split, SPLITS)}")
        if isinstance(articles, bool) or not isinstance(articles, int) or not SMALLEST <= articles <= LARGEST:
            raise ConfigError(f"articles must be a whole number from {SMALLEST} to {LARGEST}, got {articles!r}")
        self.split = split
        self.articles = articles
        self.version = _VERSION
        self._split = SPLITS.index(split)
        self._seed = zlib.crc32(f"encyclopaedia {_VERSION} {split} {articles}".encode())
        self.counts = {name: articles * kind.share // 100 for name, kind in KINDS.items()}
        self.counts["person"] += articles - sum(self.counts.values())
        self._starts: dict[str, int] = {}
        start = 0
        for name, count in self.counts.items():
            self._starts[name] = start
            start += count
        self._older = self.counts["person"] // 2
        # Surnames, places and titles are made of the same words, so that names overlap.
        self._words = max(40, self.counts["town"] // 2)
        self._given = max(24, -(-self.counts["person"] * 3 // (2 * self._words)))
        self._shuffles = {name: Shuffle(self._name_count(name), self._seed + n) for n, name in enumerate(KINDS)}
        self._links = {
            (relation.name, relation.source): Shuffle(
                len(self.halves(relation.source, relation.source_half)), self._seed + 100 + n
            )
            for n, relation in enumerate(RELATIONS)
        }

    def __len__(self) -> int:
        return self.articles

    def __deepcopy__(self, memo: object) -> World:
        return self  # nothing in it changes

    def __reduce__(self) -> tuple[Any, ...]:
        return encyclopaedia, (self.split, self.articles)

    def halves(self, kind: str, half: int | None) -> range:
        """The numbers of a kind, or of the older (0) or younger (1) half of the people."""
        if half is None:
            return range(self.counts[kind])
        return range(self._older) if half == 0 else range(self._older, self.counts["person"])

    # -- names ---------------------------------------------------------------------------------------------------

    def _name_count(self, kind: str) -> int:
        """How many names a kind has to draw on."""
        if kind == "person":
            return self._given * self._words
        return self._words * len(KINDS[kind].shapes) * len(KINDS[kind].words)

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
        """One thing of a kind, by its number."""
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
        # Some of the younger have the name of one of the older.
        twin = number if number < self._older else number - self._older
        namesake = twin + self._older < self.counts["person"] and twin < self._older and self._shares_name(twin)
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

    def _shares_name(self, number: int) -> bool:
        return mix(self._seed + 7, number) % 6 == 0

    def _takes_title(self, film: int) -> bool:
        return mix(self._seed + 8, film) % 3 == 0

    # -- facts ---------------------------------------------------------------------------------------------------

    def has(self, relation: Relation, number: int) -> bool:
        """Whether a thing of the relation's kind has it."""
        return number in self.halves(relation.source, relation.source_half)

    def target(self, name: str, source: str, number: int) -> int:
        """The number of what a relation leads to."""
        relation = _RELATION[name, source]
        subjects = self.halves(source, relation.source_half)
        targets, used, stride, turn = self._reached(relation)
        return targets[(self._links[name, source](number - subjects.start) % used * stride + turn) % len(targets)]

    def sources(self, name: str, source: str, target: int) -> tuple[int, ...]:
        """The numbers of everything whose relation leads to a target; at most the first 64."""
        relation = _RELATION[name, source]
        subjects = self.halves(source, relation.source_half)
        targets, used, stride, turn = self._reached(relation)
        place, rest = divmod((target - targets.start - turn) % len(targets), stride)
        if target not in targets or rest or place >= used:
            return ()
        link = self._links[name, source]
        return tuple(subjects.start + link.undo(found) for found in range(place, link.size, used)[:64])

    def _reached(self, relation: Relation) -> tuple[range, int, int, int]:
        """What a relation may lead to, how many of these it reaches, the distance between two of them, and the first.

        Where questions ask whether two things have a fact in common, some have: 5 subjects share 3 targets.
        """
        targets = self.halves(relation.target, relation.target_half)
        size = self._links[relation.name, relation.source].size
        used = min(len(targets), max(1, size * 3 // 5)) if relation.same else len(targets)
        turn = mix(self._seed + 11, zlib.crc32(f"{relation.name} {relation.source}".encode())) % len(targets)
        return targets, used, len(targets) // used, turn

    def birth(self, person: int) -> tuple[int, int, int]:
        """Year, month and day of a person's birth: 1850 to 1867 in the older half, 1880 to 1899 in the younger."""
        draw = mix(self._seed + 9, person)
        year = 1850 + draw % 18 if person < self._older else 1880 + draw % 20
        return year, 1 + (draw >> 8) % 12, 1 + (draw >> 16) % 28

    def value(self, name: str, source: str, number: int) -> tuple[int, ...]:
        """A fact that is a date or a number, in a form that compares: (year, month, day) or (number,)."""
        if name == "birth":
            return self.birth(number)
        draw = mix(self._seed + 10 + zlib.crc32(name.encode()), number)
        if name == "founded":
            return (1100 + draw % 600,)
        if name == "population":
            return (300 + draw % 90_000,)
        if name == "length":
            return (35 + draw % 900,)
        if name == "established":
            return (self.birth(self.target("founder", source, number))[0] + 21 + draw % 14,)
        if name == "published":
            company = self.value("established", "company", self.target("publisher", source, number))[0]
            return (max(self.birth(self.target("author", source, number))[0] + 23, company + 1) + draw % 12,)
        if name == "released":
            made = self.birth(self.target("director", source, number))[0] + 24
            scored = self.birth(self.target("composer", source, number))[0] + 22
            written = self.value("published", "novel", self.target("adapted", source, number))[0] + 1
            return (max(made, scored, written) + draw % 6,)
        maker = {"finished": "artist", "opened": "architect"}[name]
        return (self.birth(self.target(maker, source, number))[0] + 24 + draw % 25,)

    def answer(self, relation: Relation, number: int) -> tuple[str, tuple[str, ...]]:
        """What a relation leads to in words, and other ways to say it."""
        if relation.target in KINDS:
            thing = self.thing(relation.target, self.target(relation.name, relation.source, number))
            return thing.name, thing.aliases
        if relation.target == "word":
            word = spell(self._given + self._words + number, self._split)
            return word.lower(), ()
        value = self.value(relation.name, relation.source, number)
        if relation.target == "date":
            year, month, day = value
            return f"{day} {MONTHS[month - 1]} {year}", (f"{MONTHS[month - 1]} {day}, {year}",)
        if relation.target == "number" and value[0] >= 1000:
            return f"{value[0]:,}", (str(value[0]),)
        return str(value[0]), ()

    # -- articles ------------------------------------------------------------------------------------------------

    def article(self, index: int) -> Article:
        """Article `index` of the encyclopaedia, 0 to articles - 1; IndexError outside."""
        if not 0 <= index < self.articles:
            raise IndexError(f"the encyclopaedia has articles 0 to {self.articles - 1}, got {index}")
        kind = next(kind for kind, start in reversed(self._starts.items()) if index >= start)
        return self.article_about(kind, index - self._starts[kind])

    def article_about(self, kind: str, number: int) -> Article:
        """The article about one thing."""
        from agent_envs.datasets.qa.generated.prose import write_article

        thing = self.thing(kind, number)
        draws = stream(f"article/{self.split}/{self.articles}/{kind}/{number}")
        return Article(f"{self._starts[kind] + number:07d}", thing.title, write_article(self, thing, draws))

    def rows(self) -> Iterator[dict[str, str]]:
        """The articles as rows of a corpus: {"id", "title", "text"}."""
        for index in range(self.articles):
            article = self.article(index)
            yield {"id": article.id, "title": article.title, "text": article.text}

    def some(self, kind: str, draws: Draws) -> Thing:
        """Any thing of a kind."""
        return self.thing(kind, draws.between(0, self.counts[kind] - 1))


_RELATION = {(relation.name, relation.source): relation for relation in RELATIONS}


@functools.lru_cache(maxsize=16)
def encyclopaedia(split: str, articles: int = 1000) -> World:
    """The world of a split, one object per process."""
    return World(split, articles)
