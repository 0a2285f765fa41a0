"""The small world behind the generated GSM8K problems: people, what they hold, and events that change it.

A `World` keeps the true quantities while events happen to them. Each event adds a sentence to the text, does its
arithmetic on the state and notes the worked step: nothing is computed from text, and the text says only what the state
bears out. The events are in `events.py` and `events.json`, the other words in `words.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add, floordiv, mul, sub
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Draws, Impossible
from agent_envs.files import table

WORDS = table(__package__, "words.json")
NAMES: tuple[str, ...] = tuple(start + end for start in WORDS["name_starts"] for end in WORDS["name_ends"])
HAS: dict[str, str] = WORDS["has"]
"""How a solution states a quantity of each kind."""
TIMES = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}
PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
PERCENTS = (5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 80)

_RESULT = {"+": add, "-": sub, "*": mul, "/": floordiv, "//": floordiv}


class Quantity(NamedTuple):
    """A number of the world."""

    value: int
    made_by: int | None = None
    """Index of the operation that it is the result of; None if the text states it."""


class Operation(NamedTuple):
    """One step of the worked solution."""

    left: Quantity
    op: str
    """One of `+ - * / //`."""
    right: Quantity
    result: int

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
        """Fill in a template; in `more`, B (someone else), H and L (who has more, less) are numbers of people."""
        names, item, box = self
        words = {"A": names[owner], "it": item, "box": box, "unit": item if kind == "items" else kind, **more}
        words |= {person: names[more[person]] for person in "BHL" if person in more}  # type: ignore[call-overload]
        return template.format_map(words)


Note = tuple[str, str, int, dict[str, object]]
"""A sentence to write: its template, the kind of quantity, the owner's number, and other fields of the template."""

Mark = tuple[tuple[int, int, int], str, int, int, "Quantity", tuple[tuple[int, "Quantity"], ...]]
"""What `World.back_to` needs to return to a point of the story."""


@dataclass(slots=True)
class World:
    """The state of one problem: what is true, what the text says, and the steps so far.

    People are numbers and sentences are templates: their names and wordings are drawn at the end, once the problem is
    known to be accepted.
    """

    draws: Draws
    """Source of every choice."""
    level: int
    """How many operations the problem must take."""
    plain: bool
    """Short sentences and small numbers, as at levels 1 and 2."""
    kind: str = "items"
    """What `now` counts: items, dollars or kilometers."""
    owner: int = 0
    """Whose quantity the story follows."""
    people: int = 1
    """How many people have been mentioned."""
    now: Quantity = Quantity(0)  # noqa: RUF009  (an immutable tuple)
    """The quantity the story follows."""
    known: tuple[tuple[int, Quantity], ...] = ()
    """What other people hold of the same kind."""
    sentences: list[tuple[Sequence[str], bool, str, int, dict[str, object]]] = field(default_factory=list)
    """The text: the wordings of each sentence, whether it may begin with "Then", and the rest of a `Note`."""
    notes: list[Note] = field(default_factory=list)
    """The worked solution, one line per operation."""
    operations: list[Operation] = field(default_factory=list)
    key: list[str] = field(default_factory=list)
    """Event kinds and numbers in order, which identify the problem regardless of its words."""

    @property
    def cap(self) -> int:
        """The largest quantity allowed."""
        return 150 if self.plain else 9999

    def mark(self) -> Mark:
        """Return this point of the story, for `back_to`."""
        lengths = len(self.sentences), len(self.notes), len(self.key)
        return lengths, self.kind, self.owner, self.people, self.now, self.known

    def back_to(self, mark: Mark) -> None:
        """Undo everything that happened since the mark."""
        (sentences, done, key), self.kind, self.owner, self.people, self.now, self.known = mark
        del self.sentences[sentences:], self.notes[done:], self.operations[done:], self.key[key:]

    def tell(self, templates: Sequence[str], link: bool = False, **more: object) -> None:
        """Add a sentence to the text; the first template is the plain one."""
        self.sentences.append((templates, link, self.kind, self.owner, more))

    def work(self, left: Quantity, op: str, right: Quantity, says: str, cap: int = 0, **more: object) -> Quantity:
        """Do one operation and note it. Raises Impossible unless the result is a positive integer up to the cap.

        Only the last result may be 1: sentences about intermediate results are in the plural.
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

    def someone(self, templates: Sequence[str]) -> int:
        """Return a person who has not been mentioned yet; 0 if no template has a {B} for one."""
        if not any("{B}" in template for template in templates):
            return 0
        self.people += 1
        return self.people - 1

    def wording(self) -> Wording:
        """Draw the names of people and things."""
        choices = WORDS["plain_names"] if self.plain else NAMES
        names: list[str] = []
        while len(names) < self.people:
            name = self.draws.pick(choices)
            if name not in names:
                names.append(name)
        items = WORDS["items"][:16] if self.plain else WORDS["items"]
        return Wording(tuple(names), self.draws.pick(items), self.draws.pick(WORDS["boxes"]))

    def text(self, words: Wording) -> list[str]:
        """Draw the wording of each sentence of the text."""
        draws, text = self.draws, []
        for templates, link, kind, owner, more in self.sentences:
            template = templates[0] if self.plain or len(templates) == 1 else draws.pick(templates)
            prefix = draws.pick(WORDS["links"]) if link and not self.plain and template[0] == "{" else ""
            text.append(prefix + words.sentence(template, kind, owner, more))
        return text

    def divisor(self, value: int, high: int = 12) -> int:
        """Draw a divisor of `value`, from 2 to `high`, whose quotient is more than 1."""
        choices = [d for d in range(2, high + 1) if value % d == 0 and value // d > 1]
        if not choices:
            raise Impossible
        return self.draws.pick(choices)

    def number(self, sign: str) -> int:
        """Draw a second operand that fits `now` and the sign."""
        now = self.now.value
        if sign == "/":
            return self.divisor(now)
        if sign == "*":
            return self.draws.between(2, min(12, self.cap // now))
        most = 60 if self.plain or now < 100 else now
        return self.draws.between(2, most if sign == "+" else min(now - 1, most))

    def start(self, sign: str) -> Quantity:
        """Draw a first quantity that suits an operation of this sign."""
        draws = self.draws
        scale = 1 if self.plain else draws.pick((1, 1, 2, 5))
        low, high = {"+": (2, 60), "-": (10, 99), "*": (2, 12)}.get(sign, (0, 0))
        if high:
            return Quantity(draws.between(low, high * scale))
        divisor = draws.between(2, 12)
        return Quantity(divisor * draws.between(2, min(12, 99 // divisor) * scale))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that can happen."""

    name: str
    """Its name in the problem's key."""
    role: str
    """"open" (begins a story), "event" (goes on) or "close" (asks for something)."""
    kinds: tuple[str, ...]
    """The kinds of quantity it can happen to."""
    sign: str
    """The operation it is chosen for."""
    cost: int
    """How many operations it takes."""
    plain: bool
    """Whether it is used at levels 1 and 2."""
    run: Callable[[World], None]
    """Apply it to a world."""
