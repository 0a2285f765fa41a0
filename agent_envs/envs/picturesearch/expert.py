"""Where the experts look next: the oracle where the answer is, the explorer where it may be until it has seen it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_envs.datasets.picturesearch.generated.sheet import Box, Look, PictureTask, Stage
from agent_envs.envs.picturesearch.view import View, contains

_LETTERS, _DIGITS = "ACDEFHJKLMNPRTUVWXY", "0123456789"


def next_boxes(task: PictureTask, views: Sequence[View], size: int, most: int, *, oracle: bool) -> list[Box]:
    """Return the boxes to look at next, in thousandths of the page; none if enough has been seen to answer.

    An explorer looks at the candidates of a stage in order until the one it looks for has been seen. Several of them
    are looked at in one box if it holds them all and they are legible in it.
    """
    assert task.sheet is not None
    page = (task.sheet.width, task.sheet.height)
    stages = (Stage(task.proof, len(task.proof), task.stages[-1].near),) if oracle else task.stages
    for stage in stages:
        unseen = [
            look
            for look in stage.looks
            if not any(view.factor <= look.factor and contains(view.box, look.box) for view in views)
        ]
        if any(look in unseen for look in stage.looks[: stage.enough]):
            return _windows(unseen, page, size, most, near=stage.near)
    return []


def random_box(rng: np.random.Generator) -> Box:
    """Return a box anywhere, in thousandths."""
    side = int(rng.integers(60, 500))
    left, top = (int(rng.integers(0, 1001 - side)) for _ in range(2))
    return left, top, left + side, top + side


def misread(answers: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    """Return answers of which one character is another."""
    wrong = int(rng.integers(len(answers)))
    place = int(rng.integers(len(answers[wrong])))
    old = answers[wrong][place]
    others = [c for c in (_DIGITS if old.isdecimal() else _LETTERS) if c != old]
    new = answers[wrong][:place] + others[int(rng.integers(len(others)))] + answers[wrong][place + 1 :]
    return (*answers[:wrong], new, *answers[wrong + 1 :])


def _windows(looks: list[Look], page: tuple[int, int], size: int, most: int, *, near: bool) -> list[Box]:
    """Return boxes in thousandths that hold looks in order: one each if `near`, else as many as a window can show."""
    boxes: list[Box] = []
    while looks and len(boxes) < most:
        first = looks[0]
        box, side = first.box, size << first.factor.bit_length() - 1
        for look in () if near else looks[1:]:
            (left, top), (right, bottom) = map(min, box[:2], look.box[:2]), map(max, box[2:], look.box[2:])
            joined = (left, top, right, bottom)
            if max(joined[2] - joined[0], joined[3] - joined[1]) > side * 19 // 20:
                break
            box = joined
        looks = [look for look in looks if not contains(box, look.box)]
        boxes.append(_asked(box, page) if near else _rounded(box, page, side))
    return boxes


def _rounded(box: Box, page: tuple[int, int], side: int) -> Box:
    """Return a box of whole tenths around a box that a window of `side` pixels holds; where none fits, one around its
    middle."""
    spans = []
    for low, high, length in ((box[0], box[2], page[0]), (box[1], box[3], page[1])):
        start, end = low * 10 // length, -(-high * 10 // length)
        while (end - start) * length <= 5 * side and end - start < 10:  # a smaller window would hold it
            start, end = (start, end + 1) if end < 10 else (start - 1, end)
        if (end - start) * length > 10 * side:
            return _asked(_centred(box, page, side * 9 // 10), page)
        spans.append((100 * start, 100 * end))
    return spans[0][0], spans[1][0], spans[0][1], spans[1][1]


def _centred(box: Box, page: tuple[int, int], side: int) -> Box:
    """Return a square around the middle of a box, moved or cut so that it is in the page."""
    spans = []
    for low, high, length in ((box[0], box[2], page[0]), (box[1], box[3], page[1])):
        start = max(0, min((low + high - side) // 2, length - side))
        spans.append((start, min(start + side, length)))
    return spans[0][0], spans[1][0], spans[0][1], spans[1][1]


def _asked(box: Box, page: tuple[int, int]) -> Box:
    """Return a box of pixels in thousandths, rounded outwards."""
    left, top, right, bottom = box
    width, height = page
    return left * 1000 // width, top * 1000 // height, -(-right * 1000 // width), -(-bottom * 1000 // height)
