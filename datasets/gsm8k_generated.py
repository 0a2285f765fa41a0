"""Generated GSM8K problems: random access, worked solutions, disjoint splits.

    question  "Mirel has 8 bags with 6 coins in each. Mirel loses 5 of them. How many coins does Mirel have now?"
    solution  "Mirel has 8*6=<<8*6=48>>48 coins.\\nMirel has 48-5=<<48-5=43>>43 coins.\\n#### 43"

Task i of a split is a function of the split's name, i and the level alone. A problem is told by a small world
(`gsm8k_world`, `gsm8k_events`, `gsm8k_long_events`); its level is the number of operations of its worked solution.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.draws import Draws, Impossible, stream
from agent_envs.datasets.gsm8k_events import ASK_NOW, GIVEN, TRIVIA
from agent_envs.datasets.gsm8k_long_events import EVENTS
from agent_envs.datasets.gsm8k_world import (
    BOXES,
    ITEMS,
    PLAIN_ITEMS,
    Event,
    Operation,
    World,
)
from agent_envs.errors import ConfigError, TaskIndexError, did_you_mean

__all__ = ["DEFAULT_LEVEL", "GeneratedGSM8K", "GeneratedTask", "generated_gsm8k"]

SIZES = {"train": 100_000, "validation": 1_000, "test": 1_000}
DEFAULT_LEVEL = "1-8"
LEVELS = range(1, 9)
PLAIN_LEVEL = 2  # up to here sentences are short and numbers small
_BUCKETS = {"validation": (0,), "test": (1,), "train": (2, 3, 4, 5, 6, 7, 8, 9)}
_REFERS_BACK = re.compile(r"\b(?:them|more|all|another|further|each|there)\b")
_SIGNS = ("+", "-", "*", "/")


@dataclass(frozen=True, slots=True)
class GeneratedTask:
    """One generated problem."""

    task_id: str
    """`gsm8k-generated/SPLIT/LEVEL/INDEX`."""
    question: str
    """The text of the problem."""
    answer: str
    """The gold number, a positive integer."""
    solution: str
    """The worked solution in GSM8K's annotation, with `#### N` as its last line."""
    operations: tuple[Operation, ...]
    """The steps of the solution in order."""
    level: int
    """The number of operations."""
    key: str
    """What the problem is whatever its words: the kinds of events in order, with their numbers."""


class GeneratedGSM8K:
    """The generated tasks of one split.

    Args:
        split: "train" (100,000 tasks), "validation" or "test" (1,000 each).
        level: Operations per problem: 1 to 8, or a range like "2-4" from which each task's level is drawn evenly. Up
            to 2 the sentences are short and the numbers small; from 3 on come money and ways, percents, fractions and
            leftovers; from 4 on, facts that do not matter.

    Raises:
        ConfigError: There is no such split or level.
    """

    name = "generated"

    def __init__(self, split: str = "train", level: int | str = DEFAULT_LEVEL) -> None:
        if split not in SIZES:
            raise ConfigError(f"generated GSM8K has no split {split!r}.{did_you_mean(split, SIZES)}")
        self.split = split
        self.low, self.high = parse_level(level)
        self.level = f"{self.low}-{self.high}" if self.low != self.high else str(self.low)
        self._cached = functools.lru_cache(maxsize=1024)(self._make)

    def __len__(self) -> int:
        return SIZES[self.split]

    def __getitem__(self, index: int) -> GeneratedTask:
        if not 0 <= index < len(self):
            raise TaskIndexError(f"split {self.split!r} has tasks 0 to {len(self) - 1}, got index {index}")
        return self._cached(int(index))

    def __iter__(self) -> Iterator[GeneratedTask]:
        return (self[index] for index in range(len(self)))

    def __deepcopy__(self, memo: object) -> GeneratedGSM8K:
        return self  # nothing in it changes: copies of an environment share it

    def __reduce__(self) -> tuple[Any, ...]:
        return generated_gsm8k, (self.split, self.level)

    def _make(self, index: int) -> GeneratedTask:
        name = f"gsm8k-generated/{self.split}/{self.level}/{index}"
        draws = stream(name)
        level = draws.between(self.low, self.high)
        while True:
            world = _tell_story(draws, level)
            key = " ".join(world.key)
            if hashlib.sha256(key.encode()).digest()[0] % 10 in _BUCKETS[self.split]:
                break
        answer = str(world.now.value)
        return GeneratedTask(
            task_id=name,
            question=" ".join(world.text),
            answer=answer,
            solution="\n".join([*world.steps, f"#### {answer}"]),
            operations=tuple(world.operations),
            level=level,
            key=key,
        )


@functools.lru_cache(maxsize=64)
def generated_gsm8k(split: str, level: int | str = DEFAULT_LEVEL) -> GeneratedGSM8K:
    """The generated tasks of a split, one object per process."""
    return GeneratedGSM8K(split, level)


def parse_level(level: int | str) -> tuple[int, int]:
    """The lowest and the highest number of operations that a level stands for.

    Raises:
        ConfigError: It is neither a number from 1 to 8 nor a range of them.

    >>> parse_level(2), parse_level("3"), parse_level("1-8")
    ((2, 2), (3, 3), (1, 8))
    """
    match = re.fullmatch(r"([1-8])(?:-([1-8]))?", str(level)) if not isinstance(level, bool) else None
    if match is None or int(match[1]) > int(match[2] or match[1]):
        raise ConfigError(f"level must be a number of operations from 1 to 8 or a range like '1-4', got {level!r}")
    return int(match[1]), int(match[2] or match[1])


def _tell_story(draws: Draws, level: int) -> World:
    """A finished world whose answer takes exactly `level` operations."""
    while True:
        world = _new_world(draws, level)
        role = "event"
        while role and len(world.operations) < level:
            role = _go_on(world, level - len(world.operations))
        if not role:
            continue
        if role != "close":
            world.tell(ASK_NOW[world.kind])
        for _ in range(max(0, draws.between(0, level) // 2 - 1)):
            _add_trivia(world)
        return world


def _new_world(draws: Draws, level: int) -> World:
    plain = level <= PLAIN_LEVEL
    kind = "items" if plain else draws.pick(("items", "items", "items", "dollars", "dollars", "kilometers"))
    item = draws.pick(PLAIN_ITEMS if plain else ITEMS)
    world = World(draws, plain, kind, item=item, box=draws.pick(BOXES))
    world.owner = world.someone()
    return world


def _go_on(world: World, left: int) -> str:
    """Let one more event happen that takes at most `left` operations; its role, or "" where nothing fits."""
    for _ in range(20):
        sign = world.draws.pick(_SIGNS)
        events = _choices(world.kind, sign, min(left, 3), left <= 3, world.plain, not world.operations)
        if not events:
            continue
        event = world.draws.pick(events)
        if event.name in world.key:
            continue
        before = world.mark()
        try:
            if not world.operations and event.role != "open":
                world.now = world.start(sign)
                world.tell(GIVEN[world.kind], n=world.now.value)
                world.key += (world.kind, str(world.now.value))
            event.run(world)
        except Impossible:
            world.back_to(before)
            continue
        return event.role
    return ""


@functools.cache
def _choices(kind: str, sign: str, left: int, may_close: bool, plain: bool, first: bool) -> tuple[Event, ...]:
    """The events that fit a kind of quantity and take at most `left` operations; a question must take them all."""
    return tuple(
        event
        for event in EVENTS
        if kind in event.kinds
        and event.sign == sign
        and (event.plain or not plain)
        and event.cost <= left
        and (first or event.role != "open")
        and (event.role != "close" or (may_close and event.cost == left))
    )


def _add_trivia(world: World) -> None:
    """Put in a fact that does not matter, where no word refers back over it."""
    places = [0] + [i for i in range(1, len(world.text)) if not _REFERS_BACK.search(world.text[i])]
    fact = world.draws.pick(TRIVIA).format(A=world.owner, C=world.someone(), n=world.draws.between(2, 60))
    world.text.insert(world.draws.pick(places), fact)
