"""Scoring of GSM8K answers: a table of strings, the gold rows, and bounds on hostile texts.

1. The order is: after ####, in a box, after "the answer is", the last number.
2. Numbers compare by value and exactly.
3. A gold solution scores 1.0, a perturbed one 0.0, on every real row.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from agent_envs.envs.gsm8k.reward import last_number, score_agentr1
from agent_envs.errors import DataError
from agent_envs.rewards.math_answers import extract_answer, gold_answer, score

EXTRACTED = [
    ("#### 72", "72"),
    ("####72", "72"),  # no space
    ("#### 1,234", "1234"),  # thousands
    ("#### 1,234,567.50", "1234567.5"),
    ("#### $5", "5"),  # currency
    ("#### \\$5", "5"),  # currency in LaTeX
    ("#### 5.00", "5"),  # a decimal that is whole
    ("#### 5.", "5"),  # trailing point
    ("#### -5", "-5"),
    ("#### −5", "-5"),  # the typographic minus
    ("#### -$5", "-5"),
    ("#### $-5", "-5"),
    ("#### 15%", "15"),  # percent is a unit
    ("#### 18 dollars", "18"),  # unit behind
    ("#### **18**", "18"),  # bold
    ("#### 5 apples in 3 boxes", "5"),  # the first number after the mark
    ("#### 12*7 = 84", "84"),  # the result of a calculation
    ("#### (5 + 3) * 2 = 16", "16"),
    ("#### x = 5", "5"),
    ("#### 18 (since 3*6=18)", "18"),  # a number, then a remark
    ("#### 1/2", "0.5"),
    ("#### 10 / 4", "2.5"),
    ("#### 1 1/2", "1.5"),  # mixed number
    ("#### $\\frac{1}{2}$", "0.5"),
    ("#### \\frac12", "0.5"),
    ("#### 1/3", "1/3"),  # no decimal form
    ("#### 18</s>", "18"),
    ("#### 18\n#### 19", "19"),  # the last mark
    ("#### none\nbut 5", "5"),  # the line below
    ("#### 4 or\nso 5", "4"),
    ("#### Step 1: 3 apples\nso \\boxed{7}", "7"),  # a heading is no mark
    ("3 and 4 #### ", "4"),  # nothing behind the mark
    ("#### 3/0 then", None),  # no such number
    ("#### ４２", "42"),  # full width
    ("#### １，２３４．５", "1234.5"),
    ("#### １／２", "0.5"),
    ("#### ４２％", "42"),
    ("#### 5 million", "5000000"),  # scales
    ("#### $2.5 million", "2500000"),
    ("#### 3 thousandths", "3"),
    ("#### 5 hundred-dollar bills", "5"),
    ("#### 1 000 000", "1000000"),  # groups of three behind a mark
    ("#### 12 345 apples", "12345"),
    ("#### 1\u2009000\u2009000", "1000000"),
    ("#### 1 00 000", "1"),
    ("#### 5 1000", "5"),
    ("from 200 to 300 400", "400"),  # elsewhere they are two numbers
    ("#### 1.000.000", "1000000"),  # points between groups
    ("#### 1.000", "1"),
    ("#### 1½", "1.5"),
    ("#### 2 ¾ cups", "2.75"),
    ("#### ½", "0.5"),
    ("#### - 5", "-5"),
    ("#### - $5", "-5"),
    ("####\n- 5 apples", "5"),  # a list's dash
    ("so:\n- 5 apples", "5"),
    ("#### 4 - 5 = -1", "-1"),
    ("#### 3\n 1/2", "3"),  # a number ends with its line
    ("#### 4\n/2", "4"),
    ("#### $\n5", "5"),
    ("\\boxed{2^3}", "8"),  # powers are worked out
    ("\\boxed{2^{10}}", "1024"),
    ("\\boxed{1/2^3}", "0.125"),
    ("#### 2**3", "8"),
    ("#### 2^3 = 8", "8"),
    ("\\boxed{2^{-3}}", None),  # other powers and roots are no number
    ("\\boxed{5^0.5}", None),
    ("\\boxed{99999^99}", None),
    ("\\boxed{\\sqrt{4}}", None),
    ("\\boxed{3\\sqrt{2}}", None),
    ("√4", None),
    ("\\boxed{\\sqrt{16} = 4}", "4"),
    ("25 cm^2", "25"),  # the unit's exponent
    ("\\boxed{42}", "42"),
    ("\\boxed{\\text{18 apples}}", "18"),
    ("\\boxed{-\\frac{3}{4}}", "-0.75"),
    ("\\boxed{1\\,234}", "1234"),
    ("\\boxed{1{,}234}", "1234"),
    ("\\boxed{x = 9} and 5", "9"),
    ("\\boxed{5", "5"),  # not closed
    ("\\boxed{1} \\boxed{2} 3", "2"),  # the last box, not the last number
    ("the answer is 12 because 5+8=13", "12"),
    ("The answer is 3*4 = 12. Check: 2.", "12"),
    ("The answer is: **$18**", "18"),
    ("**Answer:** 18 of 20", "18"),
    ("Final answer: 7 (not 8)", "7"),
    ("The answer is not easy: 18", "18"),
    ("The answer is 5. Check: 2+3 = 6. Then 9", "5"),
    ("#### 3 and the answer is 4", "3"),  # the order of marks
    ("\\boxed{3} and the answer is 4", "3"),
    ("3 + 4 = 7 apples.", "7"),
    ("He paid $1,200.", "1200"),
    ("10 - 5", "5"),  # a subtraction
    ("10-5", "5"),
    ("it fell to -5", "-5"),
    ("x-5", "5"),  # a hyphen
    ("between 3 and 1,2", "2"),  # no thousands
    ("12:30", "30"),
    ("1e3", "1000"),
    (".5", "0.5"),
    ("1\u202f234", "1234"),  # narrow no-break space
    ("A correct answer = 4 points, so 5", "5"),  # no phrase
    ("2\n5", "5"),
    ("no number", None),
    ("", None),
    ("...", None),
    ("9" * 1000, None),  # too long to be an answer
    ("٣", None),  # other digits are none
]


@pytest.mark.parametrize(("text", "number"), EXTRACTED)
def test_extract(text: str, number: str | None) -> None:
    assert extract_answer(text) == number


SCORED = [
    ("5.00", "5", 1.0),
    ("5", "5.0", 1.0),
    ("$1,000", "1000", 1.0),
    ("0.5", "1/2", 1.0),
    ("#### 1/3", "0.3333", 0.0),  # exact
    ("5.0000001", "5", 0.0),
    ("10000000000000001", "10000000000000000", 0.0),  # past the floats
    ("-5", "5", 0.0),
    ("nothing", "5", 0.0),
    ("5", "She has 2+3=<<2+3=5>>5.\n#### 5", 1.0),  # the gold may be a solution
]


@pytest.mark.parametrize(("text", "gold", "reward"), SCORED)
def test_score(text: str, gold: str, reward: float) -> None:
    assert score(text, gold) == reward


RELEASED = [
    ("#### 18", "18", 1.0),
    ("#### 18 (of 20)", "18", 0.0),  # reads the last number only
    ('{"arguments": {"answer": "18"}}', "18", 1.0),  # pays for a call too
    ("18.", "18", 1.0),
    ("1,800", "1800", 1.0),
    ("18.0", "18", 1.0),  # by value
    ("1.2.3", "3", 0.0),
    ("none", "18", 0.0),
    ("-.", "18", 0.0),
]


@pytest.mark.parametrize(("text", "gold", "reward"), RELEASED)
def test_released_score(text: str, gold: str, reward: float) -> None:
    assert score_agentr1(text, gold) == reward


def test_a_gold_without_a_number_is_a_data_error() -> None:
    for function in (lambda: score("5", "none"), lambda: score_agentr1("5", "none"), lambda: gold_answer("none")):
        with pytest.raises(DataError, match="gold answer with a number, got 'none'"):
            function()


def test_every_gold_row_scores_one_and_a_perturbed_one_zero(data_dir: Path) -> None:
    lines = (data_dir / "gsm8k" / "train_2000.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2000
    for line in lines:
        solution = json.loads(line)["answer"]
        body, _, raw = solution.rpartition("####")
        gold = gold_answer(solution)
        wrong = str(int(gold) + 1)
        assert gold == raw.strip().replace(",", "")
        assert score(solution, gold) == score_agentr1(solution, gold) == 1.0
        assert score(f"{body}#### {wrong}", gold) == score_agentr1(f"{body}#### {wrong}", gold) == 0.0
        for form in (f"\\boxed{{{gold}}}", f"So the answer is ${int(gold):,}.00.", f"She has **{gold}** apples."):
            assert score(body + form, gold) == 1.0, (body, form)


HOSTILE = [
    "9",
    "1,",
    "1,234",
    "####",
    "#### ",
    "\\boxed{",
    "the answer is ",
    " ",
    "-",
    "1/",
    "$ ",
    "\\frac{",
    "{",
    "1 ",
]
HOSTILE += ["1 234 ", "½", "1^", "2^2", "sqrt{", "1.000.", "4 million "]
HOSTILE += ["1e", "1 1/", ".", "1.", "= 5", "5=", "3+", ",1", "answer is\n", "\\frac{1}{", "\x00", "😀", "１", "\\,1"]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_megabyte_is_read_in_bounded_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    for hostile in (text, "the answer is " + text):
        begin = time.process_time()
        extract_answer(hostile)
        score_agentr1(hostile, "5")
        assert time.process_time() - begin < 2.0


def test_a_number_is_not_cut_between_windows() -> None:
    for tail in range(4080, 4110):
        assert extract_answer("the 12345" + "x" * tail) == "12345"
        assert last_number("the 12345" + "x" * tail) == "12345"
