"""The small world behind the generated GSM8K problems: people, what they hold, and events that change it.

A `World` keeps the true quantities while events happen to them; each event says in the text what a reader is told, does
its arithmetic on the state, and notes the worked step. Nothing is computed from text, and no text is written that the
state does not bear out. What can happen is in `gsm8k_events` and
`gsm8k_long_events`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import add, floordiv, mul, sub
from typing import Any, NamedTuple

from agent_envs.datasets.draws import Draws, Impossible

__all__ = ["Event", "Operation", "Quantity", "World"]

_STARTS = ("Ta", "Mi", "Ol", "Bre", "Kas", "Nu", "Fen", "Zi", "Lor", "Da", "Pel", "Ru", "Vin", "Ha", "Sor", "Je", "Que")
_ENDS = ("vo", "rel", "na", "dric", "mo", "lis", "ban", "tha", "kin", "sel", "ro", "mira", "dun", "fa", "zen")
NAMES = tuple(start + end for start in _STARTS for end in _ENDS)
PLAIN_NAMES = (
    "Tavo",
    "Mirel",
    "Olna",
    "Bredric",
    "Kasmo",
    "Nulis",
    "Fenro",
    "Zitha",
    "Lorkin",
    "Dasel",
    "Pelro",
    "Rudun",
)
ITEMS = (
    *("apples", "pears", "books", "coins", "cards", "shells", "stamps", "pens", "marbles", "cookies", "eggs"),
    *(
        "flowers",
        "stickers",
        "balls",
        "bottles",
        "candles",
        "ribbons",
        "beads",
        "plums",
        "bricks",
        "seeds",
        "buttons",
        "lamps",
    ),
)
PLAIN_ITEMS = ITEMS[:16]
BOXES = ("boxes", "bags", "baskets", "packs", "jars", "crates")
TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
PERCENTS = (5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80)
LINKS = ("", "", "Then ", "Later, ", "After that, ", "The next day, ")

_RESULT = {"+": add, "-": sub, "*": mul, "/": floordiv, "//": floordiv}


class Quantity(NamedTuple):
    """A number of the world."""

    value: int
    """How many."""
    made_by: int | None = None
    """Index of the operation it is the result of; None where the text states it."""


class Operation(NamedTuple):
    """One step of the worked solution."""

    left: Quantity
    """Left operand."""
    op: str
    """One of `+ - * / //`."""
    right: Quantity
    """Right operand."""
    result: int
    """Its value."""

    @property
    def expression(self) -> str:
        """The step as the calculator takes it, like `12*7`."""
        return f"{self.left.value}{self.op}{self.right.value}"


@dataclass(slots=True)
class World:
    """The state of one problem: what is true, what has been told, and the steps so far."""

    draws: Draws
    """Source of every choice."""
    plain: bool
    """Short sentences and small numbers, as at levels 1 and 2."""
    kind: str = "items"
    """What `now` counts: items, dollars or kilometers."""
    owner: str = ""
    """Whose quantity the story follows."""
    item: str = ""
    box: str = ""
    cast: list[str] = field(default_factory=list)
    """People who have come up."""
    now: Quantity = Quantity(0)  # noqa: RUF009  (an immutable tuple)
    """The quantity the story follows."""
    known: dict[str, Quantity] = field(default_factory=dict)
    """What other people hold of the same kind."""
    text: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    """The worked solution, one line per operation."""
    operations: list[Operation] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    """Event kinds and numbers in order: what the problem is, whatever its words."""

    @property
    def cap(self) -> int:
        """The largest quantity that may come up."""
        return 150 if self.plain else 9999

    def mark(self) -> tuple[Any, ...]:
        """This point of the story, for `back_to`."""
        lengths = len(self.text), len(self.steps), len(self.operations), len(self.key), len(self.cast)
        return lengths, self.kind, self.owner, self.now, dict(self.known)

    def back_to(self, mark: tuple[Any, ...]) -> None:
        """Undo everything that happened since the mark."""
        lengths, self.kind, self.owner, self.now, self.known = mark
        text, steps, operations, key, cast = lengths
        del self.text[text:], self.steps[steps:], self.operations[operations:], self.key[key:], self.cast[cast:]

    def words(self, **more: object) -> dict[str, object]:
        """What sentence templates may name."""
        unit = self.item if self.kind == "items" else self.kind
        return {"A": self.owner, "it": self.item, "box": self.box, "unit": unit, **more}

    def tell(self, templates: Sequence[str], link: bool = False, **more: object) -> None:
        """Add a sentence to the text; the first template is the plain one."""
        template = templates[0] if self.plain else self.draws.pick(templates)
        prefix = self.draws.pick(LINKS) if link and not self.plain and template[0] == "{" else ""
        self.text.append(prefix + template.format_map(self.words(**more)))

    def work(self, left: Quantity, op: str, right: Quantity, says: str, cap: int = 0, **more: object) -> Quantity:
        """Do one operation and note it; raises Impossible where the result is no positive integer up to the cap."""
        a, b = left.value, right.value
        if op == "/" and a % b:
            raise Impossible
        result = _RESULT[op](a, b)
        if not 0 < result <= (cap or self.cap):
            raise Impossible
        self.operations.append(Operation(left, op, right, result))
        self.steps.append(says.format_map(self.words(x=f"{a}{op}{b}=<<{a}{op}{b}={result}>>{result}", **more)))
        return Quantity(result, len(self.operations) - 1)

    def someone(self) -> str:
        """A person who has not come up yet."""
        names = PLAIN_NAMES if self.plain else NAMES
        name = self.draws.pick(names)
        while name in self.cast:
            name = self.draws.pick(names)
        self.cast.append(name)
        return name

    def divisor(self, value: int, high: int = 12) -> int:
        """A divisor of value from 2 to high that leaves more than 1."""
        choices = [d for d in range(2, high + 1) if value % d == 0 and value // d > 1]
        if not choices:
            raise Impossible
        return self.draws.pick(choices)

    def number(self, sign: str) -> int:
        """A second operand that fits `now` and the sign."""
        now, draws = self.now.value, self.draws
        if sign == "+":
            return draws.between(2, 60 if self.plain or now < 100 else now)
        if sign == "-":
            return draws.between(2, min(now - 1, 60 if self.plain or now < 100 else now - 1))
        if sign == "*":
            return draws.between(2, min(12, self.cap // now))
        return self.divisor(now)

    def start(self, sign: str) -> Quantity:
        """A first quantity that suits an operation of this sign."""
        draws = self.draws
        scale = 1 if self.plain else draws.pick((1, 1, 2, 5))
        if sign == "+":
            return Quantity(draws.between(2, 60 * scale))
        if sign == "-":
            return Quantity(draws.between(10, 99 * scale))
        if sign == "*":
            return Quantity(draws.between(2, 12 * scale))
        divisor = draws.between(2, 12)
        return Quantity(divisor * draws.between(2, min(12, 99 // divisor) * scale))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that can happen."""

    name: str
    """Its kind, in the problem's key."""
    role: str
    """"open" (begins a story), "event" (goes on) or "close" (asks for something)."""
    kinds: tuple[str, ...]
    """The kinds of quantity it can happen to."""
    sign: str
    """The operation it is chosen for."""
    cost: int
    """Operations it takes."""
    plain: bool
    """Whether it comes up at levels 1 and 2."""
    run: Callable[[World], None]
    """Lets it happen."""
