"""Scoring of short answers: exact match, F1 and substring match against a gold answer and its aliases.

    gold  ("Walt Disney World", "Disney World")
    text  "in the Disney World"       exact_match 0.0, f1 0.8
    text  "Disney World."             exact_match 1.0, f1 1.0

The normaliser and `f1` follow HotpotQA's hotpot_evaluate_v1.py (https://github.com/hotpotqa/hotpot), `squad_f1` follows
SQuAD 2.0, as MuSiQue's metrics/answer.py does (https://github.com/StonyBrookNLP/musique); with several golds the best
score counts.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Iterable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED_CLASS = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Return the text in lower case without ASCII punctuation and the words a, an and the, with single spaces.

    >>> normalize_answer("The  Beatles' \\"Help!\\""), normalize_answer("Theatre, a-the")
    ('beatles help', 'theatre athe')
    """
    text = text.lower().translate(_DROP_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, golds: str | Iterable[str]) -> float:
    """Return 1.0 if the prediction equals the gold answer or one of its aliases after normalisation, else 0.0.

    >>> exact_match("the Eiffel tower", "Eiffel Tower"), exact_match("Paris, France", ["Paris", "City of Light"])
    (1.0, 0.0)
    """
    normal = normalize_answer(prediction)
    return float(any(normal == normalize_answer(gold) for gold in _as_tuple(golds)))


def f1(prediction: str, golds: str | Iterable[str]) -> float:
    """Return the best token F1 of the prediction with a gold answer after normalisation, from 0 to 1.

    As in the official script, "yes", "no" and "noanswer" score only on an exact match, and texts without a common word
    score 0, even two empty ones.

    >>> f1("in Paris", "Paris"), f1("yes it is", "yes"), f1("no", "no")
    (0.6666666666666666, 0.0, 1.0)
    """
    return max((_hotpot_f1(prediction, gold) for gold in _as_tuple(golds)), default=0.0)


def squad_f1(prediction: str, golds: str | Iterable[str]) -> float:
    """Return the best token F1 of SQuAD 2.0, from 0 to 1: "yes" and "no" are words, and two empty texts score 1.

    >>> squad_f1("yes it is", "yes"), squad_f1("The", "a"), squad_f1("", "Paris")
    (0.5, 1.0, 0.0)
    """
    return max((_squad_f1(prediction, gold) for gold in _as_tuple(golds)), default=0.0)


def substring_match(prediction: str, golds: str | Iterable[str]) -> float:
    """Return 1.0 if a normalised gold answer occurs in the normalised prediction, else 0.0; an empty gold never does.

    >>> substring_match("It is Paris, France.", "paris"), substring_match("anything", "the")
    (1.0, 0.0)
    """
    normal = normalize_answer(prediction)
    return float(any(gold in normal for gold in map(normalize_answer, _as_tuple(golds)) if gold))


def _as_tuple(golds: str | Iterable[str]) -> tuple[str, ...]:
    return (golds,) if isinstance(golds, str) else tuple(golds)


def _hotpot_f1(prediction: str, gold: str) -> float:
    answer, wanted = normalize_answer(prediction), normalize_answer(gold)
    if answer != wanted and (answer in _CLOSED_CLASS or wanted in _CLOSED_CLASS):
        return 0.0
    return _word_f1(answer.split(), wanted.split())


def _squad_f1(prediction: str, gold: str) -> float:
    words, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    return _word_f1(words, wanted) if words and wanted else float(words == wanted)


def _word_f1(words: list[str], wanted: list[str]) -> float:
    """Return the F1 of words, which count as often as both have them."""
    common = sum((collections.Counter(words) & collections.Counter(wanted)).values())
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)
