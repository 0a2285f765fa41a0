"""Scoring of GSM8K answers: a table of strings, the gold rows, and bounds on hostile texts.

1. The strict rule is first; then after ####, in a box, after "the answer is", the last number. Each rule has its table.
2. Numbers compare by value and exactly.
3. A gold solution scores 1.0, a perturbed one 0.0, on every real row.
"""

import json
import time

import pytest

from agent_envs.envs.gsm8k.reward import judge, score_agentr1
from agent_envs.errors import DataError
from agent_envs.rewards.math_answers import TAIL, extract_answer, gold_answer

RULES = {
    "strict": [
        ("#### 72", "72"),
        ("####72", "72"),  # no space
        ("#### -5", "-5"),
        ("72", "72"),  # alone
        ("#### 18\n#### 19", "19"),  # the last mark
        ("#### 007", "7"),
        ("9" * 100, "9" * 100),
    ],
    "after ####": [
        ("#### 18 dollars", "18"),  # unit behind
        ("#### **18**", "18"),  # bold
        ("#### 18</s>", "18"),
        ("#### 5 apples in 3 boxes", "5"),  # the first number after the mark
        ("#### 18 (since 3*6=18)", "18"),  # a number, then a remark
        ("#### x = 5", "5"),
        ("#### none\nbut 5", "5"),  # the line below
        ("#### 4 or\nso 5", "4"),
        ("#### $\n5", "5"),
        ("#### Step 1: 3 apples\nso \\boxed{7}", "7"),  # a heading is no mark
        ("3 and 4 #### ", "4"),  # nothing behind the mark
        ("#### 3 and the answer is 4", "3"),  # the order of places
    ],
    "in a box": [
        ("\\boxed{42}", "42"),
        ("\\boxed{\\text{18 apples}}", "18"),
        ("\\boxed{x = 9} and 5", "9"),
        ("\\boxed{5", "5"),  # not closed
        ("\\boxed{1} \\boxed{2} 3", "2"),  # the last box, not the last number
        ("\\boxed{3} and the answer is 4", "3"),
    ],
    "after a phrase": [
        ("the answer is 12 because 5+8=13", "12"),
        ("The answer is: **$18**", "18"),
        ("**Answer:** 18 of 20", "18"),
        ("Final answer: 7 (not 8)", "7"),
        ("The final answer is:\n\n18\nof 20", "18"),
        ("The answer is not easy: 18", "18"),
        ("The answer is 5. Check: 2+3 = 6. Then 9", "5"),
        ("A correct answer = 4 points, so 5", "5"),  # no phrase
    ],
    "the last number": [
        ("3 + 4 = 7 apples.", "7"),
        ("2\n5", "5"),
        ("12:30", "30"),
        ("between 3 and 1,2", "2"),  # no thousands
        ("from 200 to 300 400", "400"),  # two numbers
        ("no number", None),
        ("", None),
        ("...", None),
        ("٣", None),  # other digits are none
    ],
    "decimals and separators": [
        ("#### 1,234", "1234"),
        ("#### 1,234,567.50", "1234567.5"),
        ("#### 5.00", "5"),
        ("#### 5.", "5"),  # trailing point
        (".5", "0.5"),
        ("1e3", "1000"),
        ("1\u202f234", "1234"),  # narrow no-break space
        ("\\boxed{1\\,234}", "1234"),
        ("\\boxed{1{,}234}", "1234"),
        ("\\boxed{1,\\!234}", "1234"),
        ("#### 1 000 000", "1000000"),  # groups of three in a place
        ("#### 12 345 apples", "12345"),
        ("#### 1\u2009000\u2009000", "1000000"),
        ("#### 1 00 000", "1"),
        ("#### 5 1000", "5"),
    ],
    "signs": [
        ("#### −5", "-5"),  # the typographic minus
        ("it fell to -5", "-5"),
        ("#### - 5", "-5"),
        ("#### - $5", "-5"),
        ("####\n- 5 apples", "5"),  # a list's dash
        ("so:\n- 5 apples", "5"),
        ("10 - 5", "5"),  # a subtraction
        ("10 -5", "5"),
        ("10-5", "5"),
        ("x-5", "5"),  # a hyphen
    ],
    "units and currencies": [
        ("#### $5", "5"),
        ("#### \\$5", "5"),
        ("#### -$5", "-5"),
        ("#### -\\$5", "-5"),
        ("#### $-5", "-5"),
        ("He paid $1,200.", "1200"),
        ("#### 15%", "15"),
        ("25 cm^2", "25"),  # the unit's exponent
    ],
    "fractions": [
        ("#### 1/2", "0.5"),
        ("#### 10 / 4", "2.5"),
        ("#### 1/3", "1/3"),  # no decimal form
        ("#### 3/4, or 1 - 1/4", "0.75"),
        ("#### 1 1/2", "1.5"),
        ("#### 3\n 1/2", "3"),  # a number ends with its line
        ("#### 4\n/2", "4"),
        ("#### $\\frac{1}{2}$", "0.5"),
        ("\\boxed{-\\frac{3}{4}}", "-0.75"),
        ("\\boxed{1\\frac{1}{2}}", "1.5"),
        ("#### \\frac12", "0.5"),
        ("#### ½", "0.5"),
        ("#### 1½", "1.5"),
        ("#### 2 ¾ cups", "2.75"),
        ("#### 3/0 then", None),  # no such number
        ("5 apples. #### 3/0", None),  # and no earlier one instead
    ],
    "full width": [
        ("#### ４２", "42"),
        ("#### １，２３４．５", "1234.5"),
        ("#### １／２", "0.5"),
        ("#### ４２％", "42"),
    ],
    "scales": [
        ("#### 5 million", "5000000"),
        ("#### $2.5 million", "2500000"),
        ("#### 3 thousandths", "3"),
        ("#### 5 hundred-dollar bills", "5"),
    ],
    "calculations": [
        ("#### 12*7 = 84", "84"),
        ("#### (5 + 3) * 2 = 16", "16"),
        ("#### 4 - 5 = -1", "-1"),
        ("#### 5\n\n3+4 = 7", "5"),  # another line
        ("The answer is 3*4 = 12. Check: 2.", "12"),
        ("#### 2^3 = 8", "8"),
        ("\\boxed{\\sqrt{16} = 4}", "4"),
    ],
    "what is not read, nor an earlier number or a part instead": [
        ("8 or 2. \\boxed{2^3}", None),  # powers
        ("8 or 2. \\boxed{2^{10}}", None),
        ("\\boxed{2^{-3}}", None),
        ("\\boxed{1/2^3}", None),
        ("5^0.5", None),
        ("3 then 2 ^ 3", None),
        ("#### 2**3", None),
        ("4. \\boxed{\\sqrt{4}}", None),  # roots
        ("\\boxed{3\\sqrt{2}}", None),
        ("√4", None),
        ("\\boxed{144+1}", None),  # sums, differences
        ("#### 18-20", None),
        ("#### 18,8", None),  # neither thousands nor one number
        ("1. #### 1.000.000", None),  # points between groups
        ("v. 1.2.3", None),
        ("9" * 101, None),  # too long to be an answer
        ("#### " + "9" * 1000, None),
    ],
}


@pytest.mark.parametrize(("text", "number"), [case for cases in RULES.values() for case in cases])
def test_extract(text, number):
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
def test_score(text, gold, reward):
    outcome = judge(text, gold_answer(gold))
    assert (outcome.reward, outcome.success, outcome.terminated) == (reward, reward == 1.0, True)


RELEASED = [
    ("#### 18", "18", 1.0),
    ("#### 18 (of 20)", "18", 0.0),  # reads the last number only
    ('{"arguments": {"answer": "18"}}', "18", 1.0),  # pays for a call too
    ("18 . ", "18", 1.0),  # a point alone is no number
    ("18.", "18", 0.0),  # letter for letter
    ("1,800", "1800", 0.0),
    ("1800", "1,800", 1.0),  # only the gold number loses its commas
    ("18.0", "18", 0.0),
    ("18.0", "so it is\n#### 18.0", 1.0),
    ("18", "#### 18.0", 0.0),
    ("18 ,", "18", 0.0),
    ("18" + " " * 298, "18", 1.0),
    ("18" + " " * 300, "18", 0.0),  # 300 characters are read
    ("118" + " " * 298, "18", 1.0),  # also within a number
    ("1.2.3", "3", 0.0),
    ("none", "18", 0.0),
    ("-.", "18", 0.0),
    ("18", "", 0.0),  # no gold is known
]


@pytest.mark.parametrize(("text", "solution", "reward"), RELEASED)
def test_released_score(text, solution, reward):
    assert score_agentr1(text, solution) == reward


def test_a_gold_without_a_number_is_a_data_error():
    with pytest.raises(DataError, match="gold answer with a number, got 'none'"):
        gold_answer("none")


def test_every_gold_row_scores_one_and_a_perturbed_one_zero(data_dir):
    lines = (data_dir / "gsm8k" / "train_2000.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2000
    for line in lines:
        solution = json.loads(line)["answer"]
        body, _, raw = solution.rpartition("####")
        gold = gold_answer(solution)
        wrong = str(int(gold) + 1)
        assert gold == raw.strip().replace(",", "")
        assert judge(solution, gold).reward == 1.0 and score_agentr1(solution, gold) == float("," not in raw)
        assert judge(f"{body}#### {wrong}", gold).reward == score_agentr1(f"{body}#### {wrong}", gold) == 0.0
        for form in (f"\\boxed{{{gold}}}", f"So the answer is ${int(gold):,}.00.", f"She has **{gold}** apples."):
            assert judge(body + form, gold).reward == 1.0, (body, form)


HOSTILE = ["9", "1,", "1,234", "####", "#### ", "\\boxed{", "the answer is ", " ", "-", "1/", "$ ", "\\frac{", "{"]
HOSTILE += ["1 ", "1 234 ", "½", "1^", "2^2", "sqrt{", "1.000.", "4 million ", "answer:", "2 ^ 3", "√", "#", "3*4="]
HOSTILE += ["\\frac{1}{2}", "1 1/2 ", "5 million^", "1e", "1 1/", ".", "1.", "= 5", "5=", "3+", ",1", "answer is\n"]
HOSTILE += ["\\frac{1}{", "\x00", "😀", "１", "\\,1"]


@pytest.mark.parametrize("unit", HOSTILE)
def test_a_long_text_is_read_in_bounded_time(unit):
    text = unit * (200_000 // len(unit))
    for hostile in (text, "the answer is " + text):
        begin = time.process_time()
        extract_answer(hostile)
        score_agentr1(hostile, "5")
        assert time.process_time() - begin < 2.0


def test_a_number_is_not_cut_where_reading_begins():
    for characters in range(TAIL - 10, TAIL + 1):
        text = "the 12345" + "x" * characters
        number = "12345" if characters + 5 < TAIL else None
        assert extract_answer(text) == number
