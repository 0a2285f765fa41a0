"""The calculator. Pinned here: exact values, what each error says, and that no input takes long.

1. Integers and fractions are exact; decimals have no float noise.
2. `%` is modulo before an operand and percent elsewhere.
3. Every refusal is a ToolError with a position and what was expected.
4. Powers, lengths and nesting are bounded before they are computed.
"""

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_envs.errors import ToolError
from agent_envs.tools.calculator import calculator, evaluate, format_number

VALUES = {  # a rule, and what follows from it
    "one operation takes the short way": {"12*7": "84", "12*7+3": "87", "24/4": "6", "1/4": "0.25"},
    "products before sums": {"2+3*4": "14", "(2+3)*4": "20", "7-2*3+1": "2"},
    "the deepest nesting": {"(" * 40 + "1" + ")" * 40: "1"},
    "to the left, powers to the right": {"10-4-3": "3", "100/5/2": "10", "2**3**2": "512", "2^10": "1024"},
    "the sign is outside of a power": {"-2**2": "-4", "2**-1": "0.5", "(-2)**3": "-8"},
    "several signs": {"--3": "3", "+-3": "-3", "2*-3": "-6"},
    "a fraction stays one inside": {"1/3": "0.333333333333", "2/3": "0.666666666667", "1/3*3": "1"},
    "no float noise": {"0.1+0.2": "0.3", "1.10*3": "3.3", "0.1**10": "0.0000000001"},
    "forms of a decimal": {"3.": "3", ".5*4": "2", "1.5e3": "1500"},
    "thousands and dollars": {"1,234+1": "1235", "1,234,567.5*2": "2469135", "$5*3": "15", "$1,200/12": "100"},
    "percent before an operator or a word": {"15%": "0.15", "15% of 80": "12", "200*15%": "30", "50% - 10": "-9.5"},
    "modulo before a number": {"15 % 4": "3", "15%4": "3", "15%(2+2)": "3", "-7 % 3": "2"},
    "whole division rounds down": {"7//2": "3", "-7//2": "-4", "7.5//2": "3"},
    "signs of print, and of GSM8K": {"5 × 4": "20", "10÷4": "2.5", "7−9": "-2", "0.2 x 50": "10", "10x10": "100"},
    "a sign, unlike 0x10": {"0 x 10": "0"},
    "exact roots are exact": {"4**0.5": "2", "27**(1/3)": "3", "2**0.5": "1.41421356237", "0**0": "1"},
    "blanks and zeros": {" 12 \t+\n3 ": "15", "007": "7"},
    "large and small": {"10**30": "1" + "0" * 30, "1/10**12": "0.000000000001", "1/3/10**12": "3.33333333333E-13",
                        "12345678901234567890*2": "24691357802469135780"},
    "powers of what is negative": {"(-1)**2001": "-1", "(-1)**(10**300)": "1", "(-0.5)**3": "-0.125"},
    "rounded behind the point": {"1.1**1000": "246993291800582633412408838508522147770973.338524",
                                 "0.9**2000": "3.0550539126E-92", "1.05**30 * 1000": "4321.94237515"},
    "too large to be exact on the way": {"1.0001**100000": "22015.4560486", "(-1.0001)**100001": "-22017.6575942"},
    "large only on the way": {"2**1500/2**1490": "1024", "2**1023*2-2**1023": str(2**1023)},
}  # fmt: skip

ERRORS = {  # what an error says, and the expressions that have it
    "empty": ["", "   "],
    "position 4: expected a number": ["12*"],
    "position 1: expected a number": ["*3"],
    "Write an operator between two numbers": ["3 4"],
    "Write * to multiply": ["2(3)"],
    "to close the '(' at position 1": ["(1+2"],
    "position 4": ["1+2)", "1.2.3"],
    "position 2": ["()"],
    "position 1": ["x+1"],
    "position 5": ["5 + 0X1f"],
    "division by zero": ["1/0", "1//0", "1%0", "0**-1", "1/(2-2)"],
    "'apples' is not allowed": ["5 apples"],
    "'0x10' is not allowed": ["0x10"],
    "not allowed": ["½", "１２", "__import__('os')", "(lambda: 1)()", "\x00"],  # full-width digits
    "Leave out '='": ["12=", "12*7=84"],
    "separate thousands": ["1,23"],
    "after '$'": ["$", "3$"],
    "too large": ["2**1024", "1.1**10**9", "2**10**9", "9**9**9**9", "(10**300)**300", "10**300*10**300", "2**-99999",
                  "1e999", "9" * 500, "(1+1e-30)**(10**30)"],  # the last is beyond what is rounded rightly
    "nested": ["(" * 41 + "1" + ")" * 41, "2**" * 100 + "1"],
    "at most 1000": ["1+" * 600 + "1"],
    "negative": ["(-8)**0.5"],
}  # fmt: skip


@pytest.mark.parametrize(("expression", "value"), [pair for some in VALUES.values() for pair in some.items()])
def test_value(expression, value):
    assert evaluate(expression) == value


@pytest.mark.parametrize(("says", "expression"), [(says, one) for says, some in ERRORS.items() for one in some])
def test_error_says_what_to_do(says, expression):
    with pytest.raises(ToolError, match="position|expression|number") as caught:
        evaluate(expression)
    assert says in str(caught.value)


HOSTILE = ["9" * 10**6, "(" * 10**6, "-" * 999 + "1", "1+" * 499 + "1", "(((9**99)**3)**3)**99", "%" * 999, "1%" * 400]
HOSTILE += ["1.1**80+" * 120 + "1", "2**.5*" * 160 + "1", "1.1**9999+" * 99 + "1", "3**999*" * 140 + "1"]
HOSTILE += ["2**999.5+" * 110 + "1", "7**99**-1*" * 99 + "1", "1/3**499+" * 110 + "1", "1.0001**99999*" * 70 + "1"]
HOSTILE += ["1e999*" * 160 + "1", "/".join(str(n) for n in range(101, 340)), "**".join(["9"] * 300), "🦀" * 900]


@pytest.mark.parametrize("expression", HOSTILE)
def test_hostile_input_is_bounded(expression):
    begin = time.process_time()
    try:
        evaluate(expression)
    except ToolError as e:
        assert len(str(e)) < 300
    assert time.process_time() - begin < 0.5


def test_tool_has_its_schema():
    assert calculator.name == "calculator"
    assert calculator.parameters["required"] == ["expression"]
    assert not calculator.blocking
    assert calculator.call(expression="2+2") == "4"


def _combined(
    parts: tuple[tuple[str, Fraction | None], str, tuple[str, Fraction | None], bool],
) -> tuple[str, Fraction | None]:
    (left_text, left), op, (right_text, right), spaced = parts
    text = f"({left_text}){' ' * spaced}{op}{' ' * spaced}({right_text})"
    if left is None or right is None or (op in ("/", "//", "%") and right == 0):
        return text, None
    value = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left / right,
        "//": lambda: Fraction(left // right),
        "%": lambda: left % right,
    }[op]()
    return text, value


EXPRESSIONS = st.recursive(
    st.integers(0, 9999).map(lambda n: (str(n), Fraction(n))),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner, st.booleans()).map(
        _combined
    ),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS)
def test_agrees_with_fractions(case):
    text, value = case
    if len(text) > 1000:
        return
    if value is None:
        with pytest.raises(ToolError, match="division by zero"):
            evaluate(text)
    elif value.numerator.bit_length() <= 1024 and value.denominator.bit_length() <= 1024:
        assert evaluate(text) == format_number(value)
        shown = Fraction(evaluate(text))
        assert abs(shown - value) <= abs(value) / 10**11
        assert value.denominator != 1 or shown == value


@settings(max_examples=100, deadline=None)
@given(st.integers(-(10**9), 10**9), st.sampled_from("+-*"), st.integers(-(10**9), 10**9), st.integers(1, 12))
def test_precedence_is_pythons(a, op, b, c):
    expression = f"{a}{op}{b}*{c}-{c}**2"
    assert evaluate(expression) == str(eval(expression))


@settings(max_examples=100, deadline=None)
@given(st.text(st.integers(0, 0x10FFFF).map(chr), max_size=60) | st.text("0123456789+-*/%(). ,$", max_size=40))
def test_any_text_is_a_value_or_a_tool_error(text):
    try:
        assert evaluate(text)
    except ToolError as e:
        assert str(e)
