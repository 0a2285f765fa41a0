"""Turns text into terms like Lucene's English analyzer with the Porter stemmer, Anserini's default.

Its steps: StandardTokenizer (UAX #29), removal of the English possessive, lower case, 33 stop words, Porter's stemmer.
Two regular expressions replace the tokenizer: a short one for ASCII, and one with Unicode's word-break classes. Their
hexadecimal ranges (`word_break.json`, Unicode 12.1) were measured by giving Lucene 10 each character alone and between
letters, digits and other characters.

>>> analyze("The U.S. President's 1,000 e-mails weren't _archived_ by O'Neil")
['u.', 'presid', '1,000', 'e', 'mail', "weren't", '_archived_', "o'neil"]
"""

from __future__ import annotations

import re
from functools import cache

from agent_envs.files import table
from agent_envs.retrieval.analysis.porter import stem

__all__ = ["ANALYZER", "MAX_TOKEN_LENGTH", "STOP_WORDS", "analyze", "term_of", "tokenize"]

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
    word = token.lower() if token.isascii() else "".join(map(_lower, token))
    if word in STOP_WORDS or not word.strip("_") or (not word.isascii() and _joint().fullmatch(word)):
        return ""
    return stem(word)


def analyze(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions."""
    return [term for term in map(term_of, tokenize(text)) if term]


def _lower(character: str) -> str:
    """Lower-case one character by itself: there is no final sigma, and a dotted I becomes i."""
    return "i" if character == "\u0130" else character.lower()


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
