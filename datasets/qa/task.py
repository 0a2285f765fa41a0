"""A question to be answered by searching, whatever data set it comes from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QATask"]


@dataclass(frozen=True, slots=True)
class QATask:
    """One question."""

    task_id: str
    """Its name, unique within its environment."""
    question: str
    """The question."""
    answers: tuple[str, ...]
    """The gold answer, then its aliases."""
    supporting: tuple[str, ...]
    """Titles of the articles that the answer rests on, each once; in the order of use where it is known."""
    question_type: str
    """"bridge", "comparison", "yesno" or what the data set calls it; "" where it does not say."""
    hops: int
    """How many articles the answer rests on; 0 where the data set does not say."""
    question_id: str = ""
    """The data set's own id."""
    level: str = ""
    """The data set's own difficulty: "easy", "medium", "hard"."""
