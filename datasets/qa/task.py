"""The question-answering task, the same for generated and real questions."""

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
    """Titles of the articles that the answer requires, each once, in the order of use if it is known."""
    question_type: str
    """"bridge", "comparison", "yesno" or what the data set calls it; "" if it does not say."""
    hops: int
    """How many articles the answer requires; 0 if the data set does not say."""
    question_id: str = ""
    """The data set's own id."""
    level: str = ""
    """The data set's own difficulty: "easy", "medium", "hard"."""
