"""Whether answers over tables are right: normalised values, compared as sets.

Follows the evaluator of WikiTableQuestions (https://github.com/ppasupat/WikiTableQuestions, evaluator.py) and how its
gold answers are made canonical (SEMPRE's TableValuePreprocessor): case, accents, quotes, footnote marks and details in
brackets at the end do not matter; a gold number with a unit is also right as the bare number, a date in any spelling.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from agent_envs.rewards.tagged import bare, tagged_answer

_LONGEST = 1000  # characters of a value that are compared
_SEPARATOR = re.compile(r"[;\n|]")
_BULLET = re.compile(r"[-•*]\s+")
_NOTES = re.compile(r"(?:(?<!^)\[[^\[\]]{0,200}\]|\[[0-9]{1,9}\]|[•♦†‡*#+]|(?<!^)\s\([^()]{0,200}\))$")
_NUMBER = re.compile(
    r"[-+]?(?=\.?[0-9])[0-9]{0,40}(?:\.[0-9]{0,30})?(?:e[-+]?[0-9]{1,2})?|-?[0-9]{1,20}/0{0,9}[1-9][0-9]{0,20}"
)
_WITH_UNIT = re.compile(r"([-+]?[0-9][0-9,]{0,40}(?:\.[0-9]{1,30})?) \S+")
_ISO = re.compile(r"(?!x+-xx(?:-xx)?$)([0-9]{4}|x{2,4})-(0?[1-9]|1[0-2]|xx)(?:-([0-9]{1,2}|xx))?")
_DAY = r"([0-9]{1,2})(?:st|nd|rd|th)?"
_DATE = re.compile(rf"(?:{_DAY} )?([a-z]{{3,9}})\.?(?: {_DAY})?(?:,? ?([0-9]{{4}}))?")
_MONTHS = "|january|february|march|april|may|june|july|august|september|october|november|december"


def given_answers(text: str) -> list[str]:
    r"""Return the answers that a text gives (`tagged_answer`), split at `;`.

    >>> given_answers("They are <answer>Osken; **Velmar**</answer>"), given_answers("I looked.\nOsken")
    (['Osken', 'Velmar'], ['Osken'])
    """
    return _values(tagged_answer(text))


def same_answers(given: Sequence[str], gold: Sequence[str], unit: str = "") -> bool:
    """Return whether two lists hold the same values, in any order; the gold values' `unit` may be given as well.

    >>> same_answers(["1,200", "OSKEN."], ["Osken", "1200.0"]), same_answers(["Osken"], ["Osken", "Velmar"])
    (True, False)
    >>> same_answers(["5"], ["5 days"]), same_answers(["5 hours"], ["5 days"]), same_answers(["5 kg"], ["5"], "kg")
    (True, False, True)
    """
    given = list(given)
    for value in gold:  # one with a separator was split where it was given
        parts = [_normal(part) for part in _values(value)]
        for start in range(len(given) - len(parts) + 1) if len(parts) > 1 else ():
            if [_normal(part) for part in given[start : start + len(parts)]] == parts:
                given[start : start + len(parts)] = [value]
                break
    wanted = [_forms(value, is_gold=True) for value in gold]
    answers = [_forms(value) | _forms(_normal(value).removesuffix(_normal(unit))) for value in given]
    matches = [[bool(answer & one) for one in wanted] for answer in answers]
    return bool(matches) and all(map(any, matches)) and all(map(any, zip(*matches, strict=True)))


def _values(text: str) -> list[str]:
    return [value for part in _SEPARATOR.split(text) if (value := bare(_BULLET.sub("", part.strip(), count=1)))]


def _normal(value: str) -> str:
    text = unicodedata.normalize("NFKD", value[:_LONGEST])
    text = "".join(c for c in text if not unicodedata.combining(c)).lower()
    text = re.sub("[‘’´`]", "'", re.sub("[“”]", '"', re.sub("[‐‑‒–—−]", "-", text)))
    before = None
    while before != text:
        before = text
        text = bare(_NOTES.sub("", text.strip()).strip().rstrip("."))
    return " ".join(text.split())


def _forms(value: str, is_gold: bool = False) -> set[Any]:
    """Return the text of a value, and the number or the date (year, month, day; 0 if unknown) that it is."""
    text = _normal(value)
    number = re.sub("[$€£,%]", "", text)
    if _NUMBER.fullmatch(number):
        return {text, round(Fraction(number), 6)}
    if iso := _ISO.fullmatch(text):
        year, month, day = iso.groups()
    elif (date := _DATE.fullmatch(text)) and not (date[1] and date[3]) and (place := _MONTHS.find(f"|{date[2]}")) >= 0:
        year, month, day = date[4], str(_MONTHS.count("|", 0, place) + 1), date[1] or date[3]
    else:
        measure = _WITH_UNIT.fullmatch(value.strip()) if is_gold else None
        return {text, *_forms(measure[1])} if measure else {text}
    parts = tuple(int(part) if part and part.isdigit() else 0 for part in (year, month, day))
    return {text, parts if any(parts[1:]) else Fraction(parts[0])}
