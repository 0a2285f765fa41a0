"""A page in words: what a reader with perfect eyes sees in a window of it."""

from __future__ import annotations

from agent_envs.datasets.picturesearch.generated.sheet import Box, Sheet
from agent_envs.envs.picturesearch.view import View


def thousandths(sheet: tuple[int, int], box: Box) -> str:
    """Return a box in thousandths of a page's width and height, as text.

    >>> thousandths((1024, 512), (0, 256, 512, 512))
    '0 500 500 1000'
    """
    width, height = sheet
    left, top, right, bottom = box
    return " ".join(
        str((2000 * value + whole) // (2 * whole))
        for value, whole in ((left, width), (top, height), (right, width), (bottom, height))
    )


def described(sheet: Sheet, view: View) -> str:
    """Return what a view of a page shows, a line for each thing, with its box in thousandths of the page.

    What is written is told where it is shown whole and large enough to be legible, and a line as far as it is shown.
    """
    size = (sheet.width, sheet.height)
    left, top, right, bottom = view.box
    lines = []
    for thing in sheet.things:
        x, y, to_x, to_y = thing.box
        if to_x <= left or x >= right or to_y <= top or y >= bottom:
            continue
        legible = view.factor <= thing.factor and (thing.line or contains(view.box, thing.box))
        if words := thing.near if legible else thing.far:
            shown = (max(x, left), max(y, top), min(to_x, right), min(to_y, bottom)) if thing.line else thing.box
            cut = ", which goes on outside" if shown != thing.box else ""
            lines.append(f"{thousandths(size, shown)}: {words}{cut}")
    return "\n".join(lines) or "(nothing)"


def contains(outer: Box, inner: Box) -> bool:
    """Return whether a box is in another."""
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]
