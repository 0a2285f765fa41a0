"""Pages of documents: a value is read off a chart, out of a table, or out of a form."""

from __future__ import annotations

from agent_envs.datasets.generated_tasks import shuffled
from agent_envs.datasets.picturesearch.generated.sheet import LETTER, Asked, Box, Draft, Stage

# charts, bars of each, labelled lines of the axis, unlabelled steps between two of them
_CHARTS = {1: (1, 4, 5, 1), 2: (1, 6, 6, 2), 3: (2, 8, 6, 5), 4: (3, 10, 8, 5), 5: (4, 12, 8, 5)}
_TABLES = {1: (3, 6), 2: (4, 12), 3: (6, 24), 4: (9, 44), 5: (12, 60)}  # columns, rows
_FORMS = {1: (1, 5), 2: (2, 7), 3: (4, 9), 4: (6, 11), 5: (9, 13)}  # forms, fields
_BAR, _STEP = 36, 8  # dots from bar to bar, and from line to line of an axis with steps between the labelled ones
_ROW, _COLUMN = 16, 52  # dots of a table's cell
_FIELD, _FORM = 18, 220  # dots from field to field, and a form's width
_CHOICES = "ABCDEFGH"


def chart(draft: Draft) -> Asked:
    """Ask for the value of one bar."""
    draws, level, s = draft.draws, draft.level, draft.scale
    draft.ground("paper")
    charts, bars, labelled, steps = _CHARTS[level]
    pitch = (_STEP if steps > 1 else 2 * _STEP) * s
    lines = (labelled - 1) * steps
    width, height = (bars * _BAR + 44) * s, lines * pitch + 52 * s
    boxes = draft.fitting(charts, width, height)
    colours = draft.some("colours", charts)
    asked = draws.between(0, charts - 1)
    questions: list[Asked] = []
    for n, (box, colour) in enumerate(zip(boxes, colours, strict=True)):
        base, step = draws.between(0, 900), draws.pick([10, 20, 40, 100] if steps == 2 else [5, 10, 20, 50])
        draft.rect(box, "white")
        draft.rect((box[0], box[1], box[2], box[1] + 16 * s), colour)
        draft.text(
            box[0] + 4 * s, box[1] + 4 * s, f"{draws.pick(draft.words['subjects'])} {draft.code()}", draft.ink(colour)
        )
        between = f", {steps} steps from one value of its axis to the next" if steps > 1 else ""
        draft.seen(box, f"a chart with a {colour} head{between}")
        left, bottom = box[0] + 36 * s, box[3] - 16 * s
        ticks: list[Box] = []
        for line in range(lines + 1):
            y = bottom - line * pitch
            main = line % steps == 0
            draft.rect((left, y, box[2] - 4 * s, y + s), "rule" if main else "faint")
            if main:
                text = str(base + line // steps * step)
                tick = draft.text(left - (4 + LETTER * len(text)) * s, y - 3 * s, text)
                ticks.append(draft.thing(tick, f"the value {text} on the axis, its line at the middle of this box"))
        labels, tops, values = [], [], []
        for bar in range(bars):
            x, line, code = left + (8 + bar * _BAR) * s, draws.between(1, lines), draft.code()
            top = (x, bottom - line * pitch, x + 20 * s, bottom - line * pitch + 2 * s)
            draft.rect((x, top[1], x + 20 * s, bottom), colour)
            draft.rect(top, "ink")
            draft.seen((x, top[1], x + 20 * s, bottom), f"a {colour} bar")
            tops.append(draft.thing(top, "the upper end of a bar, its value at the top of this box"))
            labels.append(draft.thing(draft.text(x - 2 * s, bottom + 5 * s, code), f"the label {code} below a bar"))
            values.append((line, code, base * steps + line * step))
        if n == asked:
            bar = draws.between(0, bars - 1)
            line, code, value = values[bar]
            low = min(line // steps, labelled - 2)
            marks = ticks[low : low + 2] if steps > 1 else [ticks[line]]
            text = f"On the chart with the {colour} head, what is the value of the bar labelled {code}?"
            stages = draft.stages((labels, bar + 1), ([tops[bar]], 1), (marks, len(marks)))
            looks = draft.looks(labels[bar], tops[bar], *marks)
            questions.append(Asked(text, (str(value // steps),), stages, looks))
    return questions[0]


def table(draft: Draft) -> Asked:
    """Ask for one cell of a table."""
    draws, level, s = draft.draws, draft.level, draft.scale
    draft.ground("paper")
    columns, rows = _TABLES[level]
    width, height = ((columns + 1) * _COLUMN + 4) * s, (rows + 1) * _ROW * s
    left = draws.between(8, (draft.width - width) // s - 8) * s
    top = draws.between(60, (draft.height - height) // s - 8) * s
    draft.text(left, top - 40 * s, f"{draws.pick(draft.words['subjects'])} {draft.code()}", scale=2 * s)
    notes = top + height + 16 * s  # where running text begins
    if draft.height - notes > 40 * s:
        draft.running_text((16 * s, notes, draft.width - 16 * s, min(draft.height - 16 * s, notes + 120 * s)))
    box = (left, top, left + width, top + height)
    draft.seen(box, f"a table: a head, and {rows} rows of a name and {columns} columns")
    draft.rect(box, "white")
    draft.rect((left, top, left + width, top + _ROW * s), "faint")
    for row in range(rows + 2):
        draft.rect((left, top + row * _ROW * s, left + width, top + row * _ROW * s + s), "rule")
    names = draft.some("columns", columns)
    heads, sides = [], []
    for column, name in enumerate(names):
        head = draft.text(left + ((column + 1) * _COLUMN + 6) * s, top + 5 * s, name)
        heads.append(draft.thing(head, f"the head of a column: {name}"))
    asked = draws.between(0, rows - 1), draws.between(0, columns - 1)
    answer, cell, side_code = "", (0, 0, 0, 0), ""
    for row in range(rows):
        y, code = top + ((row + 1) * _ROW + 5) * s, draft.code()
        sides.append(draft.thing(draft.text(left + 6 * s, y, code), f"the name of a row: {code}"))
        for column in range(columns):
            value = str(draws.between(100, 9999))
            box = draft.thing(draft.text(left + ((column + 1) * _COLUMN + 6) * s, y, value), value)
            if (row, column) == asked:
                answer, cell, side_code = value, box, code
    question = f"What does the table have in the column {names[asked[1]]} of the row {side_code}?"
    stages = draft.stages((heads, asked[1] + 1), (sides, asked[0] + 1), ([cell], 1))
    return Asked(question, (answer,), stages, draft.looks(heads[asked[1]], sides[asked[0]], cell))


def form(draft: Draft) -> Asked:
    """Ask what is entered in a form, or which of its boxes are ticked."""
    draws, level, s = draft.draws, draft.level, draft.scale
    draft.ground("paper")
    forms, fields = _FORMS[level]
    boxes = draft.fitting(forms, _FORM * s, (fields * _FIELD + 26) * s)
    colours = draft.some("colours", forms)
    names = draft.some("fields", fields)
    ticked_place = draws.between(0, fields - 1)
    names[ticked_place] = draws.pick(draft.words["choices"])
    asked = draws.between(0, forms - 1), draws.between(0, fields - 1)
    questions: list[Asked] = []
    for n, (box, colour) in enumerate(zip(boxes, colours, strict=True)):
        draft.rect(box, "white")
        draft.frame(box, "rule", s)
        draft.rect((box[0], box[1], box[2], box[1] + 18 * s), colour)
        draft.text(box[0] + 6 * s, box[1] + 6 * s, draft.words_of(3)[:30], draft.ink(colour))
        draft.seen(box, f"a form with a {colour} head")
        order = shuffled(draws, names) if level >= 3 else names
        labels = []
        for place, name in enumerate(order):
            y = box[1] + (26 + place * _FIELD) * s
            labels.append(draft.thing(draft.text(box[0] + 6 * s, y + 2 * s, name), f"the field {name}"))
            x = box[0] + 70 * s
            if name in draft.words["choices"]:
                answers, values = _choices(draft, x, y)
                said = f"which boxes are ticked after {name}? Answer with their letters."
            else:
                code = draft.code()
                draft.frame((x, y - 2 * s, box[2] - 8 * s, y + 13 * s), "rule", s)
                values = [draft.thing(draft.text(x + 6 * s, y + 2 * s, code), f"the entry {code}")]
                answers = (code,)
                said = f"what is entered after {name}?"
            if (n, place) == asked:
                looks = draft.looks(*values)
                text = f"On the form with the {colour} head, {said}"
                stages = (Stage(draft.looks(*labels), len(labels)), Stage(looks, len(looks)))
                questions.append(Asked(text, answers, stages, (*draft.looks(labels[place]), *looks)))
    return questions[0]


def _choices(draft: Draft, x: int, y: int) -> tuple[tuple[str, ...], list[Box]]:
    """Draw boxes with letters, some of them ticked; return the letters of these and all the boxes."""
    s, boxes = draft.scale, []
    ticked: list[str] = []
    for place, letter in enumerate(_CHOICES):
        left = x + place * 17 * s
        draft.text(left, y + 2 * s, letter)
        box = (left + 6 * s, y, left + 15 * s, y + 11 * s)
        draft.frame(box, "ink", s)
        if draft.draws.between(0, 1) or (not ticked and letter == _CHOICES[-1]):
            draft.rect((box[0] + 2 * s, box[1] + 2 * s, box[2] - 2 * s, box[3] - 2 * s), "ink")
            ticked.append(letter)
        whole = (left, y, box[2], box[3])
        boxes.append(draft.thing(whole, f"the box {letter}, {'ticked' if letter in ticked else 'not ticked'}"))
    return ("".join(ticked),), boxes
