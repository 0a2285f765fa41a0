"""Scoring of GSM8K answers: the number a text gives as its answer, compared exactly with the gold number.

    gold: "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\\n...\\n#### 72"
    text: "She sold 48 + 24 = **72** clips, so the answer is 72."       -> 1.0

The answer is looked for in this order: after `####`, in `\\boxed{}`, after "the answer is", the last number.
`2^3` is read as 8; a root is no number, nor is the number under it.
The released scoring, which looks at the last number only (Agent-R1, after verl's
utils/reward_score/gsm8k.py), is `score_agentr1`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

from agent_envs.errors import DataError

__all__ = ["extract_answer", "gold_answer", "last_number", "score", "score_agentr1"]

MAX_DIGITS = 100  # of a number; longer runs of digits are no answer
MAX_MARKERS = 50  # markers tried, from the end of a text
WINDOW = 400  # characters after a marker in which its number must stand

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,3}(?:\.[0-9]{3}){2,}(?![0-9]|\.[0-9])|[0-9]+)"
_NUMBER = re.compile(
    r"(?P<sign>[-+](?:[\$€£][ \t]?)?|[\$€£][ \t]?[-+])?"
    r"(?:\\[dt]?frac\s?\{\s?(?P<top>[0-9,.]{1,100})\s?\}\s?\{\s?(?P<bottom>[0-9,.]{1,100})\s?\}"
    r"|\\[dt]?frac(?P<top1>[0-9])(?P<bottom1>[0-9])(?![0-9])"
    rf"|(?:(?P<whole>{_DIGITS})(?P<point>\.[0-9]+)?|(?<![0-9])(?P<bare>\.[0-9]+))"
    r"(?P<exponent>[eE][-+]?[0-9]{1,3}(?![0-9a-zA-Z]))?"
    r"(?:(?P<mixed>[ \t][0-9]{1,3})?(?P<slash>[ \t]?/[ \t]?[0-9]{1,100})(?![0-9,]|\.[0-9]))?)"
    r"(?:(?:\^|\*\*)\{?(?P<power>[0-9]{1,2})(?![0-9.])\}?"
    r"|[ \t]?(?P<scale>hundred|thousand|million|billion|trillion)\b(?!-))?"
)
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NO_NUMBER_BEFORE = (
    "^",
    "^{",
    "^(",
    "^-",
    "^{-",
    "√",
    "sqrt{",
    "sqrt(",
    "sqrt ",
    "sqrt",
)  # an exponent, or under a root
_NO_NUMBER_AFTER = re.compile(r"[ \t]?(?:\^[-0-9({\\]|\\?sqrt|√)")
_CHAIN = re.compile(r"[-+*/0-9.,()\s\$%×÷x^{}]{0,200}=")  # the rest of a calculation whose result follows
_HASHES = re.compile(r"####(?!\s{0,3}\**\s{0,3}(?:[Ss]tep|[Pp]art)\b)")
_BOXED = re.compile(r"boxed\s{0,3}\{")
_PHRASE = re.compile(r"nswers?(?: to the (?:question|problem))?(?: is| are|:|\*\*:)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?]\s")
_THOUSANDS = re.compile(r"(?<=[0-9])(?:\{,\}|\\,|\\!|\\ |\u202f|\u2009|\u00a0)(?=[0-9]{3}(?![0-9]))")
_SPACED = re.compile(r"(?<![0-9.,/^])(?<![0-9] )[0-9]{1,3}(?: [0-9]{3}){1,6}(?![0-9/^]| [0-9]|[ ]?/)")
_SPACED_MINUS = re.compile(r"[ \t*:$]{0,8}-[ \t]{1,4}(?=[$.0-9])")
_VULGAR = re.compile(r"(?:(?<=[0-9])[ ]?)?([¼-¾⅐-⅞])")
_ASCII = str.maketrans({"−": "-", "–": "-", "—": "-", "‒": "-", "﹣": "-", "⁄": "/"})
_ASCII |= {code: chr(code - 0xFEE0) for code in range(ord("！"), ord("～") + 1)}  # full-width digits and punctuation
_NUMBER_PARTS = frozenset("0123456789.,/-+$ \\{}dtfraceE")
_RELEASED = re.compile(r"-?[0-9.,]+")


def extract_answer(text: str) -> str | None:
    r"""The number that a text gives as its answer in plain form, or None where there is none.

    Looked for after the last `####`, in the last `\boxed{}`, after the last "the answer is" (or "answer:"),
    and at last anywhere, from the end. A calculation such as `3*4 = 12` after a marker counts with its
    result. Thousands separators, currency signs, units, percent signs, markdown and LaTeX around the number
    do not matter; fractions are reduced.

    >>> extract_answer("5 boxes cost 9. #### $1,234.50"), extract_answer(r"so \boxed{\frac{1}{2}} of 8")
    ('1234.5', '0.5')
    >>> extract_answer("The answer is **-3** degrees, not 4."), extract_answer("3 + 4 = 7 apples.")
    ('-3', '7')
    """
    last = text[text.rfind("####") + 4 :].strip() if "####" in text else ""
    if len(last) <= MAX_DIGITS and last.isascii() and last.isdigit():  # most answers are this plain
        return str(int(last))
    value = _answer(text)
    return None if value is None else _plain(value)


def gold_answer(answer: str) -> str:
    """The gold number in plain form, of a solution that ends with `#### N` or of the number alone.

    Raises:
        DataError: There is no number in it.

    >>> gold_answer("She pays 2*600=<<2*600=1200>>1200.\\n#### 1,200"), gold_answer("18")
    ('1200', '18')
    """
    plain = extract_answer(answer)
    if plain is None:
        raise DataError(f"expected a gold answer with a number, got {answer[-80:]!r}")
    return plain


def score(text: str, gold: str) -> float:
    """1.0 if the answer given in `text` equals the gold number exactly, else 0.0.

    Args:
        text: What the policy wrote.
        gold: The gold number, or a solution that ends with `#### N`.

    Raises:
        DataError: There is no number in `gold`.

    >>> score("That makes $5.00.", "5"), score("#### 6", "5"), score("#### 1/2", "0.5")
    (1.0, 0.0, 1.0)
    """
    return float(_answer(text) == _gold(gold))


def last_number(text: str) -> str | None:
    """The last number of a text as the released scoring reads it, or None.

    It is a run of digits, commas and points with a minus or none; commas and a trailing point are dropped.

    >>> last_number("#### 18 (of 20.)"), last_number("...")
    ('20', None)
    """
    for window in _windows(text):
        for found in reversed(_RELEASED.findall(window)):
            plain = found.replace(",", "").rstrip(".")
            if any(character.isdigit() for character in plain[-MAX_DIGITS:]):
                return plain
    return None


def score_agentr1(text: str, gold: str) -> float:
    """The released scoring: 1.0 if the last number of the text equals the gold number, else 0.0.

    It reads no marker, so `#### 18 (out of 20)` is scored by its 20, and it pays for any text that ends with
    the right number, a tool call's arguments included. Deviations: numbers are compared by value ("18.0" is
    18) where the release compares strings, and the whole text is read where verl's later versions read its
    last 300 characters.

    Raises:
        DataError: There is no number in `gold`.

    >>> score_agentr1("#### 18", "18"), score_agentr1("#### 18 (out of 20)", "18")
    (1.0, 0.0)
    """
    wanted = _gold(gold)
    found = last_number(text)
    if found is None or len(found) > MAX_DIGITS or found.count(".") > 1 or found.startswith("-."):
        return 0.0
    return float(Fraction(found) == wanted)


@functools.lru_cache(maxsize=1024)
def _gold(gold: str) -> Fraction:
    wanted = _answer(gold)
    if wanted is None:
        raise DataError(f"expected a gold answer with a number, got {gold[-80:]!r}")
    return wanted


def _answer(text: str) -> Fraction | None:
    if not text.isascii():
        text = _VULGAR.sub(_fraction, text.translate(_ASCII))
    if "\\" in text or "{" in text or not text.isascii():
        text = _THOUSANDS.sub("", text)
    for segment in _marked(text):
        value = _first(segment)
        if value is not None:
            return value
    return _last(text)


def _marked(text: str) -> Iterator[str]:
    """The pieces of text behind the last `####`, in the last box and behind the last phrase, in this order."""
    yield from _after(text, ("####",), _HASHES)
    for position in _occurrences(text, ("boxed",)):
        match = _BOXED.match(text, position)
        if match:
            yield _joined(_braced(text[match.end() : match.end() + WINDOW]))
    for segment in _after(text, ("nswer", "NSWER"), _PHRASE):
        segment = segment.lstrip(" \n*:")
        end = _SENTENCE_END.search(segment)
        yield segment[: end.start()] if end else segment


def _after(text: str, literals: tuple[str, ...], marker: re.Pattern[str]) -> Iterator[str]:
    """The text behind each of the last markers, up to the next marker, the last one first."""
    stop = len(text)
    for position in _occurrences(text, literals):
        match = marker.match(text, position)
        if match and match.end() <= stop:
            segment = text[match.end() : min(stop, match.end() + WINDOW)]
            line, _, rest = _joined(segment).lstrip().partition("\n")
            yield line
            yield rest
            stop = position


def _joined(segment: str) -> str:
    """What stands behind a marker, with `- 5` and `1 000 000` in one piece: elsewhere they may be a list's."""
    minus = _SPACED_MINUS.match(segment)
    if minus:
        segment = "-" + segment[minus.end() :]
    return _SPACED.sub(lambda found: found[0].replace(" ", ""), segment) if " " in segment else segment


def _fraction(match: re.Match[str]) -> str:
    """`½` as `1/2`, behind a number as ` 1/2`."""
    plain = unicodedata.normalize("NFKC", match[1]).replace("⁄", "/")
    return f" {plain}" if match.start() and match.string[match.start() - 1].isdigit() else plain


def _occurrences(text: str, literals: tuple[str, ...]) -> Iterator[int]:
    """Where one of the literals stands, from the end, at most MAX_MARKERS times."""
    stop = len(text)
    for _ in range(MAX_MARKERS):
        stop = max(text.rfind(literal, 0, stop) for literal in literals)
        if stop < 0:
            return
        yield stop


def _braced(text: str) -> str:
    """The text up to the brace that closes the one before it."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text.partition("\n")[0]


def _first(segment: str) -> Fraction | None:
    """The first number of a segment; of a calculation, the number after its `=`."""
    for match in _NUMBER.finditer(segment):
        chain = _CHAIN.match(segment, match.end())
        if chain is not None:
            result = _first(segment[chain.end() :])
            if result is not None:
                return result
        value = _value(match, segment)
        if value is not None:
            return value
    return None


def _last(text: str) -> Fraction | None:
    """The last number of a text."""
    for window in _windows(text):
        values = [value for match in _NUMBER.finditer(window) if (value := _value(match, window)) is not None]
        if values:
            return values[-1]
    return None


def _windows(text: str) -> Iterator[str]:
    """The text in pieces from its end, none cut within a number: the first nearly always has the last number."""
    end = len(text)
    while end > 0:
        start = max(0, end - 4096)
        least = max(0, start - 3 * MAX_DIGITS)
        while start > least and text[start - 1] in _NUMBER_PARTS:
            start -= 1
        yield text[start:end]
        end = start


def _value(match: re.Match[str], text: str) -> Fraction | None:
    """The number of a match, or None where it has too many digits or divides by zero."""
    if match.end() - match.start() > 3 * MAX_DIGITS:
        return None
    before = text[max(0, match.start() - 5) : match.start()]
    if before.endswith(_NO_NUMBER_BEFORE) or _NO_NUMBER_AFTER.match(text, match.end()):
        return None
    groups = match.groupdict()
    if match.lastgroup == "whole" and not groups["sign"]:
        return _decimal(groups["whole"])
    top, bottom = groups["top"] or groups["top1"], groups["bottom"] or groups["bottom1"]
    if top is not None and bottom is not None:
        numerator, denominator = _decimal(top), _decimal(bottom)
    else:
        numerator = _decimal((groups["whole"] or "0") + (groups["point"] or groups["bare"] or ""))
        denominator = Fraction(1)
        if groups["exponent"]:
            numerator = numerator and numerator * Fraction(10) ** int(groups["exponent"][1:])
        if groups["slash"]:
            denominator = _decimal(groups["slash"].strip(" \t\n/"))
            if groups["mixed"] and denominator:
                numerator = numerator and numerator * denominator + int(groups["mixed"])
    if numerator is None or not denominator:
        return None
    if groups["power"]:
        power = int(groups["power"])
        if power * max(numerator.numerator, denominator.numerator).bit_length() > 3 * MAX_DIGITS:
            return None
        numerator, denominator = numerator if groups["slash"] else numerator**power, denominator**power
    elif groups["scale"]:
        numerator *= _SCALES[groups["scale"]]
    negative = groups["sign"] is not None and "-" in groups["sign"] and _is_sign(text, match.start())
    return (-numerator if negative else numerator) / denominator


def _decimal(digits: str) -> Fraction | None:
    """A string of digits, commas and at most one point as a number, or None; with more points they are separators."""
    digits = digits.replace(",", "").rstrip(".")
    if digits.count(".") > 1 and all(len(group) == 3 for group in digits.split(".")[1:]):
        digits = digits.replace(".", "")
    if not 0 < len(digits) <= MAX_DIGITS or digits.count(".") > 1:
        return None
    return Fraction(digits)


def _is_sign(text: str, position: int) -> bool:
    """Whether the minus at `position` is a sign: after a number, a letter or a bracket it is none."""
    before = text[max(0, position - 8) : position]
    if before[-1:].isalnum() or before[-1:] in (")", "]", "}", "%"):
        return False
    stripped = before.rstrip(" \t$")
    return not (stripped[-1:].isdigit() or stripped[-1:] in (")", "%"))


def _plain(value: Fraction) -> str:
    """An integer, an exact decimal where there is a short one, else a reduced fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 13):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(abs(scaled.numerator)).rjust(places + 1, "0")
            return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return f"{value.numerator}/{value.denominator}"
