"""Papers: dates, titles, and the selectors that need no service."""

import math

import pytest

from agent_envs.errors import BackendError, DataError
from agent_envs.retrieval.papers import CachedSelector, LexicalSelector, Paper, normal_date


@pytest.mark.parametrize("given", ["soon", "2023-13", "20231299", "23", 2.5, True, ["2023"], "99999"])
def test_what_is_no_date_is_refused(given):
    with pytest.raises(DataError, match="expected a date"):
        normal_date(given)


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
