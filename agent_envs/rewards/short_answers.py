"""Scoring of short answers: exact match, F1 and substring match over aliases, and the released format reward.

    gold  ("Walt Disney World", "Disney World")
    text  "in the Disney World"       exact_match 0.0, f1 0.8
    text  "Disney World."             exact_match 1.0, f1 1.0

The normaliser and F1 follow HotpotQA's hotpot_evaluate_v1.py (https://github.com/hotpotqa/hotpot), which follows SQuAD;
an answer with several golds scores as well as its best one. `qa_format` follows Agent-R1's qa_em_and_format.
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Iterable, Sequence

__all__ = ["exact_match", "f1", "normalize_answer", "qa_format", "substring_match"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED_CLASS = frozenset({"yes", "no", "noanswer"})
_TURN = re.compile(r"<think>.*?</think>\s*<tool_call>.*?</tool_call>\s*", re.DOTALL)
_LAST_TURN = re.compile(r"<think>.*?</think>.*<answer>(?P<answer>.*?)</answer>\s*", re.DOTALL)
_TAGS = ("think", "tool_call", "answer")


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an and the, single spaces.

    >>> normalize_answer("The  Beatles' \\"Help!\\""), normalize_answer("Theatre, a-the")
    ('beatles help', 'theatre athe')
    """
    text = text.lower().translate(_DROP_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, golds: str | Iterable[str]) -> float:
    """1.0 if the prediction equals a gold after normalisation, else 0.0.

    Args:
        prediction: The answer given.
        golds: The gold answer, or the gold and its aliases.

    >>> exact_match("the Eiffel tower", "Eiffel Tower"), exact_match("Paris, France", ["Paris", "City of Light"])
    (1.0, 0.0)
    """
    normal = normalize_answer(prediction)
    return float(any(normal == normalize_answer(gold) for gold in _several(golds)))


def f1(prediction: str, golds: str | Iterable[str]) -> float:
    """The best token F1 of the prediction with a gold after normalisation, 0 to 1.

    As in the official script, yes, no and noanswer score only by being equal, and nothing in common is 0 (two empty
    texts too).

    >>> f1("in Paris", "Paris"), f1("yes it is", "yes"), f1("no", "no")
    (0.6666666666666666, 0.0, 1.0)
    """
    return max((_one_f1(prediction, gold) for gold in _several(golds)), default=0.0)


def substring_match(prediction: str, golds: str | Iterable[str]) -> float:
    """1.0 if a normalised gold occurs in the normalised prediction, else 0.0; a gold with nothing left never does.

    >>> substring_match("It is Paris, France.", "paris"), substring_match("anything", "the")
    (1.0, 0.0)
    """
    normal = normalize_answer(prediction)
    return float(any(gold in normal for gold in map(normalize_answer, _several(golds)) if gold))


def qa_format(turns: Sequence[str], golds: str | Iterable[str], text: str | None = None) -> float:
    """The released reward of a whole episode, -1 to 1: `-1 + format + (answer if format >= 0.5)`.

    format: 0.5 per well-formed `<think>...</think><tool_call>...</tool_call>` turn, 0.5 more if the last turn is
    `<think>...</think>...<answer>...</answer>`, at most 1. answer: 1 if a gold is a substring of the answer, else 0.2
    if one is a substring of the whole text, else 0. What the release logs as exact match is this substring match.

    Args:
        turns: The policy's texts in order.
        golds: The gold answer, or the gold and its aliases.
        text: Everything written in the episode, tool results included; None for the turns alone.

    >>> search = '<think>Where?</think><tool_call>{"name": "search"}</tool_call>'
    >>> qa_format([search, "<think>So.</think><answer>in Paris</answer>"], "Paris")
    1.0
    >>> qa_format(["<think>So.</think><answer>Rome</answer>"], "Paris"), qa_format(["Paris"], "Paris")
    (-0.5, -1.0)
    """
    golds = tuple(_several(golds))
    last = turns[-1] if turns else ""
    ending = _LAST_TURN.fullmatch(last.strip()) if _single_tags(last, "think", "answer") else None
    calls = sum(_single_tags(turn, "think", "tool_call") and bool(_TURN.fullmatch(turn.strip())) for turn in turns)
    form = min(1.0, 0.5 * calls + 0.5 * (ending is not None))
    if form < 0.5:
        return -1.0 + form
    given = ending["answer"] if ending else ""
    if given and substring_match(given, golds):
        return form
    return -1.0 + form + 0.2 * substring_match("\n".join(turns) if text is None else text, golds)


def _single_tags(turn: str, *names: str) -> bool:
    """Whether the turn opens and closes each of these tags once, and none of the others."""
    return all(turn.count(f"<{tag}>") == turn.count(f"</{tag}>") == int(tag in names) for tag in _TAGS)


def _several(golds: str | Iterable[str]) -> Iterable[str]:
    return (golds,) if isinstance(golds, str) else golds


def _one_f1(prediction: str, gold: str) -> float:
    said, wanted = normalize_answer(prediction), normalize_answer(gold)
    if said != wanted and (said in _CLOSED_CLASS or wanted in _CLOSED_CLASS):
        return 0.0
    said_words, wanted_words = said.split(), wanted.split()
    common = sum((collections.Counter(said_words) & collections.Counter(wanted_words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(said_words), common / len(wanted_words)
    return 2 * precision * recall / (precision + recall)
