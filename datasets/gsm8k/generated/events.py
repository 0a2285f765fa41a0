"""Events of generated GSM8K problems, with their arithmetic: openings, changes and questions.

Each is a row of `events.json`; its first wording is the plain one, of levels 1 and 2. Events between two people, or of
two and three operations (repeated amounts, parts, percents, leftovers), are used from level 3 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from agent_envs.datasets.generated_tasks import Impossible
from agent_envs.datasets.gsm8k.generated.world import HAS, PARTS, PERCENTS, TIMES, Event, Quantity, World
from agent_envs.files import table

EVENTS: list[Event] = []
"""All events, in the order that choices are drawn from."""


def _events(rows: str, role: str, sign: str = "", cost: int = 1) -> Callable[[Callable[..., None]], None]:
    """Add an event for each of some rows: the decorated function, which takes the world and the row's fields.

    Role, sign and cost are those of an `Event`; without a sign it is the row's.
    """

    def add(run: Callable[..., None]) -> None:
        for row in table(__package__, "events.json")[rows]:
            kinds, plain = tuple(row["kinds"].split()), row.get("plain", False)
            fields = {key: value for key, value in row.items() if key not in ("kinds", "plain")}
            happen = functools.partial(run, **fields)
            EVENTS.append(Event(row["name"], role, kinds, sign or row["sign"], cost, plain, happen))

    return add


@_events("changes", "event")
def _change(world: World, name: str, sign: str, texts: Sequence[str], to: str = "", top: int = 0) -> None:
    """Change the quantity; with `to="other"` the story goes on with another person's."""
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


@_events("questions", "close")
def _question(world: World, name: str, sign: str, says: str, texts: Sequence[str], owned: Sequence[str] = ()) -> None:
    """Ask the question; `owned` is its wording where other people have such things too."""
    n = world.number(sign)
    other = world.someone(texts)
    world.tell(owned if owned and world.known else texts, B=other, n=n)
    world.now = world.work(world.now, sign, Quantity(n), says, B=other, n=n)
    world.key += (name, str(n))


@_events("goal", "close", "-")
def _goal(world: World, name: str, texts: Sequence[str]) -> None:
    goal = Quantity(world.now.value + world.draws.between(2, 40))
    world.tell(texts, n=goal.value)
    world.now = world.work(goal, "-", world.now, "{A} needs {x} more {unit}.")
    world.key += (name, str(goal.value))


# -- openings that take an operation
@_events("openings", "open")
def _opening(world: World, name: str, sign: str, numbers: Sequence[Sequence[int]], texts: Sequence[str]) -> None:
    """Begin with two numbers, each from a range, or one that suits the sign if that is empty."""
    first, second = (Quantity(world.draws.between(*ends)) if ends else world.start(sign) for ends in numbers)
    world.tell(texts, n=first.value, m=second.value)
    world.now = world.work(first, sign, second, HAS[world.kind])
    world.key += (name, str(first.value), str(second.value))


@_events("sell_all", "event", "*")
def _sell_all(world: World, name: str, texts: Sequence[str]) -> None:
    price = world.draws.between(2, min(12, world.cap // world.now.value))
    world.tell(texts, n=price)
    world.now = world.work(world.now, "*", Quantity(price), "{A} gets {x} dollars.")
    world.kind = "dollars"
    world.known = ()
    world.key += (name, str(price))


# -- two people whose quantities are both known
@_events("both", "close", "+")
def _both(world: World, name: str, texts: Sequence[str]) -> None:
    other, held = _someone_known(world)
    world.tell(texts, B=other)
    world.now = world.work(world.now, "+", held, "Together they have {x} {unit}.")
    world.key.append(name)


@_events("gap", "close", "-")
def _gap(world: World, name: str, texts: Sequence[str]) -> None:
    other, held = _someone_known(world)
    (less, low), (more, high) = sorted([(held, other), (world.now, world.owner)], key=lambda pair: pair[0].value)
    world.tell(texts, H=high, L=low)
    world.now = world.work(more, "-", less, "{H} has {x} more {unit} than {L}.", H=high, L=low)
    world.key.append(name)


@_events("merge", "event", "+")
def _merge(world: World, name: str, texts: Sequence[str]) -> None:
    other, held = _someone_known(world)
    world.tell(texts, link=True, B=other)
    world.now = world.work(world.now, "+", held, HAS[world.kind])
    world.known = tuple(pair for pair in world.known if pair[0] != other)
    world.key.append(name)


def _someone_known(world: World) -> tuple[int, Quantity]:
    if not world.known:
        raise Impossible
    return world.draws.pick(world.known)


# -- two and three operations
@_events("repeats", "event", "*", cost=2)
def _repeat(world: World, name: str, sign: str, says: str, texts: Sequence[str]) -> None:
    """An amount comes in (+) or goes out (-) several times."""
    count, each = world.draws.between(2, 9), world.draws.between(2, 15)
    if sign == "-" and count * each >= world.now.value:
        raise Impossible
    other = world.someone(texts)
    world.tell(texts, link=True, B=other, n=count, m=each)
    moved = world.work(Quantity(count), "*", Quantity(each), says, B=other)
    world.now = world.work(world.now, sign, moved, HAS[world.kind])
    world.key += (name, str(count), str(each))


@_events("part_gone", "event", "/", cost=2)
def _part_gone(world: World, name: str, texts: Sequence[str]) -> None:
    part = world.divisor(world.now.value, 5)
    world.tell(texts, link=True, B=world.someone(texts), part=PARTS[part])
    moved = world.work(world.now, "/", Quantity(part), "That is {x} {unit}.")
    world.now = world.work(world.now, "-", moved, HAS[world.kind])
    world.key += (name, str(part))


@_events("fraction", "close", "/", cost=2)
def _fraction(world: World, name: str, texts: Sequence[str]) -> None:
    whole = world.divisor(world.now.value, 10)
    part = world.draws.between(2, whole - 1)
    color = world.draws.pick(("red", "green", "old", "new", "small", "blue"))
    world.tell(texts, p=part, q=whole, color=color)
    one = world.work(world.now, "/", Quantity(whole), "1/{q} of them is {x}.", q=whole)
    world.now = world.work(one, "*", Quantity(part), "There are {x} {color} {it}.", color=color)
    world.key += (name, str(part), str(whole))


def _percent_of(world: World, says: str) -> tuple[int, Quantity]:
    choices = [p for p in PERCENTS if world.now.value * p % 100 == 0]
    if not choices:
        raise Impossible
    percent = world.draws.pick(choices)
    product = world.work(world.now, "*", Quantity(percent), "Take {x} first.", cap=10**6)
    return percent, world.work(product, "/", Quantity(100), says)


@_events("percents", "event", "*", cost=3)
def _percent(world: World, name: str, sign: str, texts: Sequence[str], link: bool = False) -> None:
    """A percentage comes in (+) or is given away (-)."""
    percent, moved = _percent_of(world, "That is {x} {unit}.")
    world.tell(texts, link=link, B=world.someone(texts), n=percent)
    world.now = world.work(world.now, sign, moved, HAS[world.kind])
    world.key += (name, str(percent))


@_events("percent_of", "close", "*", cost=2)
def _percent_question(world: World, name: str, texts: Sequence[str]) -> None:
    percent, world.now = _percent_of(world, "{x} of the {it} {are} painted.")
    world.tell(texts, n=percent)
    world.key += (name, str(percent))


@_events("leftover", "close", "-", cost=3)
def _leftover(world: World, name: str, texts: Sequence[str]) -> None:
    size = world.draws.between(3, 12)
    if world.now.value % size == 0:
        raise Impossible
    world.tell(texts, n=size)
    full = world.work(world.now, "//", Quantity(size), "{A} fills {x} {box}.")
    packed = world.work(full, "*", Quantity(size), "They hold {x} {it}.")
    world.now = world.work(world.now, "-", packed, "{x} {it} {are} left over.")
    world.key += (name, str(size))
