"""Families of generated problems. Each draws numbers, and returns the question, its answer, and a program for it.

The answers are computed here by another way than the programs go (a formula, a recurrence, inclusion and exclusion),
so that one checks the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from agent_envs.datasets.draws import Draws, Impossible

__all__ = ["FAMILIES", "Drawn"]


class Drawn(NamedTuple):
    """What a family draws."""

    question: str
    answer: Fraction
    program: str
    """A program that prints the answer; `Fraction` where it is no integer."""
    key: tuple[int, ...]
    """The numbers that make the problem what it is."""


def _divisible(draws: Draws, level: int) -> Drawn:
    low = draws.between(10, 50 * 4**level)
    high = low + draws.between(100, 300 * 4**level)
    divisors = sorted({draws.between(3, 9 + 4 * level) for _ in range(3)})
    if len(divisors) < 2:
        raise Impossible

    def up_to(top: int) -> int:
        """Count by inclusion and exclusion."""
        total = 0
        for size in range(1, len(divisors) + 1):
            for chosen in combinations(divisors, size):
                total += (-1) ** (size + 1) * (top // math.lcm(*chosen))
        return total

    words = ", ".join(map(str, divisors[:-1])) + f" or {divisors[-1]}"
    return Drawn(
        f"How many integers from {low} to {high}, both included, are divisible by {words}?",
        Fraction(up_to(high) - up_to(low - 1)),
        f"print(sum(any(n % d == 0 for d in {divisors}) for n in range({low}, {high} + 1)))",
        (low, high, *divisors),
    )


def _power(draws: Draws, level: int) -> Drawn:
    base, exponent = draws.between(7, 10 ** (level + 1)), draws.between(50, 10 ** (level + 3))
    modulus = draws.between(97, 10 ** (level + 2))
    result, square, rest = 1, base % modulus, exponent
    while rest:  # by squaring
        if rest % 2:
            result = result * square % modulus
        square, rest = square * square % modulus, rest // 2
    return Drawn(
        f"What is the remainder when {base} to the power of {exponent} is divided by {modulus}?",
        Fraction(result % modulus),
        f"print(pow({base}, {exponent}, {modulus}))",
        (base, exponent, modulus),
    )


def _primes(draws: Draws, level: int) -> Drawn:
    low = draws.between(20, 40 * 4**level)
    high = low + draws.between(60, 60 * 4**level)
    sieve = bytearray([1]) * (high + 1)
    sieve[:2] = b"\0\0"
    for n in range(2, math.isqrt(high) + 1):
        if sieve[n]:
            sieve[n * n :: n] = bytes(len(range(n * n, high + 1, n)))
    answer = sum(n for n in range(low, high + 1) if sieve[n])
    return Drawn(
        f"What is the sum of all prime numbers between {low} and {high}?",
        Fraction(answer),
        "def prime(n):\n    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))\n"
        f"print(sum(n for n in range({low}, {high} + 1) if prime(n)))",
        (low, high),
    )


def _change(draws: Draws, level: int) -> Drawn:
    coins = sorted({1 + draws.between(1, 6 + 4 * level) for _ in range(2 + (level + 1) // 2)})
    amount = draws.between(20, 40 * (level + 1))
    if len(coins) < 2:
        raise Impossible
    ways = [1] + [0] * amount
    for coin in coins:
        for total in range(coin, amount + 1):
            ways[total] += ways[total - coin]
    words = ", ".join(map(str, coins[:-1])) + f" and {coins[-1]}"
    return Drawn(
        f"A land has coins of {words} cents. In how many ways can {amount} cents be paid exactly, if the order of the "
        "coins does not matter?",
        Fraction(ways[amount]),
        f"from functools import lru_cache\ncoins = {coins}\n@lru_cache(None)\ndef ways(amount, i):\n"
        "    if amount == 0: return 1\n    if amount < 0 or i == len(coins): return 0\n"
        f"    return ways(amount - coins[i], i) + ways(amount, i + 1)\nprint(ways({amount}, 0))",
        (amount, *coins),
    )


def _digits(draws: Draws, level: int) -> Drawn:
    count = 2 + (level + 1) // 2
    total = draws.between(5, 9 * count - 5)
    divisor = draws.between(2, 4 + 2 * level)
    ways = {(0, 0): 1}  # by digit: the sum and the remainder so far
    for place in range(count):
        found: dict[tuple[int, int], int] = {}
        for (so_far, remainder), n in ways.items():
            for digit in range(place == 0, 10):
                key = so_far + digit, (remainder * 10 + digit) % divisor
                found[key] = found.get(key, 0) + n
        ways = found
    return Drawn(
        f"How many positive integers with exactly {count} digits have a digit sum of {total} and are divisible by "
        f"{divisor}?",
        Fraction(ways.get((total, 0), 0)),
        f"print(sum(sum(map(int, str(n))) == {total} and n % {divisor} == 0 "
        f"for n in range(10**{count - 1}, 10**{count})))",
        (count, total, divisor),
    )


def _sequence(draws: Draws, level: int) -> Drawn:
    modulus = draws.between(50, 10 ** (level + 2))
    factor, step, start = draws.between(2, modulus - 1), draws.between(1, modulus - 1), draws.between(1, modulus - 1)
    steps = draws.between(10, 10 ** (level + 1))
    power, total = 1, 0  # of the map x -> power * x + total, by squaring
    a, b, rest = factor, step, steps
    while rest:
        if rest % 2:
            power, total = power * a % modulus, (total * a + b) % modulus
        a, b, rest = a * a % modulus, (a * b + b) % modulus, rest // 2
    return Drawn(
        f"A machine shows the number {start}. At every beat the number is multiplied by {factor}, {step} is added, and "
        f"only the remainder of a division by {modulus} stays. What does the machine show after {steps} beats?",
        Fraction((power * start + total) % modulus),
        f"x = {start}\nfor _ in range({steps}):\n    x = (x * {factor} + {step}) % {modulus}\nprint(x)",
        (start, factor, step, modulus, steps),
    )


_THINGS = ("lamps", "kettles", "ropes", "barrels", "wheels")


def _system(draws: Draws, level: int) -> Drawn:
    size = 2 if level < 3 else 3 if level < 5 else 4
    prices = [draws.between(3, 20 * (level + 1)) for _ in range(size)]
    orders = [[draws.between(1, 9) for _ in range(size)] for _ in range(size)]
    if _determinant(orders) == 0:
        raise Impossible
    asked = [draws.between(1, 9) for _ in range(size)]
    things = _THINGS[:size]

    def bill(order: list[int]) -> str:
        items = [f"{n} {thing if n > 1 else thing[:-1]}" for n, thing in zip(order, things, strict=True)]
        return ", ".join(items[:-1]) + f" and {items[-1]}"

    totals = [sum(n * price for n, price in zip(order, prices, strict=True)) for order in orders]
    told = " ".join(f"{bill(order)} cost {total} coins." for order, total in zip(orders, totals, strict=True))
    return Drawn(
        f"At one market, where every thing has a fixed price: {told} How many coins do {bill(asked)} cost?",
        Fraction(sum(n * price for n, price in zip(asked, prices, strict=True))),
        "from fractions import Fraction\n"
        f"rows = [[Fraction(n) for n in row] for row in {[[*o, t] for o, t in zip(orders, totals, strict=True)]}]\n"
        "for i in range(len(rows)):\n"
        "    p = next(r for r in range(i, len(rows)) if rows[r][i])\n    rows[i], rows[p] = rows[p], rows[i]\n"
        "    rows[i] = [v / rows[i][i] for v in rows[i]]\n"
        "    for r in range(len(rows)):\n        if r != i:\n"
        "            rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i])]\n"
        f"print(sum(n * row[-1] for n, row in zip({asked}, rows)))",
        (*prices, *(n for order in orders for n in order), *asked),
    )


def _determinant(rows: list[list[int]]) -> int:
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:i] + row[i + 1 :] for row in rows[1:]] for i in range(len(rows)))
    return sum((-1) ** i * rows[0][i] * _determinant(minor) for i, minor in enumerate(minors))


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _dates(draws: Draws, level: int) -> Drawn:
    first = draws.between(1850, 2050)
    last = first + draws.between(2, 10 * level)
    day, weekday = draws.between(1, 28), draws.between(0, 6)
    answer = 0
    for year in range(first, last + 1):
        for month in range(1, 13):  # Zeller's congruence, in which January and February belong to the year before
            y, m = (year, month) if month > 2 else (year - 1, month + 12)
            answer += (day + 13 * (m + 1) // 5 + y + y // 4 - y // 100 + y // 400 + 5) % 7 == weekday
    return Drawn(
        f"How many times does the day {day} of a month fall on a {_WEEKDAYS[weekday]} from January {first} to December "
        f"{last}?",
        Fraction(answer),
        f"import datetime\nprint(sum(datetime.date(y, m, {day}).weekday() == {weekday} "
        f"for y in range({first}, {last} + 1) for m in range(1, 13)))",
        (first, last, day, weekday),
    )


def _dice(draws: Draws, level: int) -> Drawn:
    count, sides = draws.between(2, 2 + level), draws.between(4, 6 + level)
    least = draws.between(count + 2, count * sides - 1)
    # Inclusion and exclusion over the dice that show more than their sides.
    fewer = sum(
        (-1) ** k * math.comb(count, k) * math.comb(total - sides * k - 1, count - 1)
        for total in range(count, least)
        for k in range((total - count) // sides + 1)
    )
    return Drawn(
        f"{count} fair dice with {sides} sides each, numbered from 1, are thrown. What is the probability that the sum "
        f"is at least {least}? Answer with a reduced fraction.",
        1 - Fraction(fewer, sides**count),
        "from fractions import Fraction\nways = {0: 1}\n"
        f"for _ in range({count}):\n    new = {{}}\n    for s, n in ways.items():\n"
        f"        for d in range(1, {sides} + 1):\n            new[s + d] = new.get(s + d, 0) + n\n    ways = new\n"
        f"print(Fraction(sum(n for s, n in ways.items() if s >= {least}), {sides}**{count}))",
        (count, sides, least),
    )


def _paths(draws: Draws, level: int) -> Drawn:
    width, height = draws.between(4, 4 + 2 * level), draws.between(4, 4 + 2 * level)
    blocked = (draws.between(1, width - 1), draws.between(1, height - 1))
    through = math.comb(sum(blocked), blocked[0])
    through *= math.comb(width - blocked[0] + height - blocked[1], width - blocked[0])
    return Drawn(
        f"A robot walks on a grid from (0, 0) to ({width}, {height}), one unit to the right or up at a time. The point "
        f"{blocked} is closed. How many paths are there?",
        Fraction(math.comb(width + height, width) - through),
        f"w, h, closed = {width}, {height}, {blocked}\npaths = {{(0, 0): 1}}\nfor x in range(w + 1):\n"
        "    for y in range(h + 1):\n        if (x, y) != (0, 0):\n"
        "            n = paths.get((x - 1, y), 0) + paths.get((x, y - 1), 0)\n"
        "            paths[x, y] = 0 if (x, y) == closed else n\nprint(paths[w, h])",
        (width, height, *blocked),
    )


FAMILIES: dict[str, Callable[[Draws, int], Drawn]] = {
    "change": _change,
    "dates": _dates,
    "dice": _dice,
    "digits": _digits,
    "divisible": _divisible,
    "paths": _paths,
    "power": _power,
    "primes": _primes,
    "sequence": _sequence,
    "system": _system,
}
"""Each family's function: (draws, level 1 to 5) -> what it draws."""
