"""Turns text into terms like Lucene's English analyzer with the Porter stemmer, Anserini's default.

Its steps: StandardTokenizer (UAX #29), removal of the English possessive, lower case, 33 stop words, Porter's stemmer.
Two regular expressions replace the tokenizer: a short one for ASCII, and one with Unicode's word-break classes. Their
hexadecimal ranges (`word_break.json`, Unicode 12.1) were measured by giving Lucene 10 each character alone and between
letters, digits and other characters.

>>> analyze("The U.S. President's 1,000 e-mails weren't _archived_ by O'Neil")
['u.', 'presid', '1,000', 'e', 'mail', "weren't", '_archived_', "o'neil"]

The stemmer is that of Lucene: Porter's algorithm of 1980 with its author's later changes. They are in step 2 ("bli" to
"ble" instead of "abli" to "able", and "logi" to "log") and leave words of one or two letters unchanged
(https://tartarus.org/martin/PorterStemmer/). Case is kept. As in Lucene, all characters except a, e, i, o, u and y
count as consonants.
"""

from __future__ import annotations

import re
from functools import cache

from agent_envs.files import table

ANALYZER = "lucene-english-porter-1"
"""The name of this analyzer; an index built with another one cannot be opened."""

MAX_TOKEN_LENGTH = 255
"""Longer tokens are cut into pieces of this many characters."""

_STOP_WORDS = """
    a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to
    was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# A run of letters, digits and underscores, which may go on after a mark between two letters or two digits.
_ASCII = re.compile(r"""\w++(?:(?:[.:'](?<=[^\W\d_].)(?=[^\W\d_])|[.,;'](?<=\d.)(?=\d))\w++)*+""", re.ASCII)
# Text between blanks with a character outside ASCII.
_BEYOND_ASCII = re.compile(r"(?<![^ \n])[\x00-\x09\x0b-\x1f!-\x7f]*+[^\x00-\x7f][^ \n]*+")


def tokenize(text: str) -> list[str]:
    """Return the tokens of a text as written. Runs of underscores, which are not tokens, may be among them.

    >>> tokenize("3.14, e.g. l'été à 東京")
    ['3.14', 'e.g', "l'été", 'à', '東', '京']
    """
    if text.isascii():
        return _find(_ASCII, text)
    tokens, position = [], 0
    for match in _BEYOND_ASCII.finditer(text):
        tokens += _find(_ASCII, text[position : match.start()])
        tokens += _find(_unicode(), match.group())
        position = match.end()
    return tokens + _find(_ASCII, text[position:])


def term_of(token: str) -> str:
    """Return the term under which a token is indexed, or "" if it is not indexed.

    >>> [term_of(t) for t in ("Running", "John's", "The", "__")]
    ['run', 'john', '', '']
    """
    if len(token) > 1 and token[-1] in "sS" and token[-2] in "'\u2019\uff07":
        token = token[:-2]
    # One by one: there is no final sigma, and a dotted I becomes i.
    word = token.lower() if token.isascii() else "".join("i" if c == "\u0130" else c.lower() for c in token)
    if word in STOP_WORDS or not word.strip("_") or (not word.isascii() and _joint().fullmatch(word)):
        return ""
    return stem(word)


def analyze(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions."""
    return [term for term in map(term_of, tokenize(text)) if term]


def _find(pattern: re.Pattern[str], text: str) -> list[str]:
    tokens: list[str] = pattern.findall(text)
    if len(text) > MAX_TOKEN_LENGTH and tokens and max(map(len, tokens)) > MAX_TOKEN_LENGTH:
        return _cut(pattern, text)
    return tokens


def _cut(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the tokens of a text with overlong ones: like the tokenizer, look no further than its buffer."""
    tokens, position = [], 0
    while position < len(text):
        end = position + 4 * MAX_TOKEN_LENGTH  # looking further would take quadratic time
        match = pattern.search(text, position, end)
        if match is None:
            position = end
        elif match.end() - match.start() > MAX_TOKEN_LENGTH:
            match = pattern.match(text, match.start(), match.start() + MAX_TOKEN_LENGTH) or match
            tokens.append(match.group())
            position = match.end()
        elif match.start() > position and end - match.start() <= 2 * MAX_TOKEN_LENGTH and end < len(text):
            position = match.start()  # too close to the end to be certain
        else:
            tokens.append(match.group())
            position = match.end()
    return tokens


@cache
def _classes() -> dict[str, str]:
    """Return the content of a regular expression's brackets for each word-break class."""
    classes = {}
    for name, entry in table(__package__, "word_break.json").items():
        ends = [[f"\\U{int(end, 16):08x}" for end in r.split("-")] for r in " ".join(entry["ranges"]).split()]
        classes[name] = "".join("-".join(e) for e in ends)
    return classes


@cache
def _joint() -> re.Pattern[str]:
    """Match connectors alone, which the tokenizer's pattern finds but which are not tokens."""
    c = _classes()
    return re.compile(f"[{c['CONNECTOR']}][{c['CONNECTOR']}{c['EXTEND']}{c['MARK']}]*+")


@cache
def _unicode() -> re.Pattern[str]:
    """Return the tokenizer's grammar for all of Unicode."""
    c = _classes()
    extend = c["EXTEND"] + c["MARK"]
    letter = c["LETTER"] + c["HEBREW"]
    number, kana, hebrew = c["NUMERIC"], c["KATAKANA"], c["HEBREW"]
    mid_letter = c["MID_LETTER"] + c["MID_BOTH"] + "'"
    mid_number = c["MID_NUMBER"] + c["MID_BOTH"] + "'"
    southeast = c["SOUTHEAST"] + c["MARK"]
    emoji = c["EMOJI"] + "\U0001f3fb-\U0001f3ff"
    flag = f"[{c['REGIONAL']}][{extend}]*+"

    letters = (
        f"[{letter}][{letter}{extend}]*+"
        f"(?:(?:[{mid_letter}][{extend}]*+(?=[{letter}])|(?<=[{hebrew}])'|(?<=[{hebrew}])\"(?=[{hebrew}]))"
        f"[{letter}{extend}]*+)*+"
    )
    numbers = f"[{number}][{number}{extend}]*+(?:[{mid_number}][{extend}]*+(?=[{number}])[{number}{extend}]*+)*+"
    joint = _joint().pattern
    part = f"(?:(?:{letters}|{numbers})++|[{kana}][{kana}{extend}]*+)"
    return re.compile(
        f"(?:{joint})?+{part}(?:{joint}{part})*+(?:{joint})?+"
        f"|[{c['CONNECTOR']}][{c['CONNECTOR']}{c['EXTEND']}]*+"
        f"|[{c['SINGLE']}][{extend}]*+"
        f"|\u200d?[{emoji}](?:[{extend}]|(?<=\u200d)[{emoji}])*+"
        f"|[#*]\ufe0f?\u20e3[{extend}]*+"
        f"|{flag}{flag}"
        f"|[{southeast}][{southeast}{extend}]*+"
    )


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
    if len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c":
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
