"""A query for papers and the papers that answer it, whatever data set it comes from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PaperTask"]


@dataclass(frozen=True, slots=True)
class PaperTask:
    """One query."""

    task_id: str
    """Its name, unique within its environment."""
    query: str
    """What is looked for, in words."""
    titles: tuple[str, ...]
    """Titles of the papers that answer it, at least one."""
    ids: tuple[str, ...] = ()
    """Their ids at the backend, where the data set gives them; in the order of the titles, or none at all."""
    date: str = ""
    """Day of the query, in the form of `Paper.date`: nothing published after it is shown. "" for no limit."""
    query_type: str = ""
    """What the data set calls its kind; "" where it does not say."""
    query_id: str = ""
    """The data set's own id."""
