"""What is searched for and judged in paper search: papers, where they come from, how well they fit a query."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

from agent_envs.errors import DataError

__all__ = ["Paper", "PaperBackend", "Selector", "date_number", "normal_date", "title_key", "within_date"]

_DATE = re.compile(r"\s*(\d{4})(?:[-/.]?(\d{2})(?:[-/.]?(\d{2}))?)?(?:[T ].*)?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper as a backend gives it."""

    id: str
    """Its name at the backend: what `expand` and `get` take. Never empty."""
    title: str
    """Its title, in one line."""
    abstract: str = ""
    """Its abstract, "" where the backend has none."""
    date: str = ""
    """Day of publication, "2024-05-31", "2024-05" or "2024", as far as it is known; "" where it is not."""


@runtime_checkable
class PaperBackend(Protocol):
    """Where papers come from. Safe to use from several threads; one is shared by all environments of a process.

    Every method raises BackendError where the service or the index behind it is down, too slow, refuses, or answers in
    another shape than expected, and never returns part of an answer instead. No answer is an empty list.
    """

    @property
    def blocking(self) -> bool:
        """Whether calls wait for a network: they then run in threads, side by side."""
        ...

    def search(self, query: str, k: int = 10, before: str | None = None) -> list[Paper]:
        """The best k papers for a query, best first.

        Args:
            query: Any text. One with nothing to search for finds nothing.
            k: How many, at least 1.
            before: A date as in `Paper.date`: leave out what was published after it. A paper without a date stays.
        """
        ...

    def expand(self, paper_id: str) -> list[Paper]:
        """The papers that a paper refers to, then those that cite it; each once, and not the paper itself.

        Raises:
            UnknownPaperError: There is no such paper. (A paper without citations and references gives [].)
        """
        ...

    def get(self, paper_id: str) -> Paper:
        """The paper with this id.

        Raises:
            UnknownPaperError: There is no such paper.
        """
        ...


@runtime_checkable
class Selector(Protocol):
    """How well papers fit a query. Safe to use from several threads."""

    def scores(self, query: str, papers: Sequence[Paper]) -> list[float]:
        """A number from 0 to 1 for each paper, in their order; the same for the same query and paper.

        Raises:
            BackendError: What judges is down or answers in another shape. Nothing of that answer is remembered.
        """
        ...


@lru_cache(maxsize=1 << 14)
def title_key(title: str) -> str:
    """What two titles are compared by: their letters, in lower case.

    >>> title_key("BERT: Pre-training of Deep\\n  Transformers (v2)")
    'bertpretrainingofdeeptransformersv'

    One letter has several spellings, and they count as one:

    >>> title_key("Plecha\\u0301c\\u030c's e\\ufb03cient seas") == title_key("Plech\\u00e1\\u010d's efficient seas")
    True

    A title without letters is compared as it stands, but for spaces:

    >>> title_key(" 2 + 2 ")
    '2+2'
    """
    letters = "".join(filter(str.isalpha, unicodedata.normalize("NFKC", title))).lower()
    return letters or "".join(title.split())


def normal_date(text: object) -> str:
    """A date in the form of `Paper.date`.

    >>> normal_date("20231024"), normal_date("2023-10-24T17:59:00Z"), normal_date("2023-10"), normal_date(2023)
    ('2023-10-24', '2023-10-24', '2023-10', '2023')
    >>> normal_date(None), normal_date("")
    ('', '')

    Raises:
        DataError: It is no date.
    """
    if text is None or (isinstance(text, str) and not text.strip()):
        return ""
    match = _DATE.fullmatch(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    if match is None or not (match[2] is None or 1 <= int(match[2]) <= 12) or int(match[3] or 1) not in range(1, 32):
        raise DataError(f"expected a date such as '2023-10-24', '20231024', '2023-10' or '2023', got {text!r:.80}")
    return "-".join(part for part in match.groups() if part is not None)


def date_number(date: str, *, latest: bool = False) -> int:
    """A date of `Paper.date`'s form as a whole number that sorts: yyyymmdd; 0 where it is unknown.

    >>> date_number("2023-10-24"), date_number("2023"), date_number("2023", latest=True), date_number("")
    (20231024, 20230000, 20239999, 0)

    Args:
        date: The date.
        latest: Whether what is missing counts as its latest instead of its earliest.
    """
    if not date:
        return 0
    digits = date.replace("-", "")
    return int(digits.ljust(8, "9" if latest else "0"))


def within_date(date: str, before: str | None) -> bool:
    """Whether a paper of this date may be shown for a query of the date `before`: it is not published after it.

    What is known of both decides; a paper or a query without a date lets everything pass.

    >>> within_date("2023-10-24", "2023-10-24"), within_date("2023-10-25", "2023-10-24"), within_date("2023", "2023-01")
    (True, False, True)
    >>> within_date("2023-12-31", "2023"), within_date("", "2023"), within_date("2023", None)
    (True, True, True)
    """
    return not before or date_number(date) <= date_number(before, latest=True)
