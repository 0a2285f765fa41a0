"""Pages of level 1 for a vision-language model to practise on, and parts of them, with what is to be seen there.

All pages are those of the split "train". A page can be drawn with fewer things on it, so that
one is found sooner, and things are shown from near with words that say what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from agent_envs.datasets.generated_tasks import shuffled, stream
from agent_envs.datasets.picturesearch.generated.pages import GeneratedPages
from agent_envs.datasets.picturesearch.generated.sheet import GRID, Box, PictureTask, Sheet
from agent_envs.envs.picturesearch.env import PictureSearchEnv
from agent_envs.envs.picturesearch.expert import next_boxes
from agent_envs.envs.picturesearch.view import DrawnPage, View, contains, window
from agent_envs.files import table
from agent_envs.messages import Content, Message, content_of
from agent_envs.pictures.picture import Picture
from benchmarks.pretraining.seen import Located, Picked, SeenPage, Thing

SIZE = 256
"""Pixels of the longest side of a page as shown."""
CLOSE = 128
"""Pixels of both sides of a part that is shown as drawn."""
_NEAR = re.compile(r"an? (\w+) (\w+) marked with an? (\w+): the code (\w)(\w), below it the number (\d)(\d)(\d)")


def vocabulary() -> list[list[str]]:
    """Return what each word of a thing may be: colour, kind, icon, two letters of its code, three digits."""
    stock = table("agent_envs.datasets.picturesearch.generated", "words.json")
    names = [list(stock[kind]) for kind in ("colours", "kinds", "icons")]
    return [*names, *[list(stock["letters"])] * 2, *[list("0123456789")] * 3]


def pages(seed: int | Sequence[int], count: int) -> Iterator[SeenPage]:
    """Yield pages without end, in an order of `seed`, each with close views of at most `count` of its things."""
    tasks = GeneratedPages("train", 1, ("find", "compare"))
    rng = np.random.default_rng(seed)
    for index in _orders(len(tasks), rng):
        sheet = tasks[index].sheet
        assert sheet is not None
        page, things = DrawnPage(sheet), _things(sheet)
        shown = _whole(page)
        chosen = rng.permutation(len(things))[:count]
        close = tuple(_picked(page, things, things[n].box, rng) for n in chosen)
        yield SeenPage(max(sheet.width, sheet.height) // SIZE, shown, things, close)


def _orders(count: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield the numbers below `count` in a drawn order, again and again."""
    while True:
        yield from rng.permutation(count).tolist()


def _whole(page: DrawnPage) -> NDArray[np.uint8]:
    return page.show(window(page.width, page.height, SIZE, (0, 0, page.width, page.height)))


def _things(sheet: Sheet) -> tuple[Thing, ...]:
    named = ((thing.box, _NEAR.match(thing.near)) for thing in sheet.things)
    return tuple(Thing(box, found.groups()) for box, found in named if found)


def _picked(page: DrawnPage, things: Sequence[Thing], box: Box, rng: np.random.Generator) -> Picked:
    """Return a part of a page that holds a box, begins on the grid and is anywhere else."""
    starts = []
    for low, high, length in ((box[0], box[2], page.width), (box[1], box[3], page.height)):
        first, last = max(0, -(-(high - CLOSE) // GRID)), min(low, length - CLOSE) // GRID
        starts.append(GRID * int(rng.integers(first, last + 1)))
    left, top = starts
    part = (left, top, left + CLOSE, top + CLOSE)
    return Picked(left, top, page.show(View(part, 0)), tuple(thing for thing in things if contains(part, thing.box)))


def described(picked: Picked) -> list[Message]:
    """Ask what a part of a page shows, and answer with the colour, place, code and number of the first thing in it."""
    thing = picked.things[0]
    code, number = "".join(thing.words[3:5]), "".join(thing.words[5:])
    corner = (thing.box[0] - picked.left, thing.box[1] - picked.top)
    said = f"{_place(thing, corner, (CLOSE, CLOSE))} <answer>{code}</answer> {number}"
    return _asked(picked.pixels, "What is it?", said)


def placed(seed: int, most: Sequence[int]) -> Iterator[Located]:
    """Ask where the things on a page are, and answer with the tenth in which each begins, in thousandths.

    An action has a few digits among many tokens that follow from each other. Here nearly all depend on the picture.
    Half of the places have the top first: who knows the left side finds the thing by that, without its colour.

    Args:
        seed: Draws the order of the pages and of the things.
        most: Numbers of things on a page, of which each page takes one as its most.
    """
    tasks = _FewerPages(most)
    rng = np.random.default_rng(seed)
    for index in _orders(len(tasks), rng):
        sheet = tasks[index].sheet
        assert sheet is not None
        found = _things(sheet)
        things = [found[n] for n in rng.permutation(len(found))]
        size = (sheet.width, sheet.height)
        said = [_place(thing, thing.box, size, turned=bool(rng.integers(2))) for thing in things]
        yield Located(_asked(_whole(DrawnPage(sheet)), "Where is what?", "\n".join(said)), _middles(things, sheet))


def _middles(things: Iterable[Thing], sheet: Sheet) -> tuple[tuple[int, int], ...]:
    factor = max(sheet.width, sheet.height) // SIZE
    return tuple(
        ((box[0] + box[2]) // 2 // factor, (box[1] + box[3]) // 2 // factor) for box in (thing.box for thing in things)
    )


def _place(thing: Thing, corner: Sequence[int], size: tuple[int, int], *, turned: bool = False) -> str:
    """Return a thing's colour and the tenth in which its box begins, in thousandths; if `turned`, the top first."""
    left, top = (at * 10 // length * 100 for at, length in zip(corner, size, strict=False))
    sides = [f'"left": {left}', f'"top": {top}'][:: -1 if turned else 1]
    return f"{thing.words[0]}: {{{', '.join(sides)}}}"


def _asked(pixels: NDArray[np.uint8], question: str, answer: str) -> list[Message]:
    parts: Content = [{"type": "image", "image": Picture(pixels.copy())}, {"type": "text", "text": question}]
    return [{"role": "user", "content": parts}, {"role": "assistant", "content": answer}]


def looked_for(seed: int, most: Sequence[int]) -> Iterator[Located]:
    """Ask what is written on one thing of a page after the other, and answer each time with where to zoom.

    Args:
        seed: Draws the order of the pages and of the things.
        most: Numbers of things on a page, of which each page takes one as its most.
    """
    env = _Fewer(most)
    rng = np.random.default_rng(seed)
    for index in _orders(len(env.tasks), rng):
        observation, _ = env.reset(options={"index": index})
        asked = content_of(observation)
        sheet = env.task.sheet
        things = _things(sheet)
        first = [thing for thing in things if thing.box == env.task.proof[0].box]
        others = [things[n] for n in rng.permutation(len(things)) if things[n] not in first]
        messages: list[Message] = []
        for thing in first + others:
            if messages:
                asked = f"What is written on the {thing.words[0]} {thing.words[1]}?"
            messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": env.zoom_to(thing)}]
        yield Located(messages, _middles(first + others, sheet))


def fewer_things(task: PictureTask, most: int) -> PictureTask:
    """Return a task on a page of which things are taken away, except what is looked for and `most` - 1 others."""
    assert task.sheet is not None
    wanted = [look.box for look in task.proof]
    others = [thing.box for thing in task.sheet.things if thing.box not in wanted]
    draws = stream(f"{task.task_id}/fewer")
    gone = shuffled(draws, others)[max(0, most - len(wanted)) :]

    def left(box: Box) -> bool:
        return not any(contains(other, box) for other in gone)

    sheet = task.sheet._replace(
        rects=tuple(rect for rect in task.sheet.rects if left(rect[:4])),
        stamps=tuple(stamp for stamp in task.sheet.stamps if left((stamp.x, stamp.y, stamp.x + 1, stamp.y + 1))),
        things=tuple(thing for thing in task.sheet.things if left(thing.box)),
    )
    return task._replace(task_id=f"{task.task_id}/{most}", sheet=sheet)


class _Fewer(PictureSearchEnv):
    def __init__(self, most: Sequence[int]) -> None:
        self._most = most
        super().__init__(split="train", level=1, families="find", expert="oracle", size=SIZE)

    def open_tasks(self) -> _FewerPages:
        return _FewerPages(self._most)

    def zoom_to(self, thing: Thing) -> str:
        """Return the expert's action if it looked for a thing."""
        task: PictureTask = self.task
        wanted = task._replace(proof=(task.proof[0]._replace(box=thing.box),))
        return self._calls(next_boxes(wanted, self.state.views, self.size, 1, oracle=True))


class _FewerPages(GeneratedPages):
    def __init__(self, most: Sequence[int]) -> None:
        super().__init__("train", 1, "find")
        self._most = list(most)

    def get(self, index: int) -> PictureTask:
        return fewer_things(super().get(index), stream(f"{self._prefix}/{index}/most").pick(self._most))
