"""The rewards of GSM8K: for the right final answer, and the released one for the last number of every text.

`reward="terminal"` compares the answer that `agent_envs.rewards.math_answers` reads with the gold number, exactly.
`reward="agentr1"` follows Agent-R1, which follows verl's utils/reward_score/gsm8k.py.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agent_envs.envs.answers import judged
from agent_envs.rewards.math_answers import extract_answer, gold_answer, plain, tail
from agent_envs.text_env import Outcome

__all__ = ["REWARDS", "judge", "score_agentr1"]

REWARDS = ("terminal", "agentr1")
NO_NUMBER = "No number was found in the answer. Expected the final answer as a number after ####, like: #### 72"

_RUN = re.compile(r"-?[0-9.,]+")


def judge(text: str, gold: str) -> Outcome:
    """Judge a final answer: reward 1 if it equals the gold number ("" if unknown), else 0."""
    answer = extract_answer(text)
    right = float(answer == gold)  # both in plain form
    said = NO_NUMBER if answer is None else f"The answer was read as {answer}."
    return judged(said, right, invalid=answer is None)


def score_agentr1(text: str, gold: str) -> float:
    """Score a text as released: 1.0 if its last number equals the gold number ("" if unknown), else 0.0.

    No marker is read, so `#### 18 (out of 20)` is scored by its 20, and any text that ends with the right number pays,
    the arguments of a tool call included. Deviations: numbers are compared by value ("18.0" is 18) instead of as
    strings, and more than the last 300 characters are read.

    >>> score_agentr1("#### 18", "18"), score_agentr1("#### 18 (out of 20)", "18")
    (1.0, 0.0)
    """
    runs = [run for run in _RUN.findall(tail(text)) if run.strip("-.,")]
    number = runs[-1].replace(",", "").rstrip(".") if runs else ""
    readable = 0 < len(number) <= 100 and number.count(".") <= 1
    return float(bool(gold) and readable and plain(Fraction(number)) == gold_answer(gold))
