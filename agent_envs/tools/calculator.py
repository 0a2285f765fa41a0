"""The calculator: an arithmetic parser with exact results, and the tool that offers it to a policy.

    evaluate("12*7+3")         -> "87"
    evaluate("15% of $1,200")  -> "180"
    evaluate("1/3")            -> "0.333333333333"

Values are Python integers and fractions, so there are no rounding errors of binary floating point. The length of an
expression, its nesting and the size of every intermediate value are limited, so `2**10**9` is refused at once and no
call needs a timeout.
"""

from __future__ import annotations

import contextlib
import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact
from fractions import Fraction
from typing import NoReturn

from agent_envs.errors import ToolError
from agent_envs.tools.base import tool

MAX_LENGTH = 1000  # characters of an expression
MAX_DEPTH = 40  # open parentheses, and powers of powers
MAX_BITS = 1024  # of a result's magnitude, about 308 decimal digits
WORK_BITS = 8192  # of the numerator and of the denominator of every value on the way
MAX_DIGITS = 308  # of a power that is rounded
DIGITS = 12  # significant digits of a result that has no short exact decimal form
EXACT_DIGITS = 20  # of one that has

TOO_LARGE = "the number is too large or too fine, at most about 308 digits are allowed."
GRAMMAR = "one arithmetic expression of numbers, + - * / // % ** and parentheses"

_SIMPLE = re.compile(r"([0-9]{1,15})([-+*/])([0-9]{1,15})")  # most calls are one such operation
_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?|\.[0-9]+)"
    r"|(?P<op>\*\*|//|[-+*/%^()]|[×·∙⋅xX](?![a-zA-Z])|[÷∕⁄]|[−–—]|of\b)"
    r"|(?P<dollar>\$)"
    r")"
)
_ROUGH = Context(prec=60)
_EXACT = Context(prec=EXACT_DIGITS, traps=[Inexact])
_HEXADECIMAL = re.compile(r"(?<![0-9.,])0[xX][0-9a-fA-F]{1,20}")  # not the x of 0 x 10, which multiplies
_SAME = {"^": "**", "of": "*"}
_SAME |= dict.fromkeys("×·∙⋅xX", "*") | dict.fromkeys("÷∕⁄", "/") | dict.fromkeys("−–—", "-")
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}

Number = int | Fraction
_Token = tuple[str, str, int]  # kind ("number", an operator, "end"), text as written, position from 1


def evaluate(expression: str) -> str:
    """Return the value of an arithmetic expression as text: an integer, or a decimal without float noise.

    Grammar: `+ - * / // % **` (also `^ × ÷ −`), parentheses, unary signs, decimals, `1,234`, `$5`, `1.5e3`.
    Powers bind tightest and to the right, `//` and modulo round down, as in Python. A `%` that is followed by
    a number, `$` or `(` is modulo; any other is percent, so `15%` is 0.15, and `15% of 80` is 12. Decimals
    are exact up to 20 digits and rounded to 12 significant digits beyond. Expressions are limited to 1000
    characters and 40 levels, results to about 308 digits.

    Raises:
        ToolError: The expression is malformed, divides by zero or exceeds a limit; the text says where (a position,
            from 1), what was expected and what to do.

    >>> evaluate("2*(3+4.5)"), evaluate("0.1+0.2"), evaluate("-2**2"), evaluate("1,234 - 34"), evaluate("7%4")
    ('15', '0.3', '-4', '1200', '3')
    """
    simple = _SIMPLE.fullmatch(expression)
    if simple:
        op, left, right = simple[2], int(simple[1]), int(simple[3])
        if op == "*":
            return str(left * right)
        if op != "/":
            return str(left + right if op == "+" else left - right)
        if right and left % right == 0:
            return str(left // right)
    if len(expression) > MAX_LENGTH:
        raise ToolError(
            f"the expression has {len(expression)} characters, at most {MAX_LENGTH} are allowed. "
            "Split it into several calls."
        )
    parser = _Parser(_tokens(expression))
    value = parser.expression(1, 0)
    if parser.token[0] != "end":
        parser.unexpected("an operator or the end of the expression")
    if abs(value.numerator.bit_length() - value.denominator.bit_length()) >= MAX_BITS:
        raise ToolError(TOO_LARGE)
    return format_number(value)


@tool
def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression and return its exact value.

    Args:
        expression: Numbers, + - * / // % ** and parentheses, for example "(12+7)*3" or "15% of 80".
    """
    return evaluate(expression)


def format_number(value: Number) -> str:
    """Return a number as text: an integer, an exact decimal of at most 20 digits, or one of 12 significant digits.

    >>> format_number(Fraction(5, 4)), format_number(Fraction(2, 3)), format_number(Fraction(6, 2))
    ('1.25', '0.666666666667', '3')
    """
    if value.denominator == 1:
        return str(value.numerator)
    top, bottom = Decimal(value.numerator), Decimal(value.denominator)
    with contextlib.suppress(Inexact):
        exact = _EXACT.divide(top, bottom)
        if exact.as_tuple().exponent >= -EXACT_DIGITS:  # type: ignore[operator]
            return f"{exact:f}"
    whole = len(str(abs(value.numerator) // value.denominator))
    context = Context(prec=max(DIGITS, whole + 6), rounding=ROUND_HALF_EVEN)
    rounded = context.divide(top, bottom).normalize(context)
    return f"{rounded:f}" if rounded.adjusted() >= -9 else f"{rounded:E}"


def _tokens(expression: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, end, match_at = 0, len(expression.rstrip()), _TOKEN.match
    if end == 0:
        raise ToolError(f"the expression is empty. Expected {GRAMMAR}, like 12*7+3.")
    hexadecimal = _HEXADECIMAL.search(expression)
    if hexadecimal:
        place, shown = hexadecimal.start() + 1, hexadecimal[0]
        raise ToolError(f"at position {place}: {shown!r} is not allowed. Write decimal digits, and * to multiply.")
    while position < end:
        match = match_at(expression, position)
        if match is None:
            _refuse(expression, position)
        text = match[match.lastgroup or 0]
        position = match.end()
        if match.lastgroup == "number":
            tokens.append(("number", text, position - len(text) + 1))
        elif match.lastgroup == "op":
            tokens.append((_SAME.get(text, text), text, position - len(text) + 1))
        else:
            following = expression[position:].lstrip()[:1]
            if not (following.isdigit() or following in (".", "(")):
                raise ToolError(f"at position {position}: expected a number after '$'.")
    tokens.append(("end", "", end + 1))
    return tokens


def _refuse(expression: str, position: int) -> NoReturn:
    """Raise for text that no token starts with."""
    position += len(expression[position:]) - len(expression[position:].lstrip())
    text = expression[position]
    word = re.match(r"[^\W\d_]{1,20}", expression[position:])
    if text == "=":
        hint = "Leave out '=': give only the expression to compute."
    elif text == ",":
        hint = "A comma may only separate thousands, as in 1,234."
    elif word:
        text, hint = word[0], "Names, units and functions are not known: write only numbers and operators."
    else:
        hint = f"Expected {GRAMMAR}."
    raise ToolError(f"at position {position + 1}: {text!r} is not allowed. {hint}")


class _Parser:
    """A precedence-climbing parser over a list of tokens; each reading method returns the value of what it read."""

    __slots__ = ("next_index", "token", "tokens")

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.token = tokens[0]
        self.next_index = 1

    def advance(self) -> None:
        self.token = self.tokens[self.next_index]
        self.next_index += 1

    def check_depth(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            position = self.token[2]
            raise ToolError(f"at position {position}: more than {MAX_DEPTH} nested powers or parentheses.")

    def unexpected(self, expected: str) -> NoReturn:
        kind, text, position = self.token
        what = "the expression ends" if kind == "end" else f"found {text!r}"
        hint = ""
        if expected.startswith("an operator") and kind in ("number", "("):
            after_number = kind == "number" and self.tokens[self.next_index - 2][0] == "number"
            hint = " Write an operator between two numbers." if after_number else " Write * to multiply."
        raise ToolError(f"at position {position}: expected {expected}, {what}.{hint}")

    def expression(self, binding: int, depth: int) -> Number:
        """Read terms joined by operators that bind at least as tightly as `binding` (1: sums, 2: products)."""
        left = self.signed(depth)
        while True:
            op, _, position = self.token
            strength = _BINDING.get(op, 0)
            if strength < binding or strength == 0:
                return left
            self.advance()
            right = self.expression(strength + 1, depth) if strength < 2 else self.signed(depth)
            if op == "+":
                left = left + right
            elif op == "-":
                left = left - right
            elif op == "*":
                left = left * right
            elif right == 0:
                raise ToolError(f"at position {position}: division by zero.")
            elif op == "/":
                left = _ratio(left, right)
            elif op == "//":
                left = left // right
            else:
                left = left % right
            if type(left) is not int or left.bit_length() > WORK_BITS:
                _bounded(left, position)

    def signed(self, depth: int) -> Number:
        negative = False
        while self.token[0] in ("-", "+"):
            negative ^= self.token[0] == "-"
            self.advance()
        value = self.power(depth)
        return -value if negative else value

    def power(self, depth: int) -> Number:
        base = self.atom(depth)
        if self.token[0] != "**":
            return base
        position = self.token[2]
        self.check_depth(depth)
        self.advance()
        return _power(base, self.signed(depth + 1), position)

    def atom(self, depth: int) -> Number:
        kind, text, position = self.token
        value: Number
        if kind == "number":
            digits = text.replace(",", "")
            digits += "0" if digits.endswith(".") else ""
            value = int(digits) if digits.isdigit() else _bounded(Fraction(digits), position)
            self.advance()
        elif kind == "(":
            self.check_depth(depth)
            self.advance()
            value = self.expression(1, depth + 1)
            if self.token[0] != ")":
                self.unexpected(f"an operator or ')' to close the '(' at position {position}")
            self.advance()
        else:
            self.unexpected("a number or '('")
        while self.token[0] == "%" and self.tokens[self.next_index][0] not in ("number", "("):
            self.advance()
            value = _ratio(value, 100)
        return value


def _ratio(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    value = Fraction(left) / right
    return value.numerator if value.denominator == 1 else value


def _bounded(value: Number, position: int) -> Number:
    if value.numerator.bit_length() > WORK_BITS or value.denominator.bit_length() > WORK_BITS:
        raise ToolError(f"at position {position}: {TOO_LARGE}")
    return value


def _power(base: Number, exponent: Number, position: int) -> Number:
    """Return base**exponent: exact if its size is within limits, else to more digits than are shown."""
    exponent = Fraction(exponent)
    if base == 0 and exponent < 0:
        raise ToolError(f"at position {position}: division by zero (0 to a negative power).")
    if base in (0, 1):
        return 1 if exponent == 0 else base
    if base < 0 and exponent.denominator != 1:
        shown = format_number(exponent)
        raise ToolError(f"at position {position}: a negative number has no real power of {shown}.")
    if base == -1:
        return -1 if exponent.numerator % 2 else 1
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    value = _exact_power(Fraction(base), exponent) if abs(exponent) * bits <= WORK_BITS else None
    if value is None:
        value = _rounded_power(abs(Fraction(base)), exponent, position)
        if base < 0 and exponent.numerator % 2:
            value = -value
    return value.numerator if value.denominator == 1 else value


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """Return the power if it is rational, else None."""
    root = exponent.denominator
    if root == 1:
        return base**exponent.numerator
    if root > 64 or max(base.numerator, base.denominator).bit_length() > MAX_BITS:
        return None
    top, bottom = (_integer_root(part, root) for part in (base.numerator, base.denominator))
    return None if top is None or bottom is None else Fraction(top, bottom) ** exponent.numerator


def _rounded_power(base: Fraction, exponent: Fraction, position: int) -> Fraction:
    """Return the power of a positive number to at least 30 decimal places; ToolError if it is out of bounds."""
    if max(abs(exponent.numerator), exponent.denominator).bit_length() <= 64:
        magnitude = _times(_quotient(base, _ROUGH).log10(_ROUGH), exponent, _ROUGH)
        if abs(magnitude) < MAX_DIGITS:
            context = Context(prec=60 + max(0, int(magnitude)))
            return Fraction(_times(_quotient(base, context).ln(context), exponent, context).exp(context))
    raise ToolError(f"at position {position}: the power is too large or too fine, at most about 308 digits.")


def _quotient(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _times(value: Decimal, factor: Fraction, context: Context) -> Decimal:
    return context.multiply(value, _quotient(factor, context))


def _integer_root(value: int, root: int) -> int | None:
    """Return the `root`-th root of a positive integer, found by bisection, or None if it is not an integer."""
    low, high = 1, 1 << (value.bit_length() // root + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**root < value:
            low = middle + 1
        else:
            high = middle
    return low if low**root == value else None
