"""Generated tables and questions: filter, aggregate, group, sort, join and dates over 20 to 2,000 rows.

    question  "Which port has the largest total cargo?"   answers  ("Osken",)   table.csv  ship,port,cargo,crew,arrived

A table has a missing value here and there, units inside cells from level 2 on, ties, and from level 4 on a second file
to join with. The answer is computed from the records that the table was written from; the program reads the file.
Task i of a split is a function of the split's name, i and the level alone; splits have other tables.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agent_envs.checks import choice
from agent_envs.datasets.draws import Draws, Impossible, parse_range, range_text, stream
from agent_envs.files import table
from agent_envs.tasks import IndexedTasks

__all__ = ["DEFAULT_LEVEL", "QUESTIONS", "GeneratedTables", "TableTask"]

DEFAULT_LEVEL = "1-5"
SIZES = {"train": 100_000, "validation": 1_000, "test": 1_000}
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


class _Asked(NamedTuple):
    question: str
    answers: Sequence[str]
    program: str


class GeneratedTables(IndexedTasks[TableTask]):
    """The generated questions of one split.

    Args:
        split: "train" (100,000 questions), "validation" or "test" (1,000 each).
        level: 1 to 5, or a range like "2-4", from which each question's level is drawn.
    """

    def __init__(self, split: str, level: int | str | Sequence[int] = DEFAULT_LEVEL) -> None:
        super().__init__("generated", choice("split", split, SIZES), cache=16)
        self.levels = parse_range("level", level, 1, 5)

    def __len__(self) -> int:
        return SIZES[self.split]

    def get(self, index: int) -> TableTask:
        task_id = f"tableqa-generated/{self.split}/{range_text(*self.levels)}/{index}"
        draws = stream(task_id)
        level = draws.between(*self.levels)
        world = _world(draws, level)
        while True:
            family = draws.pick([name for name, (least, _) in QUESTIONS.items() if least <= level])
            try:
                asked = QUESTIONS[family][1](world, draws)
            except Impossible:
                continue
            return TableTask(
                task_id,
                asked.question,
                tuple(asked.answers),
                _files(world),
                _reading(world) + asked.program,
                family,
                level,
            )


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
        records.append(
            _Record(
                name,
                draws.pick(subject["groups"]),
                None if missing else amount,
                draws.between(subject["count_low"], subject["count_high"]),
                start + datetime.timedelta(days=draws.between(0, 730)),
            )
        )
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


def _reading(world: _World) -> str:
    """Return the beginning of every program: the rows of the table, with numbers as numbers."""
    s = world.subject
    return (
        "import csv, datetime\nrows = list(csv.DictReader(open('table.csv', newline='')))\nfor r in rows:\n"
        f"    r['{s['amount']}'] = int(r['{s['amount']}'].split()[0]) if r['{s['amount']}'] else None\n"
        f"    r['{s['count']}'] = int(r['{s['count']}'])\n"
        f"    r['{s['date']}'] = datetime.date.fromisoformat(r['{s['date']}'])\n"
    )


def _threshold(world: _World, draws: Draws) -> int:
    return draws.between(world.subject["low"] + 1, world.subject["high"] - 1)


def _how_many(world: _World, draws: Draws) -> _Asked:
    s, least, group = world.subject, _threshold(world, draws), draws.pick(world.groups)
    count = len([r for r in world.of(group) if r.amount is not None and r.amount >= least])
    return _Asked(
        f"How many rows have the {s['group']} {group} and a {s['amount']} of at least {least} {s['unit']}?",
        [str(count)],
        f"print(sum(r['{s['group']}'] == {group!r} and (r['{s['amount']}'] or 0) >= {least} for r in rows))",
    )


def _total(world: _World, draws: Draws) -> _Asked:
    s, group = world.subject, draws.pick(world.groups)
    total = 0
    for r in world.of(group):
        total += r.amount or 0
    return _Asked(
        f"What is the total {s['amount']} of {group} in {s['unit']}, without the rows where it is missing?",
        [str(total)],
        f"print(sum(r['{s['amount']}'] or 0 for r in rows if r['{s['group']}'] == {group!r}))",
    )


def _top_group(world: _World, draws: Draws) -> _Asked:
    s = world.subject
    totals = {group: sum(r.amount or 0 for r in world.of(group)) for group in world.groups}
    best = sorted(totals, key=lambda group: -totals[group])
    if len(best) < 2 or totals[best[0]] == totals[best[1]]:
        raise Impossible
    return _Asked(
        f"Which {s['group']} has the largest total {s['amount']}?",
        [best[0]],
        f"from collections import Counter\ntotals = Counter()\nfor r in rows:\n"
        f"    totals[r['{s['group']}']] += r['{s['amount']}'] or 0\nprint(totals.most_common(1)[0][0])",
    )


def _largest(world: _World, draws: Draws) -> _Asked:
    s, group = world.subject, draws.pick(world.groups)
    top = max(r.count for r in world.of(group))
    names = sorted(r.name for r in world.of(group) if r.count == top)
    return _Asked(
        f"Which rows of {group} have the largest {s['count']}? Name each {s['label']}; there may be several.",
        names,
        f"own = [r for r in rows if r['{s['group']}'] == {group!r}]\n"
        f"top = max((r['{s['count']}'] for r in own), default=0)\n"
        f"print('; '.join(sorted(r['{s['label']}'] for r in own if r['{s['count']}'] == top)))",
    )


def _missing(world: _World, draws: Draws) -> _Asked:
    s = world.subject
    counts = dict.fromkeys(world.groups, 0)
    for r in world.records:
        counts[r.group] += r.amount is None
    top = max(counts.values())
    if top == 0:
        raise Impossible
    best = [group for group, n in counts.items() if n == top]
    return _Asked(
        f"In which {s['group']} is the {s['amount']} missing most often? Name all of them if there are several.",
        best,
        "from collections import Counter\n"
        f"gaps = Counter(r['{s['group']}'] for r in rows if r['{s['amount']}'] is None)\n"
        "print('; '.join(sorted(g for g, n in gaps.items() if n == max(gaps.values()))))",
    )


def _in_month(world: _World, draws: Draws) -> _Asked:
    s, example = world.subject, draws.pick(world.records).date
    total = sum(r.count for r in world.records if (r.date.year, r.date.month) == (example.year, example.month))
    return _Asked(
        f"What is the sum of {s['count']} over the rows whose {s['date']} lies in {example:%Y-%m}?",
        [str(total)],
        f"print(sum(r['{s['count']}'] for r in rows "
        f"if (r['{s['date']}'].year, r['{s['date']}'].month) == ({example.year}, {example.month})))",
    )


def _span(world: _World, draws: Draws) -> _Asked:
    s, group = world.subject, draws.pick(world.groups)
    ordinals = sorted(r.date.toordinal() for r in world.of(group))
    return _Asked(
        f"How many days lie between the first and the last {s['date']} of {group}?",
        [str(ordinals[-1] - ordinals[0])],
        f"dates = [r['{s['date']}'] for r in rows if r['{s['group']}'] == {group!r}]\n"
        "print((max(dates) - min(dates)).days if dates else 0)",
    )


def _costs(world: _World, draws: Draws) -> _Asked:
    s, group = world.subject, draws.pick(world.groups)
    total = sum(r.count for r in world.of(group)) * world.tariffs[group]
    return _Asked(
        f"The file {_TARIFFS} has a tariff for each {s['group']}. Every row costs its {s['count']} times the tariff of "
        f"its {s['group']}. What do all rows of {group} cost together?",
        [str(total)],
        f"tariffs = {{r['{s['group']}']: int(r['tariff']) for r in csv.DictReader(open('{_TARIFFS}', newline=''))}}\n"
        f"print(sum(r['{s['count']}'] * tariffs[r['{s['group']}']] for r in rows if r['{s['group']}'] == {group!r}))",
    )


def _dearest(world: _World, draws: Draws) -> _Asked:
    s = world.subject
    costs = {r.name: r.count * world.tariffs[r.group] for r in world.records}
    top = max(costs.values())
    return _Asked(
        f"The file {_TARIFFS} has a tariff for each {s['group']}. Every row costs its {s['count']} times the tariff of "
        f"its {s['group']}. Which rows cost most? Name each {s['label']}; there may be several.",
        sorted(name for name, cost in costs.items() if cost == top),
        f"tariffs = {{r['{s['group']}']: int(r['tariff']) for r in csv.DictReader(open('{_TARIFFS}', newline=''))}}\n"
        f"costs = {{r['{s['label']}']: r['{s['count']}'] * tariffs[r['{s['group']}']] for r in rows}}\n"
        "print('; '.join(sorted(n for n, c in costs.items() if c == max(costs.values()))))",
    )


QUESTIONS: dict[str, tuple[int, Callable[[_World, Draws], _Asked]]] = {
    "costs": (4, _costs),
    "dearest": (4, _dearest),
    "how many": (1, _how_many),
    "in month": (3, _in_month),
    "largest": (1, _largest),
    "missing": (2, _missing),
    "span": (3, _span),
    "top group": (2, _top_group),
    "total": (1, _total),
}
"""Each family of questions: the least level it is asked at, and the function that asks."""
