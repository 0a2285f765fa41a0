"""Reading a text as a customer does: small letters, digits for numbers, sentences, phrases, amounts. No model."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from agent_envs.files import table

TABLES: Mapping[str, Any] = table(__package__, "hearing.json")
LONGEST, MOST = 4000, 300
"""Only so many characters of a text are read, and so many of its sentences."""
Phrases = Mapping[str, Sequence[tuple[str, str]]]
"""Phrases by their first word, each with what it is a sign of."""
_PARTS = {name: part % TABLES["parts"] for name, part in TABLES["parts"].items()}
PATTERNS = {name: re.compile("|".join(patterns) % _PARTS) for name, patterns in TABLES["patterns"].items()}
WORD = re.compile(r"\w+")
_SIGNS = str.maketrans("’£$", "'€€")
_NUMBERS: Mapping[str, int] = TABLES["numbers"]


def plain(text: str) -> str:
    """Return a text in small letters, with digits for the words of numbers.

    >>> plain("Twenty-two euros for two weeks, or one hundred and five.")
    '22 euros for 2 weeks, or 105.'
    """

    def digits(found: re.Match[str]) -> str:
        return str(sum(_NUMBERS[word] for word in WORD.findall(found[0])))

    def product(found: re.Match[str]) -> str:
        count, word, rest = found.groups("")
        return str((int(count) if count.isdigit() else 1) * _NUMBERS[word] + int(rest or 0))

    small = PATTERNS["short"].sub(lambda found: TABLES["short"][found[0]], text[:LONGEST].lower().translate(_SIGNS))
    small = PATTERNS["number"].sub(digits, PATTERNS["quoted word"].sub(r"\2", small))
    for word in ("hundred", "thousand"):
        small = PATTERNS[word].sub(product, small) if word in small else small
    return PATTERNS["again"].sub(r"\1", small)


_plain_value = functools.lru_cache(maxsize=1024)(plain)


def says(kind: str, text: str) -> bool:
    """Return whether a pattern of the tables occurs in a text."""
    return PATTERNS[kind].search(text) is not None


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text, `plain`; what asks or tells something of its own is apart."""
    text = PATTERNS["quotation"].sub("", PATTERNS["adverb"].sub(r"\1", plain(text)))
    for sentence in PATTERNS["end of a sentence"].split(text.replace("**", ""))[:MOST]:
        sentence = sentence.strip(" \t_>")
        *parts, last = [sentence] if says("condition", sentence) else PATTERNS["end of a part"].split(sentence)
        end = last[-1] if last.endswith((".", "?")) else ""
        yield from (f"{part}{end if end == '.' or says('asks', part) else ''}" for part in parts if part)
        if last:
            yield last


def has(sentence: str, value: str) -> bool:
    """Return whether a value stands in a sentence, and not within a longer word or number."""
    value = _plain_value(value)
    return value in sentence and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", sentence) is not None


def indexed(phrases_of: Mapping[str, Iterable[str]]) -> Phrases:
    """Return phrases to look for with `signs`, from those of each sign."""
    phrases: dict[str, list[tuple[str, str]]] = {}
    for sign, words in phrases_of.items():
        for word in dict.fromkeys(map(plain, words)):
            if first := WORD.search(word):
                phrases.setdefault(first[0], []).append((word, sign))
    return phrases


def signs(sentence: str, *tables: Phrases) -> dict[str, tuple[int, int]]:
    """Return what the phrases in a sentence are signs of, with the place of the first."""
    found = []
    for word in WORD.finditer(sentence):
        start = word.start()
        for phrase, sign in itertools.chain.from_iterable(phrases.get(word[0], ()) for phrases in tables):
            if sentence.startswith(phrase, start):
                end = start + len(phrase)
                if not (sentence[end : end + 1].isalnum() and phrase[-1].isalnum()):
                    found.append((start, end, sign))
    taken = [(start, end) for start, end, sign in found if sign[0] in "?=" and " " in sentence[start:end]]
    return {
        sign: (start, end)
        for start, end, sign in reversed(found)
        if sign[0] != "?"  # a fact is asked for by no part of longer words, nor by "3 more days" or "days ago"
        or not (
            any(a <= start and end <= b and b - a > end - start for a, b in taken)
            or sentence.startswith(" ago", end)
            or says("counted", sentence[:start][-14:])
        )
    }


def amounts_in(text: str, words: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Return the amounts of money in a text, and those that follow one of some words in its sentence.

    >>> amounts_in("It costs 86 euros now; the charge is €17.", ("charge",))
    ([86, 17], [17])
    """
    text = PATTERNS["untrue"].sub("", plain(text))
    found = list(PATTERNS["money"].finditer(text))
    money = [(int(each[1] or each[2]), PATTERNS["each"].match(text, each.end())) for each in found]
    sums = [amount for amount, each in money if not each]  # "180 euros, 90 a night"
    if money and not sums:  # "it costs 60 euros a month" may be of anything
        words = tuple(word for word in words if "cost" not in word)
    named = [int(number or 0) for number in _following(words).findall(text)]
    named = [amount for amount in named if not amount or not sums or amount in sums]  # "an extra 2 lessons: 26 euros"
    return list(dict.fromkeys([*sums, *named])), list(dict.fromkeys(named))


@functools.lru_cache(maxsize=512)
def _following(words: tuple[str, ...]) -> re.Pattern[str]:
    named = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    return re.compile("|".join(TABLES["following"]) % {"named": named})
