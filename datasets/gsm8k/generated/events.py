"""Events of generated GSM8K problems that take one operation: openings, changes and questions, with their arithmetic.

Most are rows of `events.json`. The first wording of each is the plain one, of levels 1 and 2. Events of more operations
or between two people are in `long_events.py`, which extends the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agent_envs.datasets.gsm8k.generated.world import HAS, TIMES, Event, Quantity, World
from agent_envs.files import table

__all__ = ["EVENTS", "event"]

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
    named = any("{B}" in text for text in texts)

    def run(world: World) -> None:
        n = world.draws.between(2, min(top, world.cap // world.now.value)) if top else world.number(sign)
        other = world.someone() if named else 0
        more = {"times": TIMES.get(n) or f"{n} times"} if top else {}
        world.tell(texts, link=not to, B=other, n=n, **more)
        before = world.now
        if to:
            world.known += ((world.owner, before),)
            world.owner = other
        world.now = world.work(before, sign, Quantity(n), HAS[world.kind])
        world.key += (name, str(n))

    event(name, "event", kinds, sign, plain=plain)(run)


def _question(
    name: str, kinds: str, sign: str, says: str, texts: Sequence[str], plain: bool = False, owned: Sequence[str] = ()
) -> None:
    """Add an event that asks the question; `owned` is its wording where other people have such things too."""
    named = any("{B}" in text for text in texts)

    def run(world: World) -> None:
        n = world.number(sign)
        other = world.someone() if named else 0
        world.tell(owned if owned and world.known else texts, B=other, n=n)
        world.now = world.work(world.now, sign, Quantity(n), says, B=other, n=n)
        world.key += (name, str(n))

    event(name, "close", kinds, sign, plain=plain)(run)


for _row in table(__package__, "events.json")["changes"]:
    _change(**_row)
for _row in table(__package__, "events.json")["questions"]:
    _question(**_row)


@event("goal", "close", "items dollars", "-", plain=True)
def _goal(world: World) -> None:
    goal = Quantity(world.now.value + world.draws.between(2, 40))
    world.tell(("{A} wants to have {n} {unit}. How many more {unit} does {A} need?",), n=goal.value)
    world.now = world.work(goal, "-", world.now, "{A} needs {x} more {unit}.")
    world.key += ("goal", str(goal.value))


# -- openings that take an operation
@event("boxes", "open", "items", "*", plain=True)
def _boxes(world: World) -> None:
    count, each = world.draws.between(2, 12), world.start("*")
    texts = ("{A} has {n} {box} with {m} {it} in each.", "{A} buys {n} {box} of {m} {it} each.")
    world.tell(texts, n=count, m=each.value)
    world.now = world.work(Quantity(count), "*", each, HAS["items"])
    world.key += ("boxes", str(count), str(each.value))


@event("two_days", "open", "items", "+", plain=True)
def _two_days(world: World) -> None:
    first, second = world.start("+"), world.start("+")
    texts = ("{A} finds {n} {it} on Monday and {m} on Tuesday.", "{A} makes {n} {it} before noon and {m} after it.")
    world.tell(texts, n=first.value, m=second.value)
    world.now = world.work(first, "+", second, HAS["items"])
    world.key += ("two_days", str(first.value), str(second.value))


@event("wage", "open", "dollars", "*")
def _wage(world: World) -> None:
    hours, rate = world.draws.between(2, 12), world.draws.between(4, 25)
    texts = (
        "{A} has no money, and works {n} hours for {m} dollars an hour.",
        "{A}, who has no money yet, earns {m} dollars an hour and works {n} hours.",
    )
    world.tell(texts, n=hours, m=rate)
    world.now = world.work(Quantity(hours), "*", Quantity(rate), HAS["dollars"])
    world.key += ("wage", str(hours), str(rate))


@event("ride", "open", "kilometers", "*")
def _ride(world: World) -> None:
    hours, speed = world.draws.between(2, 6), world.draws.between(8, 30)
    world.tell(("{A} rides away from home for {n} hours at {m} kilometers an hour.",), n=hours, m=speed)
    world.now = world.work(Quantity(hours), "*", Quantity(speed), HAS["kilometers"])
    world.key += ("ride", str(hours), str(speed))


@event("sell_all", "event", "items", "*")
def _sell_all(world: World) -> None:
    price = world.draws.between(2, min(12, world.cap // world.now.value))
    texts = (
        "{A}, who has no money yet, sells all of them for {n} dollars each.",
        "{A} has no money, and sells all the {it} for {n} dollars apiece.",
    )
    world.tell(texts, n=price)
    world.now = world.work(world.now, "*", Quantity(price), "{A} gets {x} dollars.")
    world.kind = "dollars"
    world.known = ()
    world.key += ("sell_all", str(price))
