"""What can happen in a generated GSM8K problem in one operation: openings, events and questions with their arithmetic.

Most are rows of a table. The first wording of each is the plain one, of levels 1 and 2. What takes more operations or
two people is in `gsm8k_long_events`, which adds itself to the same list.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_envs.datasets.gsm8k.generated.world import TIMES, Event, Quantity, World

__all__ = ["ASK_NOW", "EVENTS", "GIVEN", "HAS", "TRIVIA", "event"]

EVENTS: list[Event] = []
"""Everything that can happen, in the order that choices are drawn from."""

GIVEN = {
    "items": ("{A} has {n} {it}.", "{A} starts with {n} {it}.", "There are {n} {it} on the table of {A}."),
    "dollars": ("{A} has {n} dollars.", "{A} has saved {n} dollars.", "There are {n} dollars in the purse of {A}."),
    "kilometers": ("{A} is {n} kilometers from home.", "{A} has ridden {n} kilometers away from home."),
}
ASK_NOW = {
    "items": ("How many {it} does {A} have now?", "How many {it} does {A} have in the end?"),
    "dollars": ("How many dollars does {A} have now?", "How much money, in dollars, does {A} have in the end?"),
    "kilometers": ("How many kilometers from home is {A} now?", "How far from home, in kilometers, is {A} in the end?"),
}
TRIVIA = (
    "{C} is {n} years old.",
    "{C} lives {n} kilometers from the sea.",
    "{C} woke up {n} minutes late that day.",
    "{C} has a garden with {n} trees.",
    "The house of {C} has {n} windows.",
    "{C} has been a neighbor of {A} for {n} years.",
    "The cat of {C} weighs {n} pounds.",
    "It was {n} degrees outside.",
)
HAS = {
    "items": "{A} has {x} {it}.",
    "dollars": "{A} has {x} {unit}.",
    "kilometers": "{A} is {x} {unit} from home.",
}


def event(
    name: str, role: str, kinds: str, sign: str, cost: int = 1, plain: bool = False
) -> Callable[[Callable[[World], None]], None]:
    """Add a function to `EVENTS`; the arguments are those of `Event`."""

    def add(run: Callable[[World], None]) -> None:
        EVENTS.append(Event(name, role, tuple(kinds.split()), sign, cost, plain, run))

    return add


def _change(name: str, kinds: str, sign: str, *texts: str, plain: bool = False, to: str = "", top: int = 0) -> None:
    """An event of one operation; with `to="other"` the story goes on with another person's quantity."""
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
    name: str, kinds: str, sign: str, says: str, *texts: str, plain: bool = False, owned: tuple[str, ...] = ()
) -> None:
    """A last event of one operation, with its question; `owned` is said where others have such things too."""
    named = any("{B}" in text for text in texts)

    def run(world: World) -> None:
        n = world.number(sign)
        other = world.someone() if named else 0
        world.tell(owned if owned and world.known else texts, B=other, n=n)
        world.now = world.work(world.now, sign, Quantity(n), says, B=other, n=n)
        world.key += (name, str(n))

    event(name, "close", kinds, sign, plain=plain)(run)


# -- one operation: the quantity changes ------------------------------------------------------------------------
_change("gift", "items", "+", "{B} gives {A} {n} more.", "{A} gets {n} more {it} from {B}.", plain=True)
_change("find", "items", "+", "{A} finds {n} more {it}.", "{A} picks up another {n} {it}.", plain=True)
_change("give", "items", "-", "{A} gives {n} of them to {B}.", "{B} takes {n} of the {it} of {A}.", plain=True)
_change(
    "lose",
    "items",
    "-",
    "{A} loses {n} of them.",
    "{A} throws away {n} of the {it}.",
    plain=True,
)
_change("earn", "dollars", "+", "{A} earns {n} dollars.", "{B} gives {A} {n} dollars for some help.")
_change("spend", "dollars", "-", "{A} spends {n} dollars.", "{A} pays {n} dollars for a lunch with {B}.")
_change(
    "onward",
    "kilometers",
    "+",
    "{A} rides another {n} kilometers away from home.",
    "{A} goes {n} kilometers further away from home.",
)
_change(
    "back",
    "kilometers",
    "-",
    "{A} rides {n} kilometers back towards home.",
    "{A} goes {n} kilometers in the direction of home.",
)
_change(
    "double",
    "items dollars",
    "*",
    "{A} works hard, and ends up with {times} as many {unit} as before.",
    "By the end of the week {A} has {times} as many {unit} as before.",
    top=4,
)

# -- one operation: compared with another person, whom the story then follows -------------------------------------
_change(
    "more",
    "items",
    "+",
    "{B} has {n} more {it} than {A}.",
    "{B} owns {n} {it} more than {A} does.",
    plain=True,
    to="other",
)
_change(
    "fewer", "items", "-", "{B} has {n} fewer {it} than {A}.", "{A} has {n} more {it} than {B}.", plain=True, to="other"
)
_change(
    "times",
    "items",
    "*",
    "{B} has {n} times as many {it} as {A}.",
    "{B} has {times} as many {it} as {A}.",
    plain=True,
    to="other",
    top=9,
)
_change("richer", "dollars", "+", "{B} has {n} dollars more than {A}.", to="other")
_change("poorer", "dollars", "-", "{B} has {n} dollars less than {A}.", to="other")
_change("times_money", "dollars", "*", "{B} has {times} as much money as {A}.", to="other", top=6)
_change("times_far", "kilometers", "*", "{B} is {times} as far from home as {A}.", to="other", top=5)
_change("nearer", "kilometers", "-", "{B} is {n} kilometers closer to home than {A}.", to="other")

# -- one operation and the question -------------------------------------------------------------------------------
_question(
    "together",
    "items",
    "+",
    "Together they have {x} {it}.",
    "{B} has {n} {it}. How many {it} do {A} and {B} have together?",
    "{A} and {B}, who has {n} {it}, put theirs together. How many {it} are there in all?",
    plain=True,
)
_question(
    "difference",
    "items",
    "-",
    "{A} has {x} more {it} than {B}.",
    "{B} has {n} {it}. How many more {it} does {A} have than {B}?",
    "{B} only has {n} {it}. How many fewer {it} is that than {A} has?",
    plain=True,
)
_question(
    "boxes_of_all",
    "items",
    "*",
    "{B} has {x} {it}.",
    "{B} has {n} {box} with as many {it} in each as {A} has. How many {it} does {B} have?",
    plain=True,
)
_question(
    "price",
    "items",
    "*",
    "The {it} cost {x} dollars.",
    "Each of them costs {n} dollars. How many dollars do they cost in total?",
    "{B} buys them all for {n} dollars apiece. How many dollars does {B} pay?",
    plain=True,
    owned=("Each of the {it} of {A} costs {n} dollars. How many dollars do the {it} of {A} cost in total?",),
)
_question(
    "weight",
    "items",
    "*",
    "They weigh {x} grams.",
    "Each of the {it} weighs {n} grams. How many grams do they weigh in total?",
    owned=("Each of the {it} of {A} weighs {n} grams. How many grams do the {it} of {A} weigh in total?",),
)
_question(
    "share",
    "items",
    "/",
    "Each of them gets {x} {it}.",
    "{A} shares them equally among {n} friends. How many {it} does each friend get?",
    "{A} divides the {it} evenly between {n} children. How many {it} does each child get?",
    plain=True,
)
_question(
    "pack",
    "items",
    "/",
    "{A} needs {x} {box}.",
    "{A} puts them into {box} of {n}. How many {box} does {A} need?",
    "{A} fills {box} that hold {n} {it} each. How many {box} does that take?",
    plain=True,
)
_question(
    "rows",
    "items",
    "/",
    "Each row has {x} {it}.",
    "{A} lays them out in {n} equal rows. How many {it} are in each row?",
    plain=True,
)
_question(
    "last",
    "items",
    "/",
    "They last {x} days.",
    "{A} uses {n} of them each day. How many days do they last?",
    plain=True,
)
_question(
    "sum_money",
    "dollars",
    "+",
    "Together they have {x} dollars.",
    "{B} has {n} dollars. How many dollars do {A} and {B} have together?",
)
_question(
    "tickets",
    "dollars",
    "/",
    "{A} can buy {x} tickets.",
    "A ticket costs {n} dollars. How many tickets can {A} buy?",
)
_question(
    "weekly",
    "dollars",
    "/",
    "The money lasts {x} weeks.",
    "{A} spends {n} dollars each week until nothing is left. How many weeks does the money last?",
)
_question(
    "split_money",
    "dollars",
    "/",
    "Each person gets {x} dollars.",
    "{A} splits the money evenly among {n} people. How many dollars does each of them get?",
)
_question(
    "speed",
    "kilometers",
    "/",
    "The way home takes {x} hours.",
    "{A} rides home at {n} kilometers an hour. How many hours does the way home take?",
)
_question(
    "pace",
    "kilometers",
    "*",
    "The way home takes {x} minutes.",
    "{A} walks home and needs {n} minutes for each kilometer. How many minutes does the way home take?",
)
_question(
    "further",
    "kilometers",
    "-",
    "{A} is {x} {unit} further from home than {B}.",
    "{B} is {n} kilometers from home. How many kilometers further from home is {A} than {B}?",
)


@event("goal", "close", "items dollars", "-", plain=True)
def _goal(world: World) -> None:
    goal = Quantity(world.now.value + world.draws.between(2, 40))
    world.tell(("{A} wants to have {n} {unit}. How many more {unit} does {A} need?",), n=goal.value)
    world.now = world.work(goal, "-", world.now, "{A} needs {x} more {unit}.")
    world.key += ("goal", str(goal.value))


# -- openings that take an operation ------------------------------------------------------------------------------
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
    world.tell(
        (
            "{A} has no money, and works {n} hours for {m} dollars an hour.",
            "{A}, who has no money yet, earns {m} dollars an hour and works {n} hours.",
        ),
        n=hours,
        m=rate,
    )
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
    world.tell(
        (
            "{A}, who has no money yet, sells all of them for {n} dollars each.",
            "{A} has no money, and sells all the {it} for {n} dollars apiece.",
        ),
        n=price,
    )
    world.now = world.work(world.now, "*", Quantity(price), "{A} gets {x} dollars.")
    world.kind = "dollars"
    world.known = ()
    world.key += ("sell_all", str(price))
