"""Generated tables and questions: filter, aggregate, group, sort, join and dates over 20 to 2,000 rows.

    question  "Which port has the largest total cargo?"   answers  ("Osken",)   table.csv  ship,port,cargo,crew,arrived

A table has a missing value here and there, units inside cells from level 2 on, ties, and from level 4 on a second file
to join with. The answer is computed from the records that the table was written from; the program, whose wording is in
`questions.json` beside that of the question, reads the file.
Task i of a split is a function of the split's name, i and the level alone; splits have other tables.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_envs.datasets.generated_tasks import Draws, GeneratedTasks, Impossible, parse_range, stream
from agent_envs.files import table

DEFAULT_LEVEL = "1-5"
_ROWS = {1: (20, 40), 2: (30, 120), 3: (60, 400), 4: (100, 800), 5: (400, 2000)}
_TARIFFS = "tariffs.csv"
_TABLE = "table.csv"


class TableTask(NamedTuple):
    """A question over a table."""

    task_id: str
    """`tableqa-generated/SPLIT/LEVEL/INDEX`, or `tableqa/SPLIT/INDEX`."""
    question: str
    answers: tuple[str, ...]
    """The gold answers, compared as a set."""
    files: tuple[tuple[str, str], ...]
    """The files that programs can open: names and contents."""
    program: str = ""
    """A program that prints the answer; "" for real rows."""
    family: str = ""
    """Its kind, one of `QUESTIONS`; "" for real rows."""
    level: int = 0
    """1 to 5; 0 for real rows."""
    unit: str = ""
    """What may stand behind the answer, as TabMWP says."""


@dataclass(frozen=True, slots=True)
class _Record:
    name: str
    group: str
    amount: int | None
    count: int
    date: datetime.date


@dataclass(frozen=True, slots=True)
class _World:
    subject: dict[str, Any]
    records: tuple[_Record, ...]
    tariffs: dict[str, int]
    units: bool

    def of(self, group: str) -> list[_Record]:
        return [r for r in self.records if r.group == group]

    @property
    def groups(self) -> list[str]:
        return sorted({r.group for r in self.records})


_Asked = tuple[Sequence[str], dict[str, Any]]
"""The answers, and the fields of the wording."""


class GeneratedTables(GeneratedTasks[TableTask]):
    """The generated questions of one split.

    Args:
        split: "train" (100,000 questions), "validation" or "test" (1,000 each).
        level: 1 to 5, or a range like "2-4", from which each question's level is drawn.
    """

    def __init__(self, split: str, level: int | str | Sequence[int] = DEFAULT_LEVEL) -> None:
        self.levels = parse_range("level", level, 1, 5)
        super().__init__(split, split, self.levels, cache=16)

    def get(self, index: int) -> TableTask:
        task_id = f"tableqa-generated/{self.split}/{self.levels}/{index}"
        draws = stream(task_id)
        level = draws.between(*self.levels)
        world = _world(draws, level)
        words = table(__package__, "questions.json")
        families = [name for name in QUESTIONS if words["families"][name]["least_level"] <= level]
        while True:
            family = draws.pick(families)
            try:
                answers, fields = QUESTIONS[family](world, draws)
            except Impossible:
                continue
            wording, fields = words["families"][family], {"s": world.subject, **fields}
            question = wording["question"].format_map(fields)
            program = "\n".join([*words["reading"], *wording["program"]]).format_map(fields)
            return TableTask(task_id, question, tuple(answers), _files(world), program, family, level)


def _world(draws: Draws, level: int) -> _World:
    words = table(__package__, "worlds.json")
    subject = draws.pick(words["subjects"])
    start = datetime.date(draws.between(1990, 2020), 1, 1)
    records, names = [], set()
    for _ in range(draws.between(*_ROWS[level])):
        name = "".join(draws.pick(words["syllables"]) for _ in range(3)).capitalize()
        while name in names:
            name = f"{name} {draws.between(2, 999)}"
        names.add(name)
        amount = draws.between(subject["low"], subject["high"])
        missing = level > 1 and draws.between(1, 20) == 1
        group, count = draws.pick(subject["groups"]), draws.between(subject["count_low"], subject["count_high"])
        date = start + datetime.timedelta(days=draws.between(0, 730))
        records.append(_Record(name, group, None if missing else amount, count, date))
    tariffs = {group: draws.between(2, 30) for group in sorted(subject["groups"])} if level >= 4 else {}
    return _World(subject, tuple(records), tariffs, units=level >= 2)


def _files(world: _World) -> tuple[tuple[str, str], ...]:
    s = world.subject
    lines = [f"{s['label']},{s['group']},{s['amount']},{s['count']},{s['date']}"]
    for r in world.records:
        amount = "" if r.amount is None else f"{r.amount} {s['unit']}" if world.units else str(r.amount)
        lines.append(f"{r.name},{r.group},{amount},{r.count},{r.date.isoformat()}")
    files = [(_TABLE, "\n".join(lines) + "\n")]
    if world.tariffs:
        rows = [f"{group},{tariff}" for group, tariff in world.tariffs.items()]
        files.append((_TARIFFS, "\n".join([f"{s['group']},tariff", *rows]) + "\n"))
    return tuple(files)


def _how_many(world: _World, draws: Draws) -> _Asked:
    least, group = draws.between(world.subject["low"] + 1, world.subject["high"] - 1), draws.pick(world.groups)
    count = sum(r.amount is not None and r.amount >= least for r in world.of(group))
    return [str(count)], {"group": group, "least": least}


def _total(world: _World, draws: Draws) -> _Asked:
    group = draws.pick(world.groups)
    return [str(sum(r.amount or 0 for r in world.of(group)))], {"group": group}


def _top_group(world: _World, draws: Draws) -> _Asked:
    totals = {group: sum(r.amount or 0 for r in world.of(group)) for group in world.groups}
    best = sorted(totals, key=lambda group: -totals[group])
    if len(best) < 2 or totals[best[0]] == totals[best[1]]:
        raise Impossible
    return best[:1], {}


def _largest(world: _World, draws: Draws) -> _Asked:
    group = draws.pick(world.groups)
    top = max(r.count for r in world.of(group))
    return sorted(r.name for r in world.of(group) if r.count == top), {"group": group}


def _missing(world: _World, draws: Draws) -> _Asked:
    counts = {group: sum(r.amount is None for r in world.of(group)) for group in world.groups}
    top = max(counts.values())
    if top == 0:
        raise Impossible
    return [group for group, n in counts.items() if n == top], {}


def _in_month(world: _World, draws: Draws) -> _Asked:
    month = draws.pick(world.records).date
    total = sum(r.count for r in world.records if (r.date.year, r.date.month) == (month.year, month.month))
    return [str(total)], {"month": month}


def _span(world: _World, draws: Draws) -> _Asked:
    group = draws.pick(world.groups)
    dates = [r.date for r in world.of(group)]
    return [str((max(dates) - min(dates)).days)], {"group": group}


def _costs(world: _World, draws: Draws) -> _Asked:
    group = draws.pick(world.groups)
    return [str(sum(r.count for r in world.of(group)) * world.tariffs[group])], {"group": group}


def _dearest(world: _World, draws: Draws) -> _Asked:
    costs = {r.name: r.count * world.tariffs[r.group] for r in world.records}
    top = max(costs.values())
    return sorted(name for name, cost in costs.items() if cost == top), {}


_ASKERS = (_costs, _dearest, _how_many, _in_month, _largest, _missing, _span, _top_group, _total)
QUESTIONS: dict[str, Callable[[_World, Draws], _Asked]] = {f.__name__[1:].replace("_", " "): f for f in _ASKERS}
"""Each family's function: what it asks of a table. `questions.json` has the wordings and the least levels."""
