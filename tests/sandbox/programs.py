"""Ordinary programs, as a policy writes them: every complete sandbox must print what CPython prints."""

# ruff: noqa: E501  a program is easier to read with its lines whole

_TEXT = r"""
# arithmetic
print(7 * 6, 7 / 2, 7 // 2, -7 // 2, -7 % 3, 2 ** 10, 0.1 + 0.2, 1e21, 5 / 4 == 1.25, 1_000_000)
# large integers
print(2 ** 200, sum(map(int, str(3 ** 100))), pow(5, 117, 19), pow(3, -1, 7), int("ff", 16))
# floats
print(round(2.5), round(3.14159, 2), float("inf"), -0.0, 1 / 3, 1e-7, 100.0, 1.5e300 * 1e10, float("nan"))
# half cents
print(round(2.675, 2), round(1.005, 2), round(0.125, 2), round(1234.5, -2))
# number formats
print(f"{1234567.891:,.2f} {0.256:.1%} {255:x} {255:#b} {7:03d} {3.0:g} {12345.678:e} {5:>4}|{5:<4}|{5:^4}|{5:+}")
# words in a format
name, value = "Ann", 3.14159
print(f"{name!r:>10} {value:.2f} {value = :.1f} {'nested ' + name}", "%s %5.1f %d%%" % ("a", 2.55, 7), "{:>5}{}".format(1, 2))
# strings
text = "the quick brown fox"
print(text.title(), text.split(), text[::-1], text.replace("o", "0"), text.find("fox"), text.partition(" "), len(text))
# more strings
print("abc".center(9, "*"), "7".zfill(3), " x ".strip(), "a,b,,c".split(","), "-".join("abc"), "aXb".swapcase())
# unicode
print("héllo wörld".upper(), len("日本語"), "straße".casefold(), "\u0041", "ß".upper(), sorted("éaz"))
# lists
a = [5, 3, 8, 1]
a.sort(); a.append(9); a.insert(0, 7); print(a, a[1:3], a[-1], a.index(8), a.count(9), sorted(a, reverse=True), a * 2)
# dictionaries
d = {"b": 2, "a": 1}
d["c"] = 3; d.update(a=5); print(d, sorted(d.items()), d.get("z", 0), d.pop("b"), list(d), max(d, key=d.get))
# sets
print(sorted({3, 1, 2} & {2, 3, 4}), len({1, 2} | {3}), {1, 2} <= {1, 2, 3}, frozenset([1]) == {1}, {5} - {5})
# comprehensions
print([i * j for i in range(3) for j in range(3) if i != j], {k: v for k, v in zip("ab", (1, 2))}, sum(x * x for x in range(9)))
# unpacking
first, *middle, last = range(6)
(a, b), c = (1, 2), 3
print(first, middle, last, a, b, c, [*range(2), *"ab"], {**{"x": 1}, "y": 2})
# conditions
for n in range(1, 16): print("FizzBuzz" if n % 15 == 0 else "Fizz" if n % 3 == 0 else "Buzz" if n % 5 == 0 else n, end=" ")
print()
# loops
for i in range(10):
    if i == 3: continue
    if i == 6: break
    print(i, end=",")
else:
    print("never")
n = 27; steps = 0
while n != 1: n = n // 2 if n % 2 == 0 else 3 * n + 1; steps += 1
print(steps)
# functions
def f(a, b=2, *rest, c=3, **more): return a + b + c + sum(rest) + len(more)
print(f(1), f(1, 5, 6, 7, c=0, d=1), (lambda x: x * 2)(4), f(*[1, 2], **{"c": 9}))
# closures
def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step
step = counter(); step(); print(step(), step())
# recursion
def hanoi(n): return 0 if n == 0 else 2 * hanoi(n - 1) + 1
def ack(m, n): return n + 1 if m == 0 else ack(m - 1, 1) if n == 0 else ack(m - 1, ack(m, n - 1))
print(hanoi(12), ack(2, 3))
# exceptions
try: 1 / 0
except ZeroDivisionError as e: print("caught", e)
finally: print("finally")
try: [][1]
except (IndexError, KeyError) as e: print(type(e).__name__, e)
try: int("x")
except ValueError as e: print(e)
# own exceptions
class Short(Exception): pass
try:
    raise Short("too short")
except Exception as e:
    print(repr(e), isinstance(e, Short))
# classes
class Account:
    def __init__(self, owner, balance=0): self.owner, self.balance = owner, balance
    def deposit(self, x): self.balance += x; return self
    def __repr__(self): return f"Account({self.owner}, {self.balance})"
print(Account("Ann").deposit(50).deposit(5))
# inheritance
class Shape:
    def area(self): return 0
class Square(Shape):
    def __init__(self, side): self.side = side
    def area(self): return super().area() + self.side ** 2
print(sum(s.area() for s in (Square(2), Square(3), Shape())), issubclass(Square, Shape))
# operators of a class
class V:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, o): return V(self.x + o.x, self.y + o.y)
    def __eq__(self, o): return (self.x, self.y) == (o.x, o.y)
    def __str__(self): return f"<{self.x} {self.y}>"
print(V(1, 2) + V(3, 4), V(1, 1) == V(1, 1))
# properties
class T:
    def __init__(self, c): self.c = c
    @property
    def f(self): return self.c * 9 / 5 + 32
    @staticmethod
    def zero(): return T(0)
    @classmethod
    def of(cls, c): return cls(c)
print(T(100).f, T.zero().f, T.of(10).f)
# dataclasses
from dataclasses import dataclass, field
@dataclass(order=True)
class Item:
    price: float
    name: str = field(compare=False, default="?")
print(Item(2.5, "a"), sorted([Item(3.0), Item(1.0)])[0].price, Item(1.0) == Item(1.0, "b"))
# generators
def squares(n):
    for i in range(n): yield i * i
g = squares(4); print(next(g), list(g), sum(squares(10)), dict(enumerate("ab")))
# endless generators
from itertools import islice
def fib():
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b
print(list(islice(fib(), 12)))
# match
def kind(x):
    match x:
        case 0: return "zero"
        case int() if x < 0: return "negative"
        case [a, b]: return f"pair {a} {b}"
        case {"k": v}: return v
        case _: return "other"
print(kind(0), kind(-1), kind([1, 2]), kind({"k": 5}), kind("x"))
# walrus
if (n := len("hello")) > 3: print(n, [y for x in range(5) if (y := x * x) > 3])
# with
class Block:
    def __enter__(self): print("in"); return self
    def __exit__(self, *a): print("out"); return True
with Block(): raise ValueError
print("after")
# global
count = 0
def up():
    global count
    count += 1
for _ in range(3): up()
print(count, "count" in globals())
# math
import math
print(math.gcd(12, 18), math.lcm(4, 6), math.comb(10, 3), math.factorial(20), math.isqrt(50), math.pi, math.sqrt(2), math.log(8, 2))
# more math
import math
print(math.ceil(3.2), math.floor(-3.5), math.prod([1, 2, 3, 4]), math.hypot(3, 4), math.degrees(math.pi), math.perm(5, 2), math.dist((0, 0), (3, 4)))
# fractions
from fractions import Fraction as F
print(F(1, 3) + F(1, 6), F("0.125"), float(F(3, 4)), F(22, 7).limit_denominator(3), sum(F(1, n) for n in range(1, 6)))
# decimals
from decimal import Decimal, getcontext
getcontext().prec = 12
print(Decimal(1) / Decimal(7), Decimal("0.1") + Decimal("0.2"), Decimal("2.675").quantize(Decimal("0.01")))
# statistics
import statistics
print(statistics.mean([1, 2, 3, 4]), statistics.median([3, 1, 2]), round(statistics.stdev([1, 2, 3, 4]), 6), statistics.mode("aab"))
# combinations
from itertools import combinations, product, permutations
print(len(list(combinations(range(10), 3))), sum(1 for a, b in product(range(1, 7), repeat=2) if a + b == 7), list(permutations("abc", 2))[:3])
# iterators
from itertools import accumulate, chain, groupby, zip_longest, count, takewhile
print(list(accumulate([1, 2, 3])), list(chain([1], [2])), [(k, len(list(v))) for k, v in groupby("aabbb")], list(takewhile(lambda x: x < 4, count(1))))
# counters
from collections import Counter, defaultdict, deque, namedtuple, OrderedDict
print(Counter("mississippi").most_common(2), Counter("ab") + Counter("bc"))
# collections
from collections import defaultdict, deque, namedtuple
d = defaultdict(list)
for i in range(6): d[i % 3].append(i)
q = deque([1, 2, 3], maxlen=3); q.append(4); q.rotate(1)
P = namedtuple("P", "x y")
print(dict(d), q, P(1, 2), P(1, 2)._replace(y=5).y)
# functools
from functools import lru_cache, reduce, partial
@lru_cache(None)
def f(n): return n if n < 2 else f(n - 1) + f(n - 2)
print(f(90), reduce(lambda a, b: a * b, range(1, 6)), partial(pow, 2)(5))
# operator
import operator
print(sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0)), operator.mul(3, 4), list(map(operator.neg, [1, 2])))
# heaps
import heapq
h = [5, 1, 4]; heapq.heapify(h); heapq.heappush(h, 0); print(heapq.heappop(h), heapq.nlargest(2, h), h)
# bisection
import bisect
a = [1, 3, 5]; bisect.insort(a, 4); print(a, bisect.bisect_left(a, 4), bisect.bisect_right(a, 5))
# dates
from datetime import date, timedelta
d = date(2024, 1, 31) + timedelta(days=30)
print(d, d.weekday(), d.strftime("%A %d %B %Y"), (date(2024, 12, 25) - d).days, d.isoformat(), date(2023, 3, 1) - timedelta(1))
# times
from datetime import datetime, timedelta
a = datetime(2024, 3, 1, 9, 30); b = datetime.strptime("2024-03-02 10:45", "%Y-%m-%d %H:%M")
print((b - a).total_seconds() / 3600, a + timedelta(hours=20), b.strftime("%H:%M"), a < b)
# calendars
import calendar
print(calendar.isleap(2000), calendar.monthrange(2023, 2)[1], calendar.day_name[0])
# seeded randomness
import random
random.seed(42)
print(random.random(), random.randint(1, 6), random.choice("abc"), random.sample(range(10), 3), round(random.gauss(0, 1), 9))
# shuffles
import random
r = random.Random(7); a = list(range(8)); r.shuffle(a); print(a, r.uniform(0, 1), r.choices([1, 2], weights=[1, 3], k=4))
# regular expressions
import re
print(re.findall(r"\d+", "a12b345"), re.sub(r"(\w+) (\w+)", r"\2 \1", "hello world"), re.match(r"(?P<y>\d{4})-(\d\d)", "2024-05")["y"], re.split(r"[,;]\s*", "a, b;c"))
# json
import json
print(json.dumps({"a": [1, 2.5, None, True], "b": "é"}), json.loads('{"x": [1, 2, {"y": null}]}'), json.dumps([1], indent=1))
# csv
import csv, io
rows = list(csv.DictReader(io.StringIO("name,n\nAnn,3\n\"Bob, Jr\",5\n")))
print(rows, sum(int(r["n"]) for r in rows))
# text tools
import textwrap, string
print(textwrap.fill("the quick brown fox jumps over the lazy dog", 20), string.ascii_lowercase[:5], textwrap.dedent("  a\n  b"))
# primes
def sieve(n):
    a = [True] * (n + 1)
    for i in range(2, int(n ** 0.5) + 1):
        if a[i]: a[i * i :: i] = [False] * len(a[i * i :: i])
    return [i for i in range(2, n + 1) if a[i]]
print(len(sieve(2000)), sieve(50))
# a matrix
m = [[1, 2], [3, 4]]
print([[sum(a * b for a, b in zip(r, c)) for c in zip(*m)] for r in m], list(map(list, zip(*m))), m[0][0] * m[1][1] - m[0][1] * m[1][0])
# simulation
state, hits = 12345, 0
for _ in range(5000):
    state = (1103515245 * state + 12345) % 2 ** 31
    x = state / 2 ** 31
    state = (1103515245 * state + 12345) % 2 ** 31
    hits += x * x + (state / 2 ** 31) ** 2 < 1
print(4 * hits / 5000)
# search
def queens(n, row=0, cols=frozenset(), a=frozenset(), b=frozenset()):
    if row == n: return 1
    return sum(queens(n, row + 1, cols | {c}, a | {row + c}, b | {row - c}) for c in range(n) if c not in cols and row + c not in a and row - c not in b)
print(queens(6))
# complex numbers
print((1 + 2j) * (3 - 1j), abs(3 + 4j), (1j) ** 2, complex("1+2j").imag)
# bytes
print(b"abc".hex(), bytes([65, 66]).decode(), "é".encode(), int.from_bytes(b"\x01\x00", "big"), bytearray(b"x") + b"y")
# hashes
import hashlib, base64
print(hashlib.sha256(b"abc").hexdigest()[:16], base64.b64encode(b"hello").decode(), hashlib.md5(b"").hexdigest())
# an enumeration
from enum import Enum
class Colour(Enum):
    RED = 1
    BLUE = 2
print(Colour.RED, Colour(2).name, [c.value for c in Colour])
# type hints
from typing import Optional
def half(x: int) -> Optional[float]: return x / 2 if x else None
print(half(3), half(0), half.__annotations__["x"])
# sympy: equations
import sympy as sp
x, y = sp.symbols("x y")
print(sp.solve(x**2 - 5*x + 6, x), sp.solve([sp.Eq(x + y, 10), sp.Eq(x - y, 2)], [x, y]), sp.factor(x**2 - 1))
# sympy: analysis
from sympy import symbols, sin, integrate, diff, limit, Rational, factorint
x = symbols("x")
print(integrate(x * sin(x), x), diff(x**3), limit(sin(x) / x, x, 0), Rational(1, 3) + Rational(1, 6), factorint(360))
# numpy
import numpy as np
print(np.linalg.solve(np.array([[2, 1], [1, 3]]), np.array([3, 5])).round(3), np.arange(10).mean(), np.eye(2).tolist())
# pandas
import pandas as pd
t = pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 3]})
print(t.groupby("a").b.sum().to_dict(), t.b.mean(), t.sort_values("b", ascending=False).a.tolist())
"""


def _parts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in text.strip().removeprefix("# ").split("\n# "):
        name, _, code = part.partition("\n")
        found[name] = code
    return found


PROGRAMS = _parts(_TEXT)
"""Programs by what they are about."""

NEEDS_PACKAGES = ("sympy: equations", "sympy: analysis", "numpy", "pandas")
"""Those that need more than the standard library."""
