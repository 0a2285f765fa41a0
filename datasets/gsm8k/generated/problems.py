"""Generated GSM8K problems: random access, worked solutions, disjoint splits.

    question  "Mirel has 8 bags with 6 coins in each. Mirel loses 5 of them. How many coins does Mirel have now?"
    solution  "Mirel has 8*6=<<8*6=48>>48 coins.\\nMirel has 48-5=<<48-5=43>>43 coins.\\n#### 43"

Task i of a split is a function of the split's name, i and the level alone. A problem comes from a small world of people
and events (`world.py`, `events.py`); its level is the number of operations in its worked solution.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws, GeneratedTasks, Impossible, parse_range, stream
from agent_envs.datasets.gsm8k.generated.events import EVENTS
from agent_envs.datasets.gsm8k.generated.world import NAMES, WORDS, Event, Mark, Note, Operation, Wording, World

DEFAULT_LEVEL = "1-8"
Level = int | str | Sequence[int]
MAX_EVENTS = 60  # tried per story before a new one is begun
PLAIN_LEVEL = 2  # up to this level sentences are short and numbers small
_BUCKETS = {"validation": (0,), "test": (1,), "train": tuple(range(2, 10))}
_REFERS_BACK = re.compile(r"\b(?:them|more|all|another|further|each|there)\b")


class GeneratedTask(NamedTuple):
    """One generated problem."""

    task_id: str
    """`gsm8k-generated/SPLIT/LEVEL/INDEX`."""
    question: str
    answer: str
    """The gold number, a positive integer."""
    operations: tuple[Operation, ...]
    """The steps of the solution in order."""
    level: int
    """The number of operations."""
    key: str
    """What identifies the problem regardless of its words: the kinds of events in order, with their numbers."""
    words: Wording
    """Its names and things."""
    notes: tuple[Note, ...]
    """The sentence of the solution for each step."""

    @property
    def solution(self) -> str:
        """The worked solution in GSM8K's annotation, with `#### N` as its last line."""
        lines = []
        for step, (says, kind, owner, more) in zip(self.operations, self.notes, strict=True):
            x = f"{step.expression}=<<{step.expression}={step.result}>>{step.result}"
            fields: dict[str, object] = {**more, "x": x, "are": "are"}
            if step.result == 1:  # nouns end in -s
                item = self.words.item[:-1]
                fields |= {"are": "is", "it": item, "unit": item if kind == "items" else kind[:-1]}
            lines.append(self.words.sentence(says, kind, owner, fields))
        return "\n".join([*lines, f"#### {self.answer}"])


class GeneratedGSM8K(GeneratedTasks[GeneratedTask]):
    """The generated tasks of one split.

    Args:
        split: "train" (100,000 tasks), "validation" or "test" (1,000 each).
        level: Operations per problem: 1 to 8, or a range like "2-4" or [2, 4] from which each task's level is drawn
            evenly. Up to 2 the sentences are short and the numbers small; from 3 on come money and ways, percents,
            fractions and leftovers; from 4 on, facts that do not matter.
    """

    def __init__(self, split: str = "train", level: Level = DEFAULT_LEVEL) -> None:
        self.levels = parse_range("level", level, 1, 8)
        super().__init__(split, split, self.levels, cache=256)

    def get(self, index: int) -> GeneratedTask:
        name = f"gsm8k-generated/{self.split}/{self.levels}/{index}"
        draws = stream(name)
        level = draws.between(*self.levels)
        world, key = _story(draws, level, _BUCKETS[self.split])
        words = world.wording()
        text = world.text(words)
        for _ in range(max(0, world.draws.between(0, world.level) // 2 - 1)):  # facts that do not matter
            _add_trivia(world, words, text)
        question, answer = " ".join(text), str(world.operations[-1].result)
        return GeneratedTask(name, question, answer, tuple(world.operations), level, key, words, tuple(world.notes))


def _story(draws: Draws, level: int, buckets: tuple[int, ...]) -> tuple[World, str]:
    """Make a world whose answer takes exactly `level` operations and whose key falls into one of the buckets.

    If the key does not, only the last event is drawn again: keeping splits apart costs no more than that.
    """
    plain = level <= PLAIN_LEVEL
    while True:
        kind = "items" if plain else draws.pick(("items", "items", "items", "dollars", "dollars", "kilometers"))
        world = World(draws, level, plain, kind)
        for _ in range(MAX_EVENTS):
            before = world.mark()
            role = _next_event(world, level - len(world.operations), before)
            if not role:
                break
            if len(world.operations) < level:
                continue
            key = " ".join(world.key)
            if hashlib.sha256(key.encode()).digest()[0] % 10 in buckets:
                if role != "close":
                    world.tell(WORDS["ask_now"][world.kind])
                return world, key
            world.back_to(before)


def _next_event(world: World, left: int, before: Mark) -> str:
    """Apply one more event of at most `left` operations. Return its role, or "" if none fits."""
    first, pick = not world.operations, world.draws.pick
    events = _choices(world.kind, left if left <= 3 else 4, world.plain, first)
    for _ in range(20):
        event = pick(events)
        if event.name in world.key:
            continue
        try:
            if first and event.role != "open":
                world.now = world.start(event.sign)
                world.tell(WORDS["given"][world.kind], n=world.now.value)
                world.key += (world.kind, str(world.now.value))
            event.run(world)
        except Impossible:
            world.back_to(before)
            continue
        return event.role
    return ""


@functools.cache
def _choices(kind: str, left: int, plain: bool, first: bool) -> tuple[Event, ...]:
    """Return the events for a kind of quantity that take at most `left` operations; a question must take all of them.

    Events are repeated so that all signs are equally likely, and within a sign all its events.
    """
    fitting: dict[str, list[Event]] = {}
    for event in EVENTS:
        if (
            kind in event.kinds
            and (event.plain or not plain)
            and event.cost <= left
            and (first or event.role != "open")
            and (event.role != "close" or event.cost == left)
        ):
            fitting.setdefault(event.sign, []).append(event)
    size = math.lcm(*map(len, fitting.values()))
    return tuple(event for events in fitting.values() for event in events * (size // len(events)))


def _add_trivia(world: World, words: Wording, text: list[str]) -> None:
    """Insert an irrelevant fact about someone else, where no later word refers back across it."""
    positions = [0] + [i for i in range(1, len(text)) if not _REFERS_BACK.search(text[i])]
    stranger = world.draws.pick(NAMES)
    while any(stranger in sentence for sentence in text):
        stranger = world.draws.pick(NAMES)
    fact = world.draws.pick(WORDS["trivia"]).format(
        A=words.names[world.owner], C=stranger, n=world.draws.between(2, 60)
    )
    text.insert(world.draws.pick(positions), fact)
