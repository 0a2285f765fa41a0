"""The Porter stemmer as in Lucene: the algorithm of 1980 with its author's later changes.

They are in step 2 ("bli" to "ble" instead of "abli" to "able", and "logi" to "log") and leave words of one or two
letters unchanged (https://tartarus.org/martin/PorterStemmer/). Case is kept. As in Lucene, all characters except a, e,
i, o, u and y count as consonants.
"""

from __future__ import annotations

__all__ = ["stem"]

# Suffix -> replacement by step; only the first suffix that matches is tried.
_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip
# Rules, their suffixes, and the least m of what is before one, by step
_STEPS = [(rules, tuple(rules), m) for rules, m in ((_STEP_2, 1), (_STEP_3, 1), (dict.fromkeys(_STEP_4, ""), 2))]


def stem(word: str) -> str:
    """Return the stem of a lower-case word.

    >>> [stem(w) for w in ("relational", "caresses", "hopping", "hoping", "possibly", "archaeology", "is", "skies")]
    ['relat', 'caress', 'hop', 'hope', 'possibl', 'archaeolog', 'is', 'ski']
    """
    if len(word) <= 2 and (word.isascii() or len(word.encode("utf-16-le", "surrogatepass")) <= 4):
        return word
    if word[-1] in "sdgy":
        word = _step_1(word)
    for rules, suffixes, least in _STEPS:
        if word.endswith(suffixes):
            word = _replace(word, rules, least)
    return _step_5(word) if word[-1] in "el" else word


def _shape(word: str) -> str:
    """Return "c" or "v" for each letter; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """Return how often a consonant follows a vowel: the paper's m."""
    return _shape(word).count("vc")


def _short_end(word: str) -> bool:
    """Return whether a word ends in consonant, vowel and a consonant other than w, x and y: the paper's *o."""
    return _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _double_end(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _step_1(word: str) -> str:
    if word.endswith("s"):
        if word.endswith(("sses", "ies")):
            word = word[:-2]
        elif not word.endswith("ss"):
            word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    elif word.endswith(("ed", "ing")):
        start = word[:-2] if word.endswith("ed") else word[:-3]
        if "v" in _shape(start):
            word = _repair(start)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    return word


def _repair(word: str) -> str:
    """Do the second half of step 1b: undo what a removed "ed" or "ing" had changed."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _double_end(word):
        return word if word[-1] in "lsz" else word[:-1]
    if _measure(word) == 1 and _short_end(word):
        return word + "e"
    return word


def _replace(word: str, rules: dict[str, str], least: int) -> str:
    """Replace the first suffix that matches, if the paper's m of what is before it is at least so much."""
    for suffix, replacement in rules.items():
        if word.endswith(suffix):
            start = word[: -len(suffix)]
            if _measure(start) < least or (suffix == "ion" and not start.endswith(("s", "t"))):
                return word
            return start + replacement
    return word


def _step_5(word: str) -> str:
    if word.endswith("e"):
        start = word[:-1]
        measure = _measure(start)
        if measure > 1 or (measure == 1 and not _short_end(start)):
            word = start
    if word.endswith("ll") and _measure(word) > 1:
        word = word[:-1]
    return word
