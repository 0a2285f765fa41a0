"""The record of a question about a picture."""

from __future__ import annotations

from typing import NamedTuple

from agent_envs.datasets.picturesearch.generated.sheet import Look, Sheet, Stage


class PictureTask(NamedTuple):
    """A question about a page or a picture."""

    task_id: str
    """`picturesearch-generated/SPLIT/LEVEL[/FAMILIES]/INDEX`, or `picturesearch/SPLIT/INDEX`."""
    question: str
    answers: tuple[str, ...]
    """The values that the answer gives, in order; of a choice its letter."""
    sheet: Sheet | None
    """The generated page; None for a picture of a file."""
    stages: tuple[Stage, ...] = ()
    """What somebody looks at who sees the page for the first time; none if that is not known."""
    proof: tuple[Look, ...] = ()
    """The places where the answer is read, for somebody who knows them."""
    family: str = ""
    """Its kind; for a released row its category."""
    level: int = 0
    """1 to 5; 0 for a released row."""
    options: tuple[str, ...] = ()
    """The texts of the options A, B, ... of a choice; the question lists them."""
    picture: tuple[str, str] = ("", "")
    """Where a released picture is: a file's path and "", or the path of a table and the number of its row."""
