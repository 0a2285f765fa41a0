r"""Reading the number that a text gives as its answer, exactly.

    strict      She sold 48 + 24 = <<48+24=72>>72 clips.\n#### 72
    lenient     #### about $1,072.50    so \boxed{\frac{1}{2}}    The answer is **72** clips.    48 + 24 = 72 clips

The strict rule reads an integer after the last `####`, or alone. Otherwise the first number after `####`, in a box or
after "the answer is" counts, in this order, else the last number of the text. What is unreadable (a power, a root, a
sum, over 100 digits) is not replaced by another number: then there is no answer.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from agent_envs.errors import DataError

TAIL = 10_000
"""How many characters at the end of a text are searched for its last number."""

_LONGEST = 400  # characters in which one number is looked for
_STRICT = re.compile(r"-?[0-9]{1,100}")
_PLACES = (  # where the answer is the first number
    re.compile(r"(?s).*####(?!\s{0,3}\**\s{0,3}(?:[Ss]tep|[Pp]art)\b)(.{1,400})"),  # not in a heading
    re.compile(r"(?s).*boxed\s{0,3}\{([^\n]{1,400})"),
    re.compile(r"(?is).*answers?(?: to the (?:question|problem))?(?: is| are|\**:)[ *:]*(\s{0,9}[^\n]{1,400})"),
)
_SPELLINGS = (  # how else a number is written
    (re.compile("[−–—‒]"), "-"),
    (re.compile(r"(?<=[0-9]),?(?:\{,\}|\\[,! ]|[\u202f\u2009\u00a0])(?=[0-9]{3})"), ","),  # 1{,}000
    (re.compile(r"(?<=[0-9])(?=\\[dt]?frac|[¼-¾⅐-⅞])"), " "),  # 1½ is 1 1/2
    (re.compile("[¼-¾⅐-⅞！-～]"), lambda match: unicodedata.normalize("NFKC", match[0]).replace("⁄", "/")),
    (re.compile(r"\\[dt]?frac\s?(?:\{\s?([0-9.,]+)\s?\}\s?\{\s?([0-9.,]+)\s?\}|([0-9])([0-9]))"), r"\1\3/\2\4"),
    (re.compile(r"(?<![0-9 ])\^[{(]?-?[0-9]+"), ""),  # cm^2
)
_SPELLINGS_ALONE = (  # these may mean something else in other text: a bullet, two numbers
    (re.compile(r"\A[ *$:]*- +(?=[$.0-9])"), "-"),  # - 5
    (re.compile(r"(?<=[0-9]) (?=[0-9]{3}(?![0-9/]))"), ","),  # 1 000
)
_CALCULATION = re.compile(r"[-+*/^0-9.,()$%×÷x{} \t]{1,200}=")  # 3*4 = 12
_NUMBER = re.compile(
    r"""
    (?P<root> (?:√|sqrt)[ {(\[]? )?
    (?P<minus> (?<![\w)\]}%])(?<![0-9)%][ ])-(?:\\?[$€£])? )?  # neither a hyphen nor between two numbers
    (?=\.?[0-9])
    (?: (?P<whole> [0-9]{1,3} )[ ]{1,2}(?=[0-9]{1,100}/[0-9]) )?  # 1 1/2
    (?P<top> (?:[0-9]{1,3}(?:,[0-9]{3}){1,30}(?![0-9])|[0-9]{0,100})(?:\.[0-9]{1,100})?(?:[eE][-+]?[0-9]{1,3}\b)? )
    (?: [ ]?/[ ]?(?P<bottom> [0-9]{1,100} )(?![.,]?[0-9]) )?
    (?: [ ]?(?P<scale> hundred|thousand|million|billion|trillion )\b(?!-) )?
    (?P<unreadable> \.?[0-9][0-9.]* | [ ]?(?:\^|\*\*(?=[0-9]{1,3}(?![0-9]))|\\?sqrt|√)[ {(]?-?[0-9.]* )?
    """,
    re.VERBOSE,
)
_GOES_ON = re.compile(r" ?[-+*×÷/] ?[0-9]|,[0-9]")  # 144+1, 18,8
_SCALES = {None: 1, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def extract_answer(text: str) -> str | None:
    r"""Return the number that a text gives as its answer in plain form, or None if there is none.

    >>> extract_answer("5 boxes cost 9. #### $1,234.50"), extract_answer("The answer is **-3** degrees, not 4.")
    ('1234.5', '-3')
    """
    integer = _STRICT.fullmatch(text.rpartition("####")[2].strip())
    if integer:
        return str(int(integer[0]))
    return _written(_find_leniently(text))


def gold_answer(answer: str) -> str:
    """Return the gold number in plain form, of a solution or alone; DataError if there is none."""
    number = extract_answer(answer)
    if number is None:
        raise DataError(f"expected a gold answer with a number, got {answer[-80:]!r}")
    return number


def whole_number(text: str) -> str | None:
    r"""Return the number that a text is, in plain form, or None if it is, or says, anything else.

    >>> whole_number(r"\frac{6}{4}"), whole_number("-1./3"), whole_number("1 000"), whole_number("7,3")
    ('1.5', '-1/3', '1000', None)
    """
    alone = re.sub(r"(?<=[0-9])\.(?![0-9])", "", text.strip(" $").lstrip("+"))  # 1.
    return _written(_NUMBER.fullmatch(_respelled(alone, alone=True)) if len(text) <= _LONGEST else None)


def plain(value: Fraction) -> str:
    """Write an integer, an exact decimal of up to 12 places, or a reduced fraction."""
    scaled = value * 10**12
    if scaled.denominator != 1:
        return f"{value.numerator}/{value.denominator}"
    whole, places = divmod(abs(scaled.numerator), 10**12)
    return f"{'-' if value < 0 else ''}{whole}.{places:012}".rstrip("0").rstrip(".")


def tail(text: str) -> str:
    """Return the end of a text, without the rest of a number that is cut off."""
    return text if len(text) <= TAIL else text[-TAIL:].lstrip("0123456789.,")


def _find_leniently(text: str) -> re.Match[str] | None:
    for place in _PLACES:
        segment = place.match(text)
        spelled = _CALCULATION.sub(" ", _respelled(segment[1], alone=True)) if segment else ""
        if number := _NUMBER.search(spelled):
            return None if _GOES_ON.match(spelled, number.end()) else number
    numbers = [*_NUMBER.finditer(_respelled(tail(text)))]
    return numbers[-1] if numbers else None


def _respelled(text: str, alone: bool = False) -> str:
    for pattern, spelling in _SPELLINGS + _SPELLINGS_ALONE if alone else _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text


def _written(number: re.Match[str] | None) -> str | None:
    """Return a number that was found in plain form, or None if there is none or it is unreadable."""
    if number is None:
        return None
    root, minus, whole, top, bottom, scale, unreadable = number.groups()
    denominator = int(bottom or 1)
    if root or unreadable or not denominator:
        return None
    value = (int(whole or 0) + Fraction(top.replace(",", "")) / denominator) * _SCALES[scale]
    return plain(-value if minus else value)
