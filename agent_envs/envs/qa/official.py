"""The data sets' official metrics by their official names, for predictions in the official file formats.

    HotpotQA  {"answer": {id: text}, "sp": {id: [[title, sentence number], ...]}}
    2Wiki     the same, and "evidence": {id: [[subject, relation, object], ...]}
    MuSiQue   a line per question: {"id", "predicted_answer", "predicted_support_idxs", "predicted_answerable"}

Definitions: hotpot_evaluate_v1.py (https://github.com/hotpotqa/hotpot), 2wikimultihop_evaluate_v1.1.py
(https://github.com/Alab-NII/2wikimultihop), evaluate_v1.0.py (https://github.com/StonyBrookNLP/musique) for questions
that have an answer. All are shares from 0 to 1, not rounded; 2Wiki's script prints them in percent.
"""

from __future__ import annotations

import math
import operator
import string
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agent_envs.datasets.fields import as_list, as_object, as_texts, read_object, text_field
from agent_envs.datasets.qa.rows import decoded, read_row
from agent_envs.errors import DataError
from agent_envs.rewards.short_answers import exact_match, overlap, squad_f1
from agent_envs.tasks import read_rows

__all__ = ["Gold", "Score", "Stated", "official_scores", "read_gold", "read_predictions"]

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

Fact = tuple[str, int]
"""An article's title and the number of a sentence; in MuSiQue "" and the number of a paragraph."""


class Score(NamedTuple):
    """The four official measures of one part of a prediction."""

    em: float
    f1: float
    prec: float
    recall: float


@dataclass(frozen=True, slots=True)
class Stated:
    """What is stated for a question; None for what is not, which scores 0."""

    answer: str | None = None
    facts: tuple[Fact, ...] | None = None
    evidence: tuple[tuple[str, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class Gold:
    """What is right."""

    question_id: str
    question: str
    answers: tuple[str, ...]
    facts: tuple[Fact, ...] | None
    """The supporting facts; None in prepared rows, which have titles alone."""
    evidence: tuple[tuple[frozenset[str], str, frozenset[str]], ...] | None
    """The triples, with all names of a subject and of an object; None if the row has none."""


def official_scores(dataset: str, stated: Stated, gold: Gold) -> dict[str, float]:
    """Return the metrics of one question; those of a file are the means over its questions.

    HotpotQA and 2Wiki: `em`, `f1`, `prec` and `recall` of the answer, and with `sp_` of the supporting facts, `evi_` of
    2Wiki's evidence, `joint_` of all of them. MuSiQue: `answer_em`, `answer_f1`, `support_f1`. What the row does not
    have is left out.

    >>> gold = Gold("q", "Who?", ("Ann Lee",), (("Ann Lee", 0), ("Bath", 1)), None)
    >>> scores = official_scores("hotpotqa", Stated("Lee", (("Bath", 1),)), gold)
    >>> scores["em"], scores["recall"], scores["sp_prec"], scores["sp_recall"], scores["joint_recall"]
    (0.0, 0.5, 1.0, 0.5, 0.25)
    """
    if dataset == "musique":
        answer = "" if stated.answer is None else stated.answer
        scores = {"answer_em": exact_match(answer, gold.answers), "answer_f1": squad_f1(answer, gold.answers)}
        if stated.answer is None:
            scores = dict.fromkeys(scores, 0.0)
        if gold.facts is not None:
            scores["support_f1"] = _support_f1(stated.facts, gold.facts)
        return scores
    parts: dict[str, Score | None] = {"": None if stated.answer is None else _answer(stated.answer, gold.answers)}
    if gold.facts is not None:
        fold = dataset == "2wiki"
        parts["sp_"] = None if stated.facts is None else _facts(stated.facts, gold.facts, fold=fold)
    if dataset == "2wiki" and gold.evidence is not None:
        parts["evi_"] = None if stated.evidence is None else _evidence(stated.evidence, gold.evidence)
    if len(parts) == (3 if dataset == "2wiki" else 2):
        known = [score for score in parts.values() if score is not None]
        complete, parts["joint_"] = len(known) == len(parts), None
        if complete:
            em, prec, recall = (math.prod(getattr(part, name) for part in known) for name in ("em", "prec", "recall"))
            parts["joint_"] = Score(em, _harmonic(prec, recall), prec, recall)
    none = Score(0.0, 0.0, 0.0, 0.0)
    return {
        prefix + name: value for prefix, score in parts.items() for name, value in (score or none)._asdict().items()
    }


def _answer(answer: str, golds: Iterable[str]) -> Score:
    """Return each measure's best over the answer and its aliases."""
    scores = [(exact_match(answer, gold), *overlap(answer, gold)) for gold in golds]
    return Score(*map(max, zip(*scores, strict=True)))


def _facts(stated: Iterable[Fact], gold: Iterable[Fact], *, fold: bool) -> Score:
    """Compare two sets of facts; `fold` lowers titles after repeated facts are dropped, as 2Wiki's script does."""
    found, wanted = (list(dict.fromkeys(facts)) for facts in (stated, gold))
    if fold:
        found, wanted = ([(title.lower(), number) for title, number in facts] for facts in (found, wanted))
    right, missed = sum(fact in wanted for fact in found), sum(fact not in found for fact in wanted)
    prec = right / len(found) if found else 0.0
    recall = right / (right + missed) if right + missed else 0.0
    return Score(float(right == len(found) and not missed), _harmonic(prec, recall), prec, recall)


def _support_f1(stated: Iterable[Fact] | None, gold: Collection[Fact]) -> float:
    if stated is None:
        return 0.0
    return _facts(stated, gold, fold=False).f1 if gold or stated else 1.0


def _evidence(stated: Iterable[tuple[str, ...]], gold: Collection[tuple[frozenset[str], str, frozenset[str]]]) -> Score:
    """Compare triples. A triple under two of a subject's names counts twice, so that recall can exceed 1, as there."""
    found = {tuple(map(_plain, triple)) for triple in stated}
    wanted = [(set(map(_plain, s)), _plain(relation), set(map(_plain, o))) for s, relation, o in gold]
    right = sum(
        len(triple) == 3 and any(triple[0] in s and triple[1] == r and triple[2] in o for s, r, o in wanted)
        for triple in found
    )
    prec, recall = right / len(found) if found else 0.0, right / len(wanted) if wanted else 0.0
    return Score(float(right == len(found) == len(wanted)), _harmonic(prec, recall), prec, recall)


def _harmonic(prec: float, recall: float) -> float:
    return 2 * prec * recall / (prec + recall) if prec + recall > 0 else 0.0


def _plain(text: str) -> str:
    """Normalise a name of a triple: as an answer, but with its articles."""
    return " ".join(text.lower().translate(_NO_PUNCTUATION).split())


# -- files -------------------------------------------------------------------------------------------------------------


def read_gold(dataset: str, row: Any, where: str, names: dict[str, list[str]]) -> Gold:
    """Return what is right by a row in any layout; `names` are the aliases and demonyms of 2Wiki's entities by id.

    Raises:
        DataError: Something is missing or of another type.
    """
    task = read_row(row, where, names).task
    facts = None
    if dataset == "musique" and "paragraphs" in row:
        facts = tuple(("", _number(item.get("idx"), where)) for item in row["paragraphs"] if item.get("is_supporting"))
    elif dataset != "musique" and "supporting_facts" in row:
        given = decoded(row["supporting_facts"], "supporting_facts", where)
        if isinstance(given, dict):
            columns = [as_list(given.get(key), "supporting_facts", where) for key in ("title", "sent_id")]
            given = list(zip(*columns, strict=False))
        facts = _read_facts(given, "supporting_facts", where)
    evidence = None
    if dataset == "2wiki" and row.get("evidences") is not None:
        triples = _read_triples(decoded(row["evidences"], "evidences", where), "evidences", where)
        given = () if row.get("evidences_id") is None else row["evidences_id"]
        ids = _read_triples(decoded(given, "evidences_id", where), "evidences_id", where)
        ids = ids or (("", "", ""),) * len(triples)
        if len(ids) != len(triples) or any(len(triple) != 3 for triple in (*triples, *ids)):
            raise DataError(f"{where}: expected [subject, relation, object] under 'evidences', and their ids, if any")
        evidence = tuple(
            (frozenset([s, *names.get(s_id, ())]), relation, frozenset([o, *names.get(o_id, ())]))
            for (s, relation, o), (s_id, _, o_id) in zip(triples, ids, strict=True)
        )
    return Gold(task.question_id, task.question, task.answers, facts, evidence)


def read_predictions(dataset: str, path: Path) -> dict[str, Stated]:
    """Return the predictions of a file in the data set's official format, by question.

    Raises:
        DataError: The file cannot be read or has another form.
    """
    if dataset == "musique":
        stated = {}
        for row, where in read_rows(path):
            row = as_object(row, "an object with 'id', 'predicted_answer' and 'predicted_support_idxs'", where)
            numbers = as_list(row.get("predicted_support_idxs"), "predicted_support_idxs", where)
            facts = tuple(("", _number(number, where)) for number in numbers)
            stated[text_field(row, "id", where)] = Stated(_text(row.get("predicted_answer"), where), facts)
        return stated
    where, form = str(path), "an object with 'answer' and 'sp', each by question id"
    data = read_object(path, form, 1 << 30)
    answers, facts_by_id, triples = (as_object(data.get(key, {}), form, where) for key in ("answer", "sp", "evidence"))
    return {
        name: Stated(
            _text(answers[name], where) if name in answers else None,
            _read_facts(facts_by_id[name], name, where) if name in facts_by_id else None,
            _read_triples(triples[name], name, where) if name in triples else None,
        )
        for name in {**answers, **facts_by_id, **triples}
    }


def _read_facts(facts: Any, key: str, where: str) -> tuple[Fact, ...]:
    pairs = [as_list(fact, key, where) for fact in as_list(facts, key, where)]
    if not all(len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise DataError(f"{where}: expected [[title, sentence number], ...] under {key!r}, got {facts!r:.80}")
    return tuple((title, _number(number, where)) for title, number in pairs)


def _read_triples(triples: Any, key: str, where: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(as_texts(triple, key, where)) for triple in as_list(triples, key, where))


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: expected the text of an answer, got {value!r:.60}")
    return value


def _number(value: Any, where: str) -> int:
    try:
        return operator.index(value)
    except TypeError as e:
        raise DataError(f"{where}: expected the number of a sentence or a paragraph, got {value!r:.60}") from e
