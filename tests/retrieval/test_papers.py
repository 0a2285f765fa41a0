"""Papers: dates, titles, and the selectors that need no service."""

import math

import pytest

from agent_envs.errors import BackendError, DataError
from agent_envs.retrieval.papers import (
    CachedSelector,
    GoldSelector,
    LexicalSelector,
    Paper,
    normal_date,
    title_key,
    within_date,
)


@pytest.mark.parametrize("given", ["soon", "2023-13", "20231299", "23", 2.5, True, ["2023"], "99999"])
def test_what_is_no_date_is_refused(given):
    with pytest.raises(DataError, match="expected a date"):
        normal_date(given)


@pytest.mark.parametrize(
    ("date", "before", "shown"),
    [
        ("2023-10-24", "2023-10-24", True),  # the day itself
        ("2023-10-25", "2023-10-24", False),
        ("2023-10", "2023-10-24", True),  # may be earlier
        ("2023-11", "2023-10-24", False),
        ("2023-12-31", "2023", True),
        ("2024-01-01", "2023", False),
        ("", "1990", True),  # unknown
        ("2023", "", True),
        ("2023", None, True),
    ],
)
def test_nothing_after_the_date(date, before, shown):
    assert within_date(date, before) is shown


def test_titles_compare_by_letters():
    assert title_key("LaTeX, 2nd\n  Ed.: Über-Fit") == title_key("latex nd ED über fit")
    assert title_key("2048") != title_key("1984")  # without letters: as they stand


def test_lexical_scores_say_how_much_of_the_query_is_named():
    papers = [Paper("a", "Graph parsing"), Paper("b", "Graphs"), Paper("c", ""), Paper("d", "Seas", "of graph parsers")]
    scores = LexicalSelector().scores("parsing graphs", papers)
    assert 1 > scores[0] > scores[1] > scores[2] == 0.0 and scores[3] > 0
    assert LexicalSelector().scores("", papers) == LexicalSelector().scores("the of", papers) == [0.0] * 4


class Judge:
    """Counts what it is asked."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def scores(self, query, papers):
        self.asked.append([p.id for p in papers])
        answer = self.answers.pop(0) if self.answers else [0.5] * len(papers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_score_is_asked_for_once():
    judge = Judge()
    cached = CachedSelector(judge)
    a, b = Paper("a", "A"), Paper("b", "B")
    assert cached.scores("q", [a, b, a]) == [0.5] * 3
    assert cached.scores("q", [b]) == [0.5]
    cached.scores("other", [b])
    assert cached.scores("q", []) == []
    assert judge.asked == [["a", "b"], ["b"]]


def test_failed_answers_are_not_remembered():
    judge = Judge(BackendError("down"), [0.1], [math.nan, 0.2], [0.3, 0.4])
    cached = CachedSelector(judge)
    papers = [Paper("a", "A"), Paper("b", "B")]
    for _ in range(3):
        with pytest.raises(BackendError):
            cached.scores("q", papers)
    assert cached.scores("q", papers) == [0.3, 0.4]


def test_what_is_remembered_is_bounded():
    judge = Judge()
    cached = CachedSelector(judge, size=2)
    papers = [Paper(str(n), "") for n in range(3)]
    cached.scores("q", papers)
    cached.scores("q", papers[1:])
    cached.scores("q", papers[:1])
    assert judge.asked == [["0", "1", "2"], ["0"]]


def test_gold_by_title_or_id():
    selector = GoldSelector(["A Title"], ids=["7"])
    assert selector.scores("q", [Paper("7", "?"), Paper("8", "a   title"), Paper("9", "A")]) == [1.0, 1.0, 0.0]
