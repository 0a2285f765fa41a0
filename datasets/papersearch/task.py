"""The paper-search task, the same for generated and real queries."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PaperTask"]


@dataclass(frozen=True, slots=True)
class PaperTask:
    """One query."""

    task_id: str
    """Its name, unique within its environment."""
    query: str
    """The query."""
    titles: tuple[str, ...]
    """The titles of the papers that answer it, each once."""
    ids: tuple[str, ...] = ()
    """Their ids if the data set has them, arXiv ids without a version: in the order of the titles if there are as many,
    else in the data set's order."""
    date: str = ""
    """When it was asked, in the form of `Paper.date`; papers published later do not count. "" if it is not known."""
    query_id: str = ""
    """The data set's own id."""
    query_type: str = ""
    """What the data set calls its kind; "" if it does not say."""
