"""The rewards of GSM8K: of a final answer, and the released one that looks at the last number of every text.

`reward="terminal"` compares the answer that `agent_envs.rewards.math_answers` reads with the gold number, exactly.
`reward="agentr1"` follows Agent-R1, which follows verl's utils/reward_score/gsm8k.py.
"""

from __future__ import annotations

import re
from fractions import Fraction

from agent_envs.rewards.math_answers import MAX_DIGITS, extract_answer, gold_number, tail_windows
from agent_envs.text_env import Outcome

__all__ = ["REWARDS", "judge", "last_number", "pay_last_number", "score_agentr1"]

REWARDS = ("terminal", "agentr1")
NO_NUMBER = "No number was found in the answer. Expected the final answer as a number after ####, like: #### 72"

_RUN = re.compile(r"-?[0-9.,]+")


def judge(text: str, gold: str) -> Outcome:
    """Judge a final answer: reward 1 if it equals the gold number ("" if unknown), else 0."""
    answer = extract_answer(text)
    right = float(answer == gold)  # both in plain form
    return Outcome(
        NO_NUMBER if answer is None else f"The answer was read as {answer}.",
        reward=right,
        terminated=True,
        invalid_action=answer is None,
        score=right,
        success=right == 1.0,
        components={"answer": right},
    )


def pay_last_number(outcome: Outcome, text: str, gold: str) -> Outcome:
    """Replace an outcome's reward with the released one."""
    outcome.reward = score_agentr1(text, gold) if gold else 0.0
    outcome.components = {"last_number": outcome.reward}
    return outcome


def last_number(text: str) -> str | None:
    """Return the last run of digits, commas and points, as the released scoring reads it: without commas, or None."""
    for window in tail_windows(text):
        for run in reversed(_RUN.findall(window)):
            number = run.replace(",", "").rstrip(".")
            if re.search("[0-9]", number[-MAX_DIGITS:]):
                return number
    return None


def score_agentr1(text: str, gold: str) -> float:
    """Score a text as released: 1.0 if its last number equals the gold number, else 0.0.

    No marker is read, so `#### 18 (out of 20)` is scored by its 20, and any text that ends with the right number pays,
    the arguments of a tool call included. Deviations: numbers are compared by value ("18.0" is 18) instead of as
    strings, and the whole text is read instead of its last 300 characters.

    >>> score_agentr1("#### 18", "18"), score_agentr1("#### 18 (out of 20)", "18")
    (1.0, 0.0)
    """
    number, gold_value = last_number(text), gold_number(gold)
    if number is None or len(number) > MAX_DIGITS or number.count(".") > 1 or number.startswith("-."):
        return 0.0
    return float(Fraction(number) == gold_value)
