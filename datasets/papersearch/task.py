"""A query for papers, whatever data set it comes from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PaperTask"]


@dataclass(frozen=True, slots=True)
class PaperTask:
    """One query."""

    task_id: str
    """Its name, unique within its environment."""
    query: str
    """What is looked for."""
    titles: tuple[str, ...]
    """The titles of the papers that answer it, each once."""
    ids: tuple[str, ...] = ()
    """Their ids where the data set has some, arXiv ids without a version: in the order of the titles if there are as
    many, else in the data set's order."""
    date: str = ""
    """When it was asked: nothing published later answers it. As in `Paper.date`; "" where it is not known."""
    query_id: str = ""
    """The data set's own id."""
    query_type: str = ""
    """What the data set calls its kind; "" where it does not say."""
