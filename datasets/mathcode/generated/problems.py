"""Generated problems that take a program: random access, known answers, disjoint splits.

Task i of a split is a function of the split's name, i and the arguments alone. A problem belongs to the split that the
digest of its family and numbers says, so that no two splits share one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from agent_envs.datasets.draws import Impossible, parse_range, range_text, stream
from agent_envs.datasets.generated_tasks import GeneratedTasks, parse_families
from agent_envs.datasets.mathcode.generated.families import FAMILIES
from agent_envs.files import table
from agent_envs.rewards.math_answers import plain

DEFAULT_LEVEL = "1-5"
_SPLIT_OF = ("validation", "test", *("train",) * 8)  # by the last digit of the digest


class MathProblem(NamedTuple):
    """A generated problem."""

    task_id: str
    """`mathcode-generated/SPLIT/LEVEL/INDEX`."""
    question: str
    answer: str
    """The gold answer: an integer or a reduced fraction."""
    program: str
    """A program that prints it."""
    family: str
    """Its kind, one of `FAMILIES`."""
    level: int
    """How large its numbers are, 1 to 5."""


class GeneratedMath(GeneratedTasks[MathProblem]):
    """The generated problems of one split.

    >>> tasks = GeneratedMath("test", level=1, families="dates")
    >>> tasks[3].question
    'How many times does the day 16 of a month fall on a Saturday from January 2040 to December 2047?'

    Args:
        split: "train" (100,000 problems), "validation" or "test" (1,000 each).
        level: 1 to 5, or a range like "2-4", from which each problem's level is drawn.
        families: The kinds of problems, all by default.
    """

    def __init__(
        self, split: str, level: int | str | Sequence[int] = DEFAULT_LEVEL, families: str | Sequence[str] | None = None
    ) -> None:
        self.levels = parse_range("level", level, 1, 5)
        self.families = parse_families(families, FAMILIES)
        super().__init__(split, split, self.levels, self.families, cache=64)

    def get(self, index: int) -> MathProblem:
        level_text = range_text(*self.levels)
        kinds = "" if len(self.families) == len(FAMILIES) else "/" + "+".join(self.families)
        task_id = f"mathcode-generated/{self.split}/{level_text}{kinds}/{index}"
        draws = stream(task_id)
        while True:
            family, level = draws.pick(self.families), draws.between(*self.levels)
            try:
                answer, fields = FAMILIES[family](draws, level)
            except Impossible:
                continue
            key = tuple(_numbers(list(fields.values())))
            digest = hashlib.sha256(repr((family, key)).encode()).digest()
            if _SPLIT_OF[digest[0] % 10] == self.split:
                wording = table(__package__, "families.json")[family]
                question = wording["question"].format_map(fields)
                program = "\n".join(wording["program"]).format_map(fields)
                return MathProblem(task_id, question, plain(Fraction(answer)), program, family, level)


def _numbers(value: Any) -> Iterator[int]:
    """Yield the numbers in nested lists in order, without the texts."""
    if isinstance(value, int):
        yield value
    elif not isinstance(value, str):
        for item in value:
            yield from _numbers(item)
