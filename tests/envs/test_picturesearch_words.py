"""What PictureSearch's words tell: enough to answer, and what the pictures show.

A reader answers the questions from the words of what the explorer has seen, and from nothing else.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import gymnasium as gym
import pytest

from agent_envs.datasets.picturesearch.generated.drawing import draw, palette
from agent_envs.datasets.picturesearch.generated.pages import FAMILIES, GeneratedPages
from agent_envs.datasets.picturesearch.generated.sheet import Sheet
from agent_envs.files import table

ID = "AgentR1/PictureSearch-v0"
LEVELS = (1, 2, 3, 4, 5)
DATA = "agent_envs.datasets.picturesearch.generated"

_LINE = re.compile(r"^(\d+) (\d+) (\d+) (\d+): (.*)$", re.MULTILINE)


class Seen(NamedTuple):
    left: int
    top: int
    right: int
    bottom: int
    words: str

    @property
    def x(self) -> float:
        return (self.left + self.right) / 2

    @property
    def y(self) -> float:
        return (self.top + self.bottom) / 2


def read(family: str, question: str, observations: list[str]) -> str:
    """Return the answer; the best words are kept for each box."""
    found: dict[tuple[int, ...], str] = {}
    for observation in observations:
        for *box, words in _LINE.findall(observation):
            place = tuple(map(int, box))
            found[place] = max(found.get(place, ""), words, key=len)
    return _READERS[family](question, [Seen(*place, words) for place, words in found.items()])  # type: ignore[call-arg]


def _one(seen: list[Seen], start: str) -> Seen:
    (found,) = [thing for thing in seen if thing.words.startswith(start)]
    return found


def _inside(seen: list[Seen], box: Seen) -> list[Seen]:
    return [
        thing
        for thing in seen
        if thing != box and box.left - 2 <= thing.left and thing.right <= box.right + 2
        and box.top - 2 <= thing.top and thing.bottom <= box.bottom + 2
    ]  # fmt: skip


def _find(question: str, seen: list[Seen]) -> str:
    name, mark = re.findall(r"the (\w+ (?:crate|barrel|sign))(?: marked with a (\w+))?", question)[0]
    (item,) = [one for one in seen if re.match(rf"an? {name} marked with a {mark or '[a-z]+'}:", one.words)]
    if "next thing to the right" in question:
        rows = _rows([one for one in seen if re.match(r"an? \w+ (crate|barrel|sign)", one.words)])
        row = next(row for row in rows if item in row)
        item = row[row.index(item) + 1]
    return re.findall(r"code (\w+)", item.words)[0]


def _rows(things: list[Seen]) -> list[list[Seen]]:
    """Return things that stand in rows, from left to right."""
    things = sorted(things, key=lambda thing: thing.y)
    gaps = [after.y - before.y for before, after in pairwise(things)]
    rows = [[things[0]]]
    for thing, gap in zip(things[1:], gaps, strict=True):
        if gap > max(gaps) / 2:
            rows.append([])
        rows[-1].append(thing)
    return [sorted(row, key=lambda thing: thing.x) for row in rows]


def _compare(question: str, seen: list[Seen]) -> str:
    name, word = re.findall(r"Which (\w+ \w+) has the ([\w ]+) number", question)[0]
    of_name = [
        re.findall(r"code (\w+), below it the number (\d+)", one.words) for one in seen if f" {name} " in one.words
    ]
    ranked = sorted((int(number), code) for ((code, number),) in of_name)
    return ranked[{"largest": -1, "second largest": -2, "smallest": 0}[word]][1]


def _count(question: str, seen: list[Seen]) -> str:
    colour, first, second = re.findall(r"the (\w+) border, .* a (\w+), and .* a (\w+)\?", question)[0]
    inside = _inside(seen, _one(seen, f"a field with a {colour} border"))
    return ", ".join(str(sum(one.words == f"a {kind}" for one in inside)) for kind in (first, second))


def _follow(question: str, seen: list[Seen]) -> str:
    colour, hops = re.findall(r"Start at the (\w+) card and follow (\d+)", question)[0]
    cards = [one for one in seen if " card" in one.words]
    rows = _rows(cards)
    turned = [one._replace(left=one.top, top=one.left, right=one.bottom, bottom=one.right) for one in cards]
    columns = [[cards[turned.index(one)] for one in column] for column in _rows(turned)]
    (card,) = [one for one in cards if one.words.startswith(f"a {colour} card")]
    for _ in range(int(hops)):
        arrow, far = re.findall(r"an arrow (\w+)(?: and the number (\d))?", card.words)[0]
        line = next(line for line in (rows if arrow in ("left", "right") else columns) if card in line)
        card = line[line.index(card) + int(far or 1) * (1 if arrow in ("right", "down") else -1)]
    return re.findall(r"code (\w+)", card.words)[0]


def _chart(question: str, seen: list[Seen]) -> str:
    colour, code = re.findall(r"the (\w+) head, .* labelled (\w+)\?", question)[0]
    box = _one(seen, f"a chart with a {colour} head")
    steps = int((re.findall(r"(\d+) steps", box.words) or ["1"])[0])
    inside = _inside(seen, box)
    label = _one(inside, f"the label {code} below")
    (top,) = [
        one
        for one in inside
        if one.words.startswith("the upper end")
        and abs(one.x - label.x) < 15
        and one.left < label.right
        and one.right > label.left
    ]
    ticks = sorted(
        (one.y, int(re.findall(r"value (\d+)", one.words)[0])) for one in inside if one.words.startswith("the value")
    )
    if steps == 1:
        return str(min(ticks, key=lambda tick: abs(tick[0] - top.top))[1])
    below, value = max(ticks)
    above, higher = max(tick for tick in ticks if tick[0] < below)
    part = (higher - value) // steps
    return str(value + round((below - top.top) / (below - above) * steps) * part)


def _table(question: str, seen: list[Seen]) -> str:
    column, row = re.findall(r"column (\w+) of the row (\w+)\?", question)[0]
    head, side = _one(seen, f"the head of a column: {column}"), _one(seen, f"the name of a row: {row}")
    (cell,) = [one for one in seen if one.words.isdecimal() and one.left == head.left and one.top == side.top]
    return cell.words


def _form(question: str, seen: list[Seen]) -> str:
    colour, name = re.findall(r"the (\w+) head, .* after (\w+)\?", question)[0]
    inside = _inside(seen, _one(seen, f"a form with a {colour} head"))
    label = _one(inside, f"the field {name}")
    row = [one for one in inside if one.left > label.right and one.top - 2 <= label.y <= one.bottom + 2]
    entries = [one.words.removeprefix("the entry ") for one in row if one.words.startswith("the entry")]
    boxes = [one.words for one in row if one.words.startswith("the box")]
    return entries[0] if entries else "".join(sorted(words[8] for words in boxes if words.endswith(", ticked")))


_READERS: dict[str, Callable[[str, list[Seen]], str]] = {
    "chart": _chart,
    "compare": _compare,
    "count": _count,
    "find": _find,
    "follow": _follow,
    "form": _form,
    "table": _table,
}


def seen_by_the_explorer(family: str, level: int, index: int) -> list[str]:
    env = gym.make(ID, split="validation", level=level, families=family, view="words")
    observations = [env.reset(options={"index": index})[0]]
    while "<answer>" not in (action := env.unwrapped.expert_action()):
        observations.append(env.step(action)[0])
    return observations


def follow_line(sheet: Sheet, colour: str) -> str:
    """Where a line ends: the boxes of its straight parts meet at their ends, and elsewhere lines cross."""
    s = sheet.stamps[0].scale
    lines = [thing.box for thing in sheet.things if thing.line]
    (start,) = [thing.box for thing in sheet.things if thing.near == f"the {colour} end of a line"]
    x, y, old = start[2], (start[1] + start[3]) // 2, None
    while True:
        ends = [
            (box, end)
            for box in lines
            if box != old
            for end in ((box[0] + s, box[1] + s), (box[2] - s, box[3] - s))
            if end == (x, y)
        ]
        if not ends:
            labels = [t for t in sheet.things if t.near.startswith("the label") and t.box[1] <= y <= t.box[3]]
            return labels[0].near.removeprefix("the label ")
        ((old, _),) = ends
        x, y = (old[0] + old[2] - x, old[1] + old[3] - y)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reader_of_what_the_explorer_saw_agrees(family):
    for level in LEVELS:
        tasks = GeneratedPages("validation", level, family)
        for index in range(2):
            task = tasks[index]
            if "A line begins" in task.question:
                assert follow_line(task.sheet, re.findall(r"at the (\w+) end", task.question)[0]) == task.answers[0]
            else:
                said = read(family, task.question, seen_by_the_explorer(family, level, index))
                assert said == ", ".join(task.answers), task.task_id


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_words_tell_is_written_there_and_drawn_dot_by_dot(family):
    glyphs, words = table(DATA, "glyphs.json"), table(DATA, "words.json")
    colours = [*words["shades"], *words["colours"]]
    assert palette().tolist() == [list((words["shades"] | words["colours"])[name]) for name in colours]
    for level in LEVELS:
        sheet = GeneratedPages("train", level, family)[level].sheet
        page = draw(sheet)
        for x, y, scale, colour, what, icon in sheet.stamps[:: max(1, len(sheet.stamps) // 15)]:
            for place, name in enumerate([what] if icon else what.replace(" ", "-")):
                if name == "-":
                    continue
                for row, dots in enumerate(glyphs["icons" if icon else "letters"][name].split("/")):
                    for column, dot in enumerate(dots):
                        left, top = x + (6 * place + column) * scale, y + row * scale
                        block = page[top : top + scale, left : left + scale]
                        drawn = (block == colours.index(colour)).all()
                        assert block.shape[:2] == (scale, scale) and drawn == (dot == "#")
        for thing in sheet.things:
            inside = [
                stamp.what
                for stamp in sheet.stamps
                if thing.box[0] <= stamp.x < thing.box[2] and thing.box[1] <= stamp.y < thing.box[3]
            ]
            codes = re.findall(r"\b[A-Z0-9]{2,}\b", thing.near) if thing.far != thing.near else []
            assert set(codes) <= set(inside), thing
