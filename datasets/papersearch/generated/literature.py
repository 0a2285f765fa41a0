"""A generated literature: invented papers on invented topics, which cite each other.

    field   six topics whose names share their last two words ("stadal korvath graphs", "dathel korvath graphs"), so
            that each topic has lookalikes
    topic   4 to 30 papers over some years: plain ones use its name, some another name that surveys and a few plain
            papers reveal, and a share of them (`hidden`) no name at all, so that only citations lead there
    paper   a title with a method of its own, an abstract, a day, one of three settings, and references to earlier ones

Every paper but the first of each setting refers to an earlier one of its topic and setting that is not hidden, so that
every answer can be reached from what a search finds, at any date. Nothing is stored: papers are a function of split,
size, share and number, and stream field by field. No two splits share an invented word.

The slots of `words.json`: {A} the topic as the paper calls it ({B} its other name), {N} a neighbouring topic, {X} the
paper's own method, {Y} the method it builds on, {S} the setting it works in, {M} the kind of method, {Z} something
unrelated to the topic; in queries, {a} and {b} are topics, {s} a setting and {x} a method.
"""

from __future__ import annotations

import functools
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date as day
from typing import Any

from agent_envs import checks
from agent_envs.datasets.generated_tasks import Draws, stream
from agent_envs.datasets.qa.generated.names import SPLITS, Shuffle, mix, spell
from agent_envs.files import table
from agent_envs.retrieval.papers import Paper
from agent_envs.retrieval.papers.paper import PaperRow

WORDS: dict[str, Any] = table(__package__, "words.json")
"""What the papers and the queries are made of."""
SMALLEST, LARGEST = 100, 5_000_000
TOPICS = 6  # of a field
SETTINGS = 3  # of a topic
PLAIN, SYNONYM, HIDDEN, SURVEY = range(4)
_VERSION = 3
_SMALLEST_TOPIC, _LARGEST_TOPIC = 4, 30
_FIRST_DAY = day(1991, 1, 1).toordinal()
_DAYS = 9000  # in which topics begin


@dataclass(slots=True)
class PlannedPaper:
    """A paper before its abstract is written."""

    number: int
    kind: int
    """PLAIN, SYNONYM, HIDDEN or SURVEY."""
    setting: str
    """The setting it works in; "" for a survey."""
    day: int
    """Its day of publication, as an ordinal."""
    method: str
    """Its method, an invented word; "" for a survey."""
    method_kind: str
    """What the method is, such as "pruning rule"."""
    title: str
    builds: int = -1
    """The number of the paper it builds on, -1 for none."""
    references: tuple[int, ...] = ()
    """Numbers of the papers it refers to."""
    citations: tuple[int, ...] = ()
    """Numbers of the papers that refer to it."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its papers."""

    number: int
    name: str
    """Its name."""
    other_name: str
    """What some papers call it."""
    papers: tuple[PlannedPaper, ...]
    """Its papers, earliest first, with consecutive numbers."""


class Literature:
    """The papers of one split.

    Args:
        split: "train", "validation" or "test", which share no invented word.
        papers: How many papers there are, 100 to 5,000,000.
        hidden: Share of a topic's papers that never mention its name, 0 to 0.6: the difficulty.
    """

    def __init__(self, split: str, papers: int = 2000, hidden: float = 0.4) -> None:
        self.split = checks.choice("split", split, SPLITS)
        self.papers = checks.integer("papers", papers, minimum=SMALLEST, maximum=LARGEST)
        self.hidden = checks.number("hidden", hidden, minimum=0, maximum=0.6)
        self.name = f"papers-{_VERSION}-{split}-{papers}-{self.hidden:g}"
        self._split = SPLITS.index(split)
        self._seed = zlib.crc32(self.name.encode())
        # The sizes of topics do not depend on the share of hidden papers, which thus changes nothing else.
        sizes = zlib.crc32(f"sizes {_VERSION} {split} {papers}".encode())
        spread = _LARGEST_TOPIC - _SMALLEST_TOPIC + 1
        starts = [0]
        while starts[-1] < papers:
            size = _SMALLEST_TOPIC + mix(sizes, len(starts)) % spread
            rest = papers - starts[-1] - size
            starts.append(papers if rest < _SMALLEST_TOPIC else starts[-1] + size)
        self._starts = starts  # the first paper of each topic, and the end
        self.topics = len(starts) - 1
        self.fields = -(-self.topics // TOPICS)
        self._methods = self.fields + 3 * self.topics  # the number of the first invented word used for methods
        self._ids = Shuffle(papers, self._seed)
        self._digits = len(str(papers - 1))
        self._field = functools.lru_cache(maxsize=256)(self._plan_field)

    def __len__(self) -> int:
        return self.papers

    def paper_id(self, number: int) -> str:
        """Return the id of a paper, which reveals nothing about it."""
        return f"p{self._ids(number):0{self._digits}d}"

    def _word(self, number: int) -> str:
        return spell(number, self._split)

    def _topic_names(self, topic: int) -> tuple[str, str]:
        field = topic // TOPICS
        shared = f"{self._word(field).lower()} {WORDS['nouns'][mix(self._seed + 1, field) % len(WORDS['nouns'])]}"
        first, second, third = (self._word(self.fields + 3 * topic + n).lower() for n in range(3))
        noun = WORDS["other_nouns"][mix(self._seed + 2, topic) % len(WORDS["other_nouns"])]
        return f"{first} {shared}", f"{second} {third} {noun}"

    def topic(self, number: int) -> Topic:
        """Return a topic by its number."""
        return self._field(number // TOPICS)[number % TOPICS]

    def topic_of(self, paper: int) -> Topic:
        """Return the topic of a paper, by the paper's number."""
        return self.topic(bisect_right(self._starts, paper) - 1)

    def planned(self, paper: int) -> PlannedPaper:
        """Return a planned paper by its number."""
        topic = self.topic_of(paper)
        return topic.papers[paper - topic.papers[0].number]

    def _plan_field(self, field: int) -> tuple[Topic, ...]:
        numbers = range(field * TOPICS, min((field + 1) * TOPICS, self.topics))
        draws = stream(f"{self.name}/field/{field}")
        topics = tuple(self._plan_topic(number, draws) for number in numbers)
        for topic in topics:
            for paper in topic.papers:
                if len(topics) > 1 and paper.kind in (PLAIN, SYNONYM) and draws.between(1, 10) <= 3:
                    # A reference to a neighbouring topic, which leads away from the answers.
                    other = draws.pick(topics)
                    earlier = [p.number for p in other.papers if p.day < paper.day]
                    if other is not topic and earlier:
                        paper.references = (*paper.references, draws.pick(earlier))
        papers = [paper for topic in topics for paper in topic.papers]
        citing: dict[int, list[int]] = {}
        for paper in papers:
            for number in paper.references:
                citing.setdefault(number, []).append(paper.number)
        for paper in papers:
            paper.citations = tuple(citing.get(paper.number, ()))
        return topics

    def _plan_topic(self, number: int, draws: Draws) -> Topic:
        name, other_name = self._topic_names(number)
        start, end = self._starts[number], self._starts[number + 1]
        count = end - start
        survey = draws.between(count * 2 // 3, count - 1) if count >= 6 else -1
        offset = draws.between(0, len(WORDS["settings"]) - 1)
        settings = [
            WORDS["settings"][(offset + 7 * n) % len(WORDS["settings"])] for n in range(min(SETTINGS, count // 3))
        ]
        of = [n % len(settings) if n < len(settings) else draws.between(0, len(settings) - 1) for n in range(count)]
        later = [n for n in range(len(settings), count) if n != survey]
        kinds = [PLAIN] * count
        if survey >= 0:
            kinds[survey] = SURVEY
        hidden = min(len(later), round(self.hidden * count))
        for i in range(hidden):
            swap = draws.between(i, len(later) - 1)
            later[i], later[swap] = later[swap], later[i]
            kinds[later[i]] = HIDDEN
        for i in range(hidden, len(later)):
            if draws.between(1, 3) == 1:
                kinds[later[i]] = SYNONYM
        papers: list[PlannedPaper] = []
        when = _FIRST_DAY + draws.between(0, _DAYS)
        for n, kind in enumerate(kinds):
            setting = "" if kind == SURVEY else settings[of[n]]
            method = "" if kind == SURVEY else self._word(self._methods + start + n)
            called = other_name if kind == SYNONYM else name
            forms = {SURVEY: WORDS["survey_titles"], HIDDEN: WORDS["hidden_titles"]}.get(kind, WORDS["plain_titles"])
            method_kind = draws.pick(WORDS["methods"])
            title = draws.pick(forms).format(A=called, X=method, S=setting, M=method_kind)
            paper = PlannedPaper(start + n, kind, setting, when, method, method_kind, title[0].upper() + title[1:])
            self._refer(paper, papers, draws)
            papers.append(paper)
            when += draws.between(5, 160)
        return Topic(number, name, other_name, tuple(papers))

    def _refer(self, paper: PlannedPaper, earlier: list[PlannedPaper], draws: Draws) -> None:
        """Draw what a paper refers to among the earlier ones of its topic."""
        if not earlier:
            return
        if paper.kind == SURVEY:
            paper.references = tuple(p.number for p in earlier if draws.between(1, 5) > 1)
            return
        base = earlier[0]
        if near := [p for p in earlier if p.setting == paper.setting and p.kind in (PLAIN, SYNONYM)]:
            base = near[0] if draws.between(1, 5) <= 3 else draws.pick(near)
            paper.builds = base.number
        others = [draws.pick(earlier) for _ in range(draws.between(0, 2))]
        paper.references = tuple(sorted({p.number for p in (base, *others)}))

    def row(self, number: int) -> PaperRow:
        """Return a paper with its abstract, references and citations; IndexError outside 0 to papers - 1."""
        if not 0 <= number < self.papers:
            raise IndexError(f"the literature has papers 0 to {self.papers - 1}, got {number}")
        return self._write(self.topic_of(number), self.planned(number))

    def rows(self) -> Iterator[PaperRow]:
        """Yield all papers."""
        for topic in map(self.topic, range(self.topics)):
            for paper in topic.papers:
                yield self._write(topic, paper)

    def _write(self, topic: Topic, paper: PlannedPaper) -> PaperRow:
        draws = Draws(_numbers(self._seed, paper.number))
        if paper.kind == SURVEY:
            parts = [draws.pick(WORDS["surveys"]), draws.pick(WORDS["survey_endings"])]
        else:
            named = paper.kind in (PLAIN, SYNONYM)
            # Half of the papers that name their topic begin like those that do not. Otherwise opening and setting would
            # identify the latter, and nobody would need citations to find them.
            parts = [draws.pick(WORDS["vague_openings"])] if not named or draws.between(0, 1) else []
            if named:
                parts.append(draws.pick(WORDS["openings"]))
            parts.append(draws.pick(WORDS["work"]))
            if paper.builds >= 0 and named:
                parts.append(draws.pick(WORDS["builds"]))
            if paper.kind == PLAIN and draws.between(1, 4) == 1:
                parts.append(draws.pick(WORDS["aliases"]))
            if named and draws.between(1, 4) == 1:
                parts.append(draws.pick(WORDS["lookalikes"]))
            one = draws.between(0, len(WORDS["findings"]) - 1)
            other = (one + draws.between(1, len(WORDS["findings"]) - 1)) % len(WORDS["findings"])
            parts += [WORDS["findings"][n].format(Z=draws.pick(WORDS["themes"])) for n in (one, other)]
        first = topic.number // TOPICS * TOPICS
        others = [n for n in range(first, min(first + TOPICS, self.topics)) if n != topic.number]
        text = " ".join(parts).format(
            A=topic.other_name if paper.kind == SYNONYM else topic.name,
            B=topic.other_name,
            N=self._topic_names(draws.pick(others) if others else (topic.number + 1) % self.topics)[0],
            X=paper.method,
            Y=self._word(self._methods + paper.builds),
            S=paper.setting,
            M=paper.method_kind,
        )
        abstract = ". ".join(sentence[:1].upper() + sentence[1:] for sentence in text.split(". "))
        return PaperRow(
            Paper(self.paper_id(paper.number), paper.title, abstract, str(day.fromordinal(paper.day))),
            tuple(map(self.paper_id, paper.references)),
            tuple(map(self.paper_id, paper.citations)),
        )


def _numbers(seed: int, number: int) -> Any:
    """Return the integers for the few choices of one paper's abstract, which is cheaper than a stream."""
    start = mix(seed + 3, number)

    def more() -> list[int]:
        nonlocal start
        start += 1
        return [mix(start, n) for n in range(16)]

    return more


@functools.lru_cache(maxsize=16, typed=True)  # otherwise 2000.0 would be accepted once 2000 was asked for
def literature(split: str, papers: int = 2000, hidden: float = 0.4) -> Literature:
    """Return the literature of a split, one object per process."""
    return Literature(split, papers, hidden)
