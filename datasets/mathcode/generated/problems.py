"""Generated problems that take a program: random access, known answers, disjoint splits.

Task i of a split is a function of the split's name, i and the arguments alone. A problem belongs to the split that the
digest of its family and numbers says, so that no two splits share one.

Each family draws numbers and computes the answer; `families.json` has the wording. The answers are computed here by
another way than the programs in `families.json` go (a formula, a recurrence, inclusion and exclusion), so that one
checks the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from agent_envs.datasets.generated_tasks import Draws, GeneratedTasks, Impossible, parse_families, parse_range, stream
from agent_envs.files import table
from agent_envs.rewards.math_answers import plain

Posed = tuple[int | Fraction, dict[str, Any]]
"""The answer, and the fields of the wording. Numbers and lists of them make the problem what it is, texts do not."""


def _listed(items: list[Any], last: str) -> str:
    return f"{', '.join(map(str, items[:-1]))} {last} {items[-1]}"


def _divisible(draws: Draws, level: int) -> Posed:
    low = draws.between(10, 50 * 4**level)
    high = low + draws.between(100, 300 * 4**level)
    divisors = sorted({draws.between(3, 9 + 4 * level) for _ in range(3)})
    if len(divisors) < 2:
        raise Impossible

    def up_to(top: int) -> int:
        """Count by inclusion and exclusion."""
        subsets = (chosen for size in range(1, len(divisors) + 1) for chosen in combinations(divisors, size))
        return sum((-1) ** (len(chosen) + 1) * (top // math.lcm(*chosen)) for chosen in subsets)

    fields = {"low": low, "high": high, "divisors": divisors, "words": _listed(divisors, "or")}
    return up_to(high) - up_to(low - 1), fields


def _power(draws: Draws, level: int) -> Posed:
    base, exponent = draws.between(7, 10 ** (level + 1)), draws.between(50, 10 ** (level + 3))
    modulus = draws.between(97, 10 ** (level + 2))
    result = 1
    for bit in f"{exponent:b}":  # by squaring
        result = result * result * (base if bit == "1" else 1) % modulus
    return result, {"base": base, "exponent": exponent, "modulus": modulus}


def _primes(draws: Draws, level: int) -> Posed:
    low = draws.between(20, 40 * 4**level)
    high = low + draws.between(60, 60 * 4**level)
    sieve = bytearray([1]) * (high + 1)
    sieve[:2] = b"\0\0"
    for n in range(2, math.isqrt(high) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, high + 1, n)))
    return sum(n for n in range(low, high + 1) if sieve[n]), {"low": low, "high": high}


def _change(draws: Draws, level: int) -> Posed:
    coins = sorted({1 + draws.between(1, 6 + 4 * level) for _ in range(2 + (level + 1) // 2)})
    amount = draws.between(20, 40 * (level + 1))
    if len(coins) < 2:
        raise Impossible
    ways = [1] + [0] * amount
    for coin in coins:
        for total in range(coin, amount + 1):
            ways[total] += ways[total - coin]
    return ways[amount], {"amount": amount, "coins": coins, "words": _listed(coins, "and")}


def _digits(draws: Draws, level: int) -> Posed:
    count = 2 + (level + 1) // 2
    total = draws.between(5, 9 * count - 5)
    divisor = draws.between(2, 4 + 2 * level)
    ways = {(0, 0): 1}  # by digit: the sum and the remainder so far
    for place in range(count):
        longer: dict[tuple[int, int], int] = {}
        for (so_far, remainder), n in ways.items():
            for digit in range(place == 0, 10):
                key = so_far + digit, (remainder * 10 + digit) % divisor
                longer[key] = longer.get(key, 0) + n
        ways = longer
    return ways.get((total, 0), 0), {"count": count, "total": total, "divisor": divisor, "fewer": str(count - 1)}


def _sequence(draws: Draws, level: int) -> Posed:
    modulus = draws.between(50, 10 ** (level + 2))
    factor, step, start = draws.between(2, modulus - 1), draws.between(1, modulus - 1), draws.between(1, modulus - 1)
    steps = draws.between(10, 10 ** (level + 1))
    power, total = 1, 0  # of the map x -> power * x + total, by squaring
    a, b, rest = factor, step, steps
    while rest:
        if rest % 2:
            power, total = power * a % modulus, (total * a + b) % modulus
        a, b, rest = a * a % modulus, (a * b + b) % modulus, rest // 2
    fields = {"start": start, "factor": factor, "step": step, "modulus": modulus, "steps": steps}
    return (power * start + total) % modulus, fields


_THINGS = ("lamps", "kettles", "ropes", "barrels", "wheels")


def _system(draws: Draws, level: int) -> Posed:
    size = 2 if level < 3 else 3 if level < 5 else 4
    prices = [draws.between(3, 20 * (level + 1)) for _ in range(size)]
    orders = [[draws.between(1, 9) for _ in range(size)] for _ in range(size)]
    if round(np.linalg.det(orders)) == 0:
        raise Impossible
    asked = [draws.between(1, 9) for _ in range(size)]

    def bill(order: list[int]) -> str:
        items = [f"{n} {thing if n > 1 else thing[:-1]}" for n, thing in zip(order, _THINGS[:size], strict=True)]
        return _listed(items, "and")

    rows = [[*order, sum(map(mul, order, prices))] for order in orders]
    told = " ".join(f"{bill(order)} cost {row[-1]} coins." for order, row in zip(orders, rows, strict=True))
    fields = {"prices": prices, "orders": orders, "asked": asked, "told": told, "bill": bill(asked), "rows": str(rows)}
    return sum(map(mul, asked, prices)), fields


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _dates(draws: Draws, level: int) -> Posed:
    first = draws.between(1850, 2050)
    last = first + draws.between(2, 10 * level)
    day, weekday = draws.between(1, 28), draws.between(0, 6)
    answer = 0
    for year in range(first, last + 1):
        for month in range(1, 13):  # Zeller's congruence, in which January and February belong to the year before
            y, m = (year, month) if month > 2 else (year - 1, month + 12)
            answer += (day + 13 * (m + 1) // 5 + y + y // 4 - y // 100 + y // 400 + 5) % 7 == weekday
    return answer, {"first": first, "last": last, "day": day, "weekday": weekday, "name": _WEEKDAYS[weekday]}


def _dice(draws: Draws, level: int) -> Posed:
    count, sides = draws.between(2, 2 + level), draws.between(4, 6 + level)
    least = draws.between(count + 2, count * sides - 1)
    # Inclusion and exclusion over the dice that show more than their sides.
    fewer = sum(
        (-1) ** k * math.comb(count, k) * math.comb(total - sides * k - 1, count - 1)
        for total in range(count, least)
        for k in range((total - count) // sides + 1)
    )
    return 1 - Fraction(fewer, sides**count), {"count": count, "sides": sides, "least": least}


def _paths(draws: Draws, level: int) -> Posed:
    width, height = draws.between(4, 4 + 2 * level), draws.between(4, 4 + 2 * level)
    blocked = (draws.between(1, width - 1), draws.between(1, height - 1))
    through = math.comb(sum(blocked), blocked[0])
    through *= math.comb(width - blocked[0] + height - blocked[1], width - blocked[0])
    return math.comb(width + height, width) - through, {"width": width, "height": height, "blocked": blocked}


_POSERS = (_change, _dates, _dice, _digits, _divisible, _paths, _power, _primes, _sequence, _system)
FAMILIES: dict[str, Callable[[Draws, int], Posed]] = {poser.__name__[1:]: poser for poser in _POSERS}
"""Each family's function: (draws, level 1 to 5) -> the answer, and the fields of its wording."""


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
        kinds = "" if len(self.families) == len(FAMILIES) else "/" + "+".join(self.families)
        task_id = f"mathcode-generated/{self.split}/{self.levels}{kinds}/{index}"
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
