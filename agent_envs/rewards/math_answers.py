"""Reading the number that a text gives as its answer, and comparing it with the gold number exactly.

    gold: "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\\n...\\n#### 72"
    text: "She sold 48 + 24 = **72** clips, so the answer is 72."       -> 1.0

A plain number after the last `####` is the answer. Otherwise lenient rules look for it, in this order: after `####`, in
`\\boxed{}`, after "the answer is", and the last number of the text. They read separators, signs, currencies, fractions,
powers (`2^3` is 8), scales ("5 million") and LaTeX; neither a root nor what is under it is a number.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

from agent_envs.errors import DataError

__all__ = ["MAX_DIGITS", "extract_answer", "gold_answer", "gold_number", "score", "tail_windows"]

MAX_DIGITS = 100
"""Longest number in digits; longer runs of digits are not answers."""
MAX_MARKERS = 50  # markers tried, from the end of a text
WINDOW = 400  # characters after a marker in which its number must be

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
_SCALES = {None: 1, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NO_NUMBER_BEFORE = ("^", "^{", "^(", "^-", "^{-", "√", "sqrt{", "sqrt(", "sqrt ", "sqrt")  # an exponent or a root
_NO_NUMBER_AFTER = re.compile(r"[ \t]?(?:\^[-0-9({\\]|\\?sqrt|√)")
_CHAIN = re.compile(r"[-+*/0-9.,()\s\$%×÷x^{}]{0,200}=")  # the rest of a calculation, up to its result
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


def extract_answer(text: str) -> str | None:
    r"""Return the number that a text gives as its answer in plain form, or None if there is none.

    >>> extract_answer("5 boxes cost 9. #### $1,234.50"), extract_answer("The answer is **-3** degrees, not 4.")
    ('1234.5', '-3')
    """
    answer = text[text.rfind("####") + 4 :].strip() if "####" in text else ""
    if len(answer) <= MAX_DIGITS and answer.isascii() and answer.isdigit():
        return str(int(answer))
    value = _read_leniently(text)
    return None if value is None else _plain(value)


def gold_answer(answer: str) -> str:
    """Return the gold number in plain form, from a solution that ends with `#### N` or from the number alone.

    Raises:
        DataError: There is no number in it.
    """
    plain = extract_answer(answer)
    if plain is None:
        raise DataError(f"expected a gold answer with a number, got {answer[-80:]!r}")
    return plain


@functools.lru_cache(maxsize=1024)
def gold_number(gold: str) -> Fraction:
    """Return the value of a gold number; it raises what `gold_answer` raises."""
    value = _read_leniently(gold)
    if value is None:
        raise DataError(f"expected a gold answer with a number, got {gold[-80:]!r}")
    return value


def score(text: str, gold: str) -> float:
    """Return 1.0 if the answer in `text` equals the number in `gold` exactly, else 0.0; errors as for `gold_answer`."""
    return float(_read_leniently(text) == gold_number(gold))


# -- where to look-----------------------------------------------------------------------------------------------------


def _read_leniently(text: str) -> Fraction | None:
    if not text.isascii():
        text = _VULGAR.sub(_spell_fraction, text.translate(_ASCII))
    if "\\" in text or "{" in text or not text.isascii():
        text = _THOUSANDS.sub("", text)
    values = map(_first_number, _marked_segments(text))
    value = next((value for value in values if value is not None), None)
    return _last_number(text) if value is None else value


def _marked_segments(text: str) -> Iterator[str]:
    """Yield what follows each `####`, what is in each box and what follows each phrase, the last of each kind first."""
    yield from _after(text, _HASHES, "####")
    for box in _from_the_end(text, _BOXED, "boxed"):
        yield _rejoin(_braced(text[box.end() : box.end() + WINDOW]))
    for segment in _after(text, _PHRASE, "nswer", "NSWER"):
        yield _SENTENCE_END.split(segment.lstrip(" \n*:"), maxsplit=1)[0]


def _after(text: str, marker: re.Pattern[str], *starts: str) -> Iterator[str]:
    """Yield the line behind each marker, and what follows it up to the next marker."""
    stop = len(text)
    for match in _from_the_end(text, marker, *starts):
        line, _, rest = _rejoin(text[match.end() : min(stop, match.end() + WINDOW)]).lstrip().partition("\n")
        yield from (line, rest)
        stop = match.start()


def _from_the_end(text: str, marker: re.Pattern[str], *starts: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a marker, the last one first, trying the last MAX_MARKERS places with one of its starts."""
    stop = len(text)
    for _ in range(MAX_MARKERS):
        stop = max(text.rfind(start, 0, stop) for start in starts)
        if stop < 0:
            return
        if match := marker.match(text, stop):
            yield match


def tail_windows(text: str) -> Iterator[str]:
    """Yield a text in pieces from its end, never cut within a number. The last number is nearly always in the first."""
    end = len(text)
    while end > 0:
        start = max(0, end - 4096)
        least = max(0, start - 3 * MAX_DIGITS)
        while start > least and text[start - 1] in _NUMBER_PARTS:
            start -= 1
        yield text[start:end]
        end = start


def _first_number(segment: str) -> Fraction | None:
    """Return the first number of a segment, or the result if it begins a calculation such as `3*4 = 12`."""
    for match in _NUMBER.finditer(segment):
        chain = _CHAIN.match(segment, match.end())
        value = _first_number(segment[chain.end() :]) if chain else None
        value = _value(match) if value is None else value
        if value is not None:
            return value
    return None


def _last_number(text: str) -> Fraction | None:
    matches = (match for window in tail_windows(text) for match in reversed([*_NUMBER.finditer(window)]))
    return next((value for value in map(_value, matches) if value is not None), None)


# -- how it is written -------------------------------------------------------------------------------------------------


def _spell_fraction(match: re.Match[str]) -> str:
    """Write `½` as `1/2`, after a number as ` 1/2`."""
    fraction = unicodedata.normalize("NFKC", match[1]).replace("⁄", "/")
    return f" {fraction}" if match.start() and match.string[match.start() - 1].isdigit() else fraction


def _rejoin(segment: str) -> str:
    """Join `- 5` and `1 000 000`, which are numbers behind a marker; elsewhere they may belong to a list."""
    minus = _SPACED_MINUS.match(segment)
    if minus:
        segment = "-" + segment[minus.end() :]
    return _SPACED.sub(lambda number: number[0].replace(" ", ""), segment) if " " in segment else segment


def _braced(text: str) -> str:
    """Return the text up to the brace that closes the one before it."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text.partition("\n")[0]


def _value(match: re.Match[str]) -> Fraction | None:
    """Return the value of a match, or None if it is too long, divides by zero, or is part of a root or an exponent."""
    text, parts = match.string, match.groupdict()
    before = text[max(0, match.start() - 5) : match.start()]
    part_of_power = before.endswith(_NO_NUMBER_BEFORE) or _NO_NUMBER_AFTER.match(text, match.end())
    if part_of_power or len(match[0]) > 3 * MAX_DIGITS:
        return None
    top, bottom = parts["top"] or parts["top1"], parts["bottom"] or parts["bottom1"]
    numerator = _decimal(top or (parts["whole"] or "0") + (parts["point"] or parts["bare"] or ""))
    denominator = _decimal(bottom or (parts["slash"] or "1").strip(" \t/"))
    if numerator is None or not denominator:
        return None
    if parts["exponent"]:
        numerator *= Fraction(10) ** int(parts["exponent"][1:])
    if parts["mixed"] and numerator:
        numerator = numerator * denominator + int(parts["mixed"])
    if parts["power"]:
        power = int(parts["power"])
        if power * max(numerator.numerator, denominator.numerator).bit_length() > 3 * MAX_DIGITS:
            return None
        numerator, denominator = numerator if parts["slash"] else numerator**power, denominator**power
    if parts["sign"] and "-" in parts["sign"] and _is_sign(text, match.start()):
        numerator = -numerator
    return numerator * _SCALES[parts["scale"]] / denominator


def _decimal(digits: str) -> Fraction | None:
    """Read digits with separators and at most one point; of several points, each before three digits is a separator."""
    digits = digits.replace(",", "").rstrip(".")
    if digits.count(".") > 1 and all(len(group) == 3 for group in digits.split(".")[1:]):
        digits = digits.replace(".", "")
    if not 0 < len(digits) <= MAX_DIGITS or digits.count(".") > 1:
        return None
    return Fraction(digits)


def _is_sign(text: str, position: int) -> bool:
    """Whether the minus at `position` is a sign: after a number, a letter or a bracket it is not."""
    before = text[max(0, position - 8) : position]
    last, last_but_blank = before[-1:], before.rstrip(" \t$")[-1:]
    is_minus = (
        last.isalnum() or last in (")", "]", "}", "%") or last_but_blank.isdigit() or last_but_blank in (")", "%")
    )
    return not is_minus


def _plain(value: Fraction) -> str:
    """Write an integer, an exact decimal of up to 12 places, or a reduced fraction."""
    scaled = value * 10**12
    if scaled.denominator != 1:
        return f"{value.numerator}/{value.denominator}"
    whole, places = divmod(abs(scaled.numerator), 10**12)
    return f"{'-' if value < 0 else ''}{whole}.{places:012}".rstrip("0").rstrip(".")
