"""The small world behind the generated GSM8K problems: people, what they hold, and events that change it.

A `World` keeps the true quantities while events happen to them; each event says in the text what a reader is told, does
its arithmetic on the state, and notes the worked step. Nothing is computed from text, and no text is written that the
state does not bear out. What can happen is in `gsm8k_events` and `gsm8k_long_events`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, floordiv, mul, sub
from typing import NamedTuple

from agent_envs.datasets.draws import Draws, Impossible

__all__ = ["Event", "Mark", "Note", "Operation", "Quantity", "Wording", "World"]

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


class Wording(NamedTuple):
    """The words that stand for a problem's people and things."""

    names: tuple[str, ...]
    """People by number."""
    item: str
    box: str

    def sentence(self, template: str, kind: str, owner: int, more: Mapping[str, object]) -> str:
        """A template filled in; of `more`, B (someone else), H and L (who has more, less) are numbers of people."""
        names, item, box = self
        words = {"A": names[owner], "it": item, "box": box, "unit": item if kind == "items" else kind, **more}
        if "B" in more:
            words["B"] = names[more["B"]]  # type: ignore[call-overload]
        elif "H" in more:
            words |= {"H": names[more["H"]], "L": names[more["L"]]}  # type: ignore[call-overload]
        return template.format_map(words)


Note = tuple[str, str, int, dict[str, object]]
"""A sentence to be: its template, the kind of quantity, the owner's number, and what else the template names."""


Mark = tuple[tuple[int, int, int], str, int, int, "Quantity", tuple[tuple[int, "Quantity"], ...]]
"""What `World.back_to` needs to know of a point of the story."""


@dataclass(slots=True)
class World:
    """The state of one problem: what is true, what is to be told, and the steps so far.

    People are numbers, and sentences are kept as templates: which names and wordings they get is drawn at the end,
    when the problem is known to be wanted.
    """

    draws: Draws
    """Source of every choice."""
    level: int
    """Operations that the problem is to take."""
    plain: bool
    """Short sentences and small numbers, as at levels 1 and 2."""
    kind: str = "items"
    """What `now` counts: items, dollars or kilometers."""
    owner: int = 0
    """Whose quantity the story follows."""
    people: int = 1
    """How many people have come up."""
    now: Quantity = Quantity(0)  # noqa: RUF009  (an immutable tuple)
    """The quantity the story follows."""
    known: tuple[tuple[int, Quantity], ...] = ()
    """What other people hold of the same kind."""
    told: list[tuple[Sequence[str], bool, str, int, dict[str, object]]] = field(default_factory=list)
    """The text: the wordings of each sentence, whether it may begin with "Then", and the rest of a `Note`."""
    notes: list[Note] = field(default_factory=list)
    """The worked solution, one line per operation."""
    operations: list[Operation] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    """Event kinds and numbers in order: what the problem is, whatever its words."""

    @property
    def cap(self) -> int:
        """The largest quantity that may come up."""
        return 150 if self.plain else 9999

    def mark(self) -> Mark:
        """This point of the story, for `back_to`."""
        lengths = len(self.told), len(self.notes), len(self.key)
        return lengths, self.kind, self.owner, self.people, self.now, self.known

    def back_to(self, mark: Mark) -> None:
        """Undo everything that happened since the mark."""
        (told, done, key), self.kind, self.owner, self.people, self.now, self.known = mark
        del self.told[told:], self.notes[done:], self.operations[done:], self.key[key:]

    def tell(self, templates: Sequence[str], link: bool = False, **more: object) -> None:
        """Add a sentence to the text; the first template is the plain one."""
        self.told.append((templates, link, self.kind, self.owner, more))

    def work(self, left: Quantity, op: str, right: Quantity, says: str, cap: int = 0, **more: object) -> Quantity:
        """Do one operation and note it; raises Impossible where the result is no positive integer up to the cap.

        Only the last result may be 1: what goes on is told in the plural.
        """
        a, b = left.value, right.value
        if op == "/" and a % b:
            raise Impossible
        result = _RESULT[op](a, b)
        done = len(self.operations)
        if not (result > 1 or (result == 1 and done + 1 == self.level)) or result > (cap or self.cap):
            raise Impossible
        self.operations.append(Operation(left, op, right, result))
        self.notes.append((says, self.kind, self.owner, more))
        return Quantity(result, done)

    def someone(self) -> int:
        """A person who has not come up yet."""
        self.people += 1
        return self.people - 1

    def wording(self) -> Wording:
        """Draw the names."""
        choices = PLAIN_NAMES if self.plain else NAMES
        names: list[str] = []
        while len(names) < self.people:
            name = self.draws.pick(choices)
            if name not in names:
                names.append(name)
        items = PLAIN_ITEMS if self.plain else ITEMS
        return Wording(tuple(names), self.draws.pick(items), self.draws.pick(BOXES))

    def sentences(self, words: Wording) -> list[str]:
        """Draw the wording of each sentence of the text."""
        if self.plain:
            return [words.sentence(templates[0], kind, owner, more) for templates, _, kind, owner, more in self.told]
        draws, text = self.draws, []
        for templates, link, kind, owner, more in self.told:
            template = draws.pick(templates) if len(templates) > 1 else templates[0]
            prefix = draws.pick(LINKS) if link and template[0] == "{" else ""
            text.append(prefix + words.sentence(template, kind, owner, more))
        return text

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
