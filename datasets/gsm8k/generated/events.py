"""Events of generated GSM8K problems, with their arithmetic: openings, changes and questions.

Most of those of one operation are rows of `events.json`. The first wording of each is the plain one, of levels 1 and 2.
Events between two people, or of two and three operations (repeated amounts, parts, percents, leftovers), are used from
level 3 on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_envs.datasets.generated_tasks import Impossible
from agent_envs.datasets.gsm8k.generated.world import HAS, PARTS, PERCENTS, TIMES, Event, Quantity, World
from agent_envs.files import table

_TABLE = table(__package__, "events.json")
_WORDINGS: dict[str, tuple[str, ...]] = _TABLE["wordings"]
EVENTS: list[Event] = []
"""All events, in the order that choices are drawn from."""


def event(
    name: str, role: str, kinds: str, sign: str, cost: int = 1, plain: bool = False
) -> Callable[[Callable[[World], None]], None]:
    """Add the decorated function to `EVENTS`; the arguments are those of `Event`."""

    def add(run: Callable[[World], None]) -> None:
        EVENTS.append(Event(name, role, tuple(kinds.split()), sign, cost, plain, run))

    return add


def _change(
    name: str, kinds: str, sign: str, texts: Sequence[str], plain: bool = False, to: str = "", top: int = 0
) -> None:
    """Add an event that changes the quantity; with `to="other"` the story goes on with another person's."""

    @event(name, "event", kinds, sign, plain=plain)
    def run(world: World) -> None:
        n = world.draws.between(2, min(top, world.cap // world.now.value)) if top else world.number(sign)
        other = world.someone(texts)
        more = {"times": TIMES.get(n) or f"{n} times"} if top else {}
        world.tell(texts, link=not to, B=other, n=n, **more)
        before = world.now
        if to:
            world.known += ((world.owner, before),)
            world.owner = other
        world.now = world.work(before, sign, Quantity(n), HAS[world.kind])
        world.key += (name, str(n))


def _question(
    name: str, kinds: str, sign: str, says: str, texts: Sequence[str], plain: bool = False, owned: Sequence[str] = ()
) -> None:
    """Add an event that asks the question; `owned` is its wording where other people have such things too."""

    @event(name, "close", kinds, sign, plain=plain)
    def run(world: World) -> None:
        n = world.number(sign)
        other = world.someone(texts)
        world.tell(owned if owned and world.known else texts, B=other, n=n)
        world.now = world.work(world.now, sign, Quantity(n), says, B=other, n=n)
        world.key += (name, str(n))


for _row in _TABLE["changes"]:
    _change(**_row)
for _row in _TABLE["questions"]:
    _question(**_row)


@event("goal", "close", "items dollars", "-", plain=True)
def _goal(world: World) -> None:
    goal = Quantity(world.now.value + world.draws.between(2, 40))
    world.tell(_WORDINGS["goal"], n=goal.value)
    world.now = world.work(goal, "-", world.now, "{A} needs {x} more {unit}.")
    world.key += ("goal", str(goal.value))


# -- openings that take an operation
def _opening(
    name: str, kinds: str, sign: str, numbers: Sequence[Sequence[int]], texts: Sequence[str], plain: bool = False
) -> None:
    """Add an event that begins with two numbers, each from a range, or one that suits the sign if that is empty."""

    @event(name, "open", kinds, sign, plain=plain)
    def run(world: World) -> None:
        first, second = (Quantity(world.draws.between(*ends)) if ends else world.start(sign) for ends in numbers)
        world.tell(texts, n=first.value, m=second.value)
        world.now = world.work(first, sign, second, HAS[world.kind])
        world.key += (name, str(first.value), str(second.value))


for _row in _TABLE["openings"]:
    _opening(**_row)


@event("sell_all", "event", "items", "*")
def _sell_all(world: World) -> None:
    price = world.draws.between(2, min(12, world.cap // world.now.value))
    world.tell(_WORDINGS["sell_all"], n=price)
    world.now = world.work(world.now, "*", Quantity(price), "{A} gets {x} dollars.")
    world.kind = "dollars"
    world.known = ()
    world.key += ("sell_all", str(price))


# -- two people whose quantities are both known
@event("both", "close", "items dollars", "+")
def _both(world: World) -> None:
    other, held = _someone_known(world)
    world.tell(_WORDINGS["both"], B=other)
    world.now = world.work(world.now, "+", held, "Together they have {x} {unit}.")
    world.key.append("both")


@event("gap", "close", "items dollars", "-")
def _gap(world: World) -> None:
    other, held = _someone_known(world)
    (less, low), (more, high) = sorted([(held, other), (world.now, world.owner)], key=lambda pair: pair[0].value)
    world.tell(_WORDINGS["gap"], H=high, L=low)
    world.now = world.work(more, "-", less, "{H} has {x} more {unit} than {L}.", H=high, L=low)
    world.key.append("gap")


@event("merge", "event", "items dollars", "+")
def _merge(world: World) -> None:
    other, held = _someone_known(world)
    world.tell(_WORDINGS["merge"], link=True, B=other)
    world.now = world.work(world.now, "+", held, HAS[world.kind])
    world.known = tuple(pair for pair in world.known if pair[0] != other)
    world.key.append("merge")


def _someone_known(world: World) -> tuple[int, Quantity]:
    if not world.known:
        raise Impossible
    return world.draws.pick(world.known)


# -- two and three operations
def _repeat(name: str, kinds: str, sign: str, says: str, texts: Sequence[str]) -> None:
    """Add an event in which an amount comes in (+) or goes out (-) several times."""

    @event(name, "event", kinds, "*", cost=2)
    def run(world: World) -> None:
        count, each = world.draws.between(2, 9), world.draws.between(2, 15)
        if sign == "-" and count * each >= world.now.value:
            raise Impossible
        other = world.someone(texts)
        world.tell(texts, link=True, B=other, n=count, m=each)
        moved = world.work(Quantity(count), "*", Quantity(each), says, B=other)
        world.now = world.work(world.now, sign, moved, HAS[world.kind])
        world.key += (name, str(count), str(each))


for _row in _TABLE["repeats"]:
    _repeat(**_row)


@event("part_gone", "event", "items dollars", "/", cost=2)
def _part_gone(world: World) -> None:
    part = world.divisor(world.now.value, 5)
    texts = _WORDINGS["part_gone"]
    world.tell(texts, link=True, B=world.someone(texts), part=PARTS[part])
    moved = world.work(world.now, "/", Quantity(part), "That is {x} {unit}.")
    world.now = world.work(world.now, "-", moved, HAS[world.kind])
    world.key += ("part_gone", str(part))


@event("fraction", "close", "items", "/", cost=2)
def _fraction(world: World) -> None:
    whole = world.divisor(world.now.value, 10)
    part = world.draws.between(2, whole - 1)
    color = world.draws.pick(("red", "green", "old", "new", "small", "blue"))
    world.tell(_WORDINGS["fraction"], p=part, q=whole, color=color)
    one = world.work(world.now, "/", Quantity(whole), "1/{q} of them is {x}.", q=whole)
    world.now = world.work(one, "*", Quantity(part), "There are {x} {color} {it}.", color=color)
    world.key += ("fraction", str(part), str(whole))


def _percent_of(world: World, says: str) -> tuple[int, Quantity]:
    choices = [p for p in PERCENTS if world.now.value * p % 100 == 0]
    if not choices:
        raise Impossible
    percent = world.draws.pick(choices)
    product = world.work(world.now, "*", Quantity(percent), "Take {x} first.", cap=10**6)
    return percent, world.work(product, "/", Quantity(100), says)


def _percent(name: str, sign: str, texts: Sequence[str], link: bool = False) -> None:
    """Add an event in which a percentage comes in (+) or is given away (-)."""

    @event(name, "event", "items dollars", "*", cost=3)
    def run(world: World) -> None:
        percent, moved = _percent_of(world, "That is {x} {unit}.")
        world.tell(texts, link=link, B=world.someone(texts), n=percent)
        world.now = world.work(world.now, sign, moved, HAS[world.kind])
        world.key += (name, str(percent))


for _row in _TABLE["percents"]:
    _percent(**_row)


@event("percent_of", "close", "items", "*", cost=2)
def _percent_question(world: World) -> None:
    percent, world.now = _percent_of(world, "{x} of the {it} {are} painted.")
    world.tell(_WORDINGS["percent_of"], n=percent)
    world.key += ("percent_of", str(percent))


@event("leftover", "close", "items", "-", cost=3)
def _leftover(world: World) -> None:
    size = world.draws.between(3, 12)
    if world.now.value % size == 0:
        raise Impossible
    world.tell(_WORDINGS["leftover"], n=size)
    full = world.work(world.now, "//", Quantity(size), "{A} fills {x} {box}.")
    packed = world.work(full, "*", Quantity(size), "They hold {x} {it}.")
    world.now = world.work(world.now, "-", packed, "{x} {it} {are} left over.")
    world.key += ("leftover", str(size))
