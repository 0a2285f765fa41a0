"""Pages of things in a yard: one is found and read, several are compared, small ones are counted."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from agent_envs.datasets.generated_tasks import Impossible, shuffled
from agent_envs.datasets.picturesearch.generated.sheet import Asked, Box, Draft, Stage

_GRIDS = {1: (3, 2), 2: (4, 3), 3: (5, 4), 4: (7, 5), 5: (9, 7)}  # things across and down, by level
_LIKE = {1: 1, 2: 1, 3: 3, 4: 5, 5: 8}  # things that look like the right one from afar
_COMPARED = {1: 3, 2: 4, 3: 5, 4: 6, 5: 8}
_PANELS = {1: (2, 8, 12), 2: (3, 10, 14), 3: (4, 14, 18), 4: (5, 16, 22), 5: (6, 18, 26)}  # how many, cells, most
_WIDE, _HIGH = 64, 40  # dots of a thing in a yard


class _Item(NamedTuple):
    kind: str
    colour: str
    icon: str
    code: str
    number: int
    box: Box

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"


def find(draft: Draft) -> Asked:
    """Ask what is written on one thing: of its colour, with its icon, or beside such a one."""
    draws, level = draft.draws, draft.level
    like = _LIKE[level]
    items, first = _yard(draft, like)
    beside = {item: after for n, (item, after) in enumerate(pairwise(items), 1) if n % _GRIDS[level][0]}
    right = draws.pick([item for item in first if level < 5 or item in beside])
    name = right.name if like == 1 else f"{right.name} marked with a {right.icon}"
    read, question = right, f"What is written on the {name}?"
    if level == 5:
        read = beside[right]
        question = f"What is written on the next thing to the right of the {name}, in the same row?"
    seen = Stage(draft.looks(*(item.box for item in first)), first.index(right) + 1, near=level > 1)
    looks = draft.looks(read.box)
    stages = (seen,) if read is right else (seen, Stage(looks, 1, near=True))
    return Asked(question, (read.code,), stages, looks if read is right else (*draft.looks(right.box), *looks))


def compare(draft: Draft) -> Asked:
    """Ask which of the things of one colour and kind has the largest, the smallest or the second largest number."""
    draws, level = draft.draws, draft.level
    _, first = _yard(draft, _COMPARED[level])
    by_number = sorted(first, key=lambda item: item.number)
    choices = [("largest", by_number[-1]), ("smallest", by_number[0]), ("second largest", by_number[-2])]
    word, right = draws.pick(choices if level >= 4 else choices[:2])
    question = f"Which {right.name} has the {word} number? Answer with the code above it."
    looks = draft.looks(*(item.box for item in first))
    return Asked(question, (right.code,), (Stage(looks, len(looks), near=level > 1),), looks)


def _yard(draft: Draft, like: int) -> tuple[list[_Item], list[_Item]]:
    """Draw a yard; return what is in it, and which `like` things of that have the wanted kind and colour, in order."""
    draws, scale = draft.draws, draft.scale
    wanted = (draws.pick(draft.words["kinds"]), draws.pick(list(draft.words["colours"])))
    draft.ground("ground")
    shade = draft.colour[-1]
    for _ in range(3):
        across, at = draws.between(10, 30) * scale, draws.between(0, draft.height - 40 * scale)
        draft.rect((0, at, draft.width, at + across), f"path {shade}")
        at = draws.between(0, draft.width - 40 * scale)
        draft.rect((at, 0, at + across, draft.height), f"path {shade}")
    columns, rows = _GRIDS[draft.level]
    boxes = draft.cells(columns, rows, _WIDE * scale, _HIGH * scale)
    order = shuffled(draws, [wanted] * like + _others(draft, wanted, columns * rows - like))
    if draft.level == 5 and all(order[n] != wanted for n in range(len(order)) if n % columns != columns - 1):
        raise Impossible
    numbers = shuffled(draws, range(100, 1000))
    icons = shuffled(draws, list(draft.words["icons"]))
    items: list[_Item] = []
    first: list[_Item] = []
    for (kind, colour), number, box in zip(order, numbers, boxes, strict=False):
        icon = icons[len(first) % len(icons)] if (kind, colour) == wanted else draws.pick(icons)
        item = _Item(kind, colour, icon, draft.code(), number, box)
        items.append(item)
        if (kind, colour) == wanted:
            first.append(item)
        _put(draft, item)
    return items, first


def _others(draft: Draft, wanted: tuple[str, str], count: int) -> list[tuple[str, str]]:
    """Return the kinds and colours of as many other things; on level 1 every colour but the wanted one is free."""
    draws, words = draft.draws, draft.words
    if draft.level == 1:
        free = [colour for colour in shuffled(draws, list(words["colours"])) if colour != wanted[1]]
        return [(wanted[0], colour) for colour in free[:count]]
    others: list[tuple[str, str]] = []
    while len(others) < count:
        other = (draws.pick(words["kinds"]), draws.pick(list(words["colours"])))
        if other != wanted:
            others.append(other)
    return others


def _put(draft: Draft, item: _Item) -> None:
    left, top, right, bottom = item.box
    s = draft.scale
    if item.kind == "barrel":
        draft.rect((left + 10 * s, top, right - 10 * s, bottom), item.colour)
        draft.rect((left, top + 8 * s, right, bottom - 8 * s), item.colour)
    elif item.kind == "crate":
        draft.rect(item.box, "ink")
        draft.rect((left + 2 * s, top + 2 * s, right - 2 * s, bottom - 2 * s), item.colour)
    else:
        draft.rect((left + 29 * s, top, left + 35 * s, bottom), "ink")
        draft.rect((left, top, right, bottom - 10 * s), item.colour)
    ink = draft.ink(item.colour)
    draft.icon(left + 12 * s, top + 9 * s, item.icon, ink)
    draft.text(left + 26 * s, top + 9 * s, item.code, ink)
    draft.text(left + 26 * s, top + 20 * s, str(item.number), ink)
    what = f"{'an' if item.colour == 'orange' else 'a'} {item.name}"
    near = f"{what} marked with a {item.icon}: the code {item.code}, below it the number {item.number}"
    draft.thing(item.box, near, what)


def count(draft: Draft) -> Asked:
    """Ask how many icons of two kinds are in a field."""
    draws, level, s = draft.draws, draft.level, draft.scale
    draft.ground("paper")
    panels, cells, most = _PANELS[level]
    side = (cells * 14 + 8) * s
    boxes = draft.fitting(panels, side, side)
    colours = draft.some("colours", panels)
    asked = draws.between(0, panels - 1)
    kinds = draft.some("icons", 5)
    answers: tuple[str, ...] = ()
    for n, (box, colour) in enumerate(zip(boxes, colours, strict=True)):
        draft.rect(box, colour)
        inside = (box[0] + 3 * s, box[1] + 3 * s, box[2] - 3 * s, box[3] - 3 * s)
        draft.rect(inside, "white")
        draft.seen(box, f"a field with a {colour} border")
        counts = [draws.between(1, most), draws.between(1, most)]
        counts += [draws.between(0, (cells * cells - 2 * most) // 4) for _ in kinds[2:]]
        drawn = [kind for kind, number in zip(kinds, counts, strict=True) for _ in range(number)]
        places = shuffled(draws, range(cells * cells))[: len(drawn)]
        for kind, place in zip(drawn, places, strict=True):
            x = box[0] + (4 + place % cells * 14 + draws.between(0, 4)) * s
            y = box[1] + (4 + place // cells * 14 + draws.between(0, 4)) * s
            draft.thing(draft.icon(x, y, kind), f"a {kind}")
        if n == asked:
            answers = (str(counts[0]), str(counts[1]))
    question = (
        f"In the field with the {colours[asked]} border, how many times is there a {kinds[0]}, and how many times a "
        f"{kinds[1]}? Answer with the two numbers in this order, such as 3, 10."
    )
    looks = draft.looks(boxes[asked])
    return Asked(question, answers, (Stage(looks, len(looks)),), looks)
