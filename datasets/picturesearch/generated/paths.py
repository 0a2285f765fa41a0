"""Pages on which something is followed: lines from end to end, or arrows from card to card."""

from __future__ import annotations

from itertools import pairwise

from agent_envs.datasets.generated_tasks import Impossible, shuffled
from agent_envs.datasets.picturesearch.generated.sheet import Asked, Box, Draft, Look, Stage, split_up

_WIRES = {1: (4, 1), 2: (6, 1), 3: (9, 2), 4: (13, 2), 5: (18, 3)}  # lines, and how often they change places
_CARDS = {1: (3, 3, 2), 2: (4, 3, 3), 3: (5, 5, 4), 4: (7, 6, 6), 5: (9, 8, 8)}  # across, down, arrows to follow
_STEPS = {"right": (1, 0), "left": (-1, 0), "down": (0, 1), "up": (0, -1)}
_WIDE, _HIGH = 64, 40  # dots of a card
_PITCH = 26  # dots from one line to the next

_Point = tuple[int, int]


def follow(draft: Draft) -> Asked:
    """Ask where a line, or a way along arrows, ends."""
    return draft.draws.pick([_lines, _arrows])(draft)


def _lines(draft: Draft) -> Asked:
    """Lines lead from the left to the right and cross; the ends are labelled."""
    draws, s = draft.draws, draft.scale
    draft.ground("paper")
    lines, changes = _WIRES[draft.level]
    pitch = _PITCH * s
    top = draws.between(20, draft.height // s - (lines + 1) * _PITCH - 20) * s
    left = draws.between(40, 60) * s
    right = draft.width - draws.between(40, 60) * s
    room = (right - left) // changes
    rows = [top + line * pitch for line in range(lines)]
    points = [[(left, rows[line])] for line in range(lines)]
    for change in range(changes):
        shift = pitch // 2 if change % 2 == 0 else 0
        target = shuffled(draws, range(lines))
        begin = left + change * room
        step = (room - 16 * s) // (lines + 1)
        if step < 6 * s:
            raise Impossible
        turns = shuffled(draws, [begin + 8 * s + (n + 1) * step for n in range(lines)])
        for line in range(lines):
            x, y = turns[line], rows[target[line]] + shift
            points[line] += [(x, points[line][-1][1]), (x, y)]
    for way in points:
        way.append((right, way[-1][1]))
        for one, other in pairwise(way):
            box = _box(draft, one, other)
            draft.rect(box, "ink")
            draft.thing(box, "a line", factor=2 * s, line=True)
    asked = draws.between(0, lines - 1)
    colour = draws.pick(["red", "blue", "green", "orange", "purple"])
    codes = [draft.code() for _ in range(lines)]
    for line, way in enumerate(points):
        x, y = way[0]
        shown = colour if line == asked else "rule"
        start = (x - 24 * s, y - 8 * s, x, y + 8 * s)
        draft.rect(start, shown)
        draft.seen(start, f"the {colour if line == asked else 'grey'} end of a line")
        end_x, end_y = way[-1]
        draft.thing(draft.text(end_x + 4 * s, end_y - 3 * s, codes[line]), f"the label {codes[line]}")
    way = points[asked]
    label = (right + 4 * s, way[-1][1] - 3 * s, right + 4 * s + 6 * s * len(codes[asked]), way[-1][1] + 4 * s)
    stages = []  # where it goes on is seen piece by piece
    for one, other in pairwise(way):
        pieces = split_up(_box(draft, one, other), 64 * s)
        stages += [Stage((Look(piece, 2 * s),), 1) for piece in (pieces if one <= other else pieces[::-1])]
    end = draft.looks(label)
    question = f"A line begins at the {colour} end on the left. Which label does it lead to on the right?"
    return Asked(question, (codes[asked],), (*stages, Stage(end, len(end))), end)


def _box(draft: Draft, start: _Point, end: _Point) -> Box:
    """Return the box of a straight part of a line."""
    (x, y), (to_x, to_y), s = start, end, draft.scale
    return (min(x, to_x) - s, min(y, to_y) - s, max(x, to_x) + s, max(y, to_y) + s)


def _arrows(draft: Draft) -> Asked:
    """Cards have a code, an arrow and, on higher levels, how many cards it goes on."""
    draws, s = draft.draws, draft.scale
    draft.ground("ground")
    across, down, hops = _CARDS[draft.level]
    most = 1 if draft.level < 4 else draft.level - 2
    grid = draft.cells(across, down, _WIDE * s, _HIGH * s)
    x, y = draws.between(0, across - 1), draws.between(0, down - 1)
    way, arrows = [(x, y)], {}
    for _ in range(hops):
        ways = [step for step in _steps(x, y, across, down, most) if step[2] not in way]
        if not ways:
            raise Impossible
        name, far, (to_x, to_y) = draws.pick(ways)
        arrows[x, y] = (name, far)
        x, y = to_x, to_y
        way.append((x, y))
    colour = draws.pick(["red", "blue", "green", "yellow", "orange", "purple"])
    codes = {}
    for number, box in enumerate(grid):
        row, column = divmod(number, across)
        name, far = arrows.get((column, row)) or draws.pick(_steps(column, row, across, down, most))[:2]
        codes[column, row] = code = draft.code()
        paper = colour if (column, row) == way[0] else "white"
        draft.rect(box, "rule")
        draft.rect((box[0] + s, box[1] + s, box[2] - s, box[3] - s), paper)
        ink = draft.ink(paper)
        draft.text(box[0] + 8 * s, box[1] + 8 * s, code, ink)
        draft.icon(box[0] + 8 * s, box[1] + 22 * s, name, ink)
        if most > 1:
            draft.text(box[0] + 24 * s, box[1] + 23 * s, str(far), ink)
        arrow = f"an arrow {name}" + (f" and the number {far}" if most > 1 else "")
        draft.thing(box, f"a {paper} card: the code {code}, {arrow}", f"a {paper} card")
    rule = (
        "Each card has an arrow to the next card in its row or column."
        if most == 1
        else "The arrow and the number of a card say in which direction and how many cards further the next one is."
    )
    question = f"{rule} Start at the {colour} card and follow {hops} arrows. What is the code of the card at the end?"
    boxes = [grid[row * across + column] for column, row in way]
    stages = tuple(Stage(draft.looks(box), len(draft.looks(box)), near=True) for box in boxes)
    return Asked(question, (codes[way[-1]],), stages, draft.looks(boxes[-1]))


def _steps(x: int, y: int, across: int, down: int, most: int) -> list[tuple[str, int, _Point]]:
    """Return the arrows that a card may have, how far each leads, and where to."""
    return [
        (name, far, (x + dx * far, y + dy * far))
        for name, (dx, dy) in _STEPS.items()
        for far in range(1, most + 1)
        if 0 <= x + dx * far < across and 0 <= y + dy * far < down
    ]
