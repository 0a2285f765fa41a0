"""The rewards of GSM8K: "terminal", the default, for the right answer; "agentr1" for the last number of every text.

`reward="terminal"` compares the answer that `agent_envs.rewards.math_answers` reads with the gold number, exactly.
`reward="agentr1"` follows Agent-R1, which follows verl's utils/reward_score/gsm8k.py.
"""

from __future__ import annotations

import re

from agent_envs.envs.answers import judged
from agent_envs.rewards.math_answers import extract_answer
from agent_envs.text_env import Outcome

REWARDS = ("terminal", "agentr1")
NO_NUMBER = "No number was found in the answer. Expected the final answer as a number after ####, like: #### 72"

_RUN = re.compile(r"-?[0-9.,]+")
_READ = 300  # characters at the end of a text


def judge(text: str, gold: str) -> Outcome:
    """Judge a final answer: reward 1 if it equals the gold number ("" if unknown), else 0."""
    answer = extract_answer(text)
    right = float(answer == gold)  # both in plain form
    said = NO_NUMBER if answer is None else f"The answer was read as {answer}."
    return judged(said, right, invalid=answer is None)


def score_agentr1(text: str, solution: str) -> float:
    """Score a text as released: 1.0 if its last number is written as the one behind a solution's ####, else 0.0.

    Of the last 300 characters the last run of digits, points and commas counts, a point alone excepted. No marker is
    read in them, so any text that ends with the number pays, the arguments of a tool call included; "1,234" never does.

    >>> score_agentr1("#### 18", "18"), score_agentr1("#### 18 (out of 20)", "18"), score_agentr1("It is 18.", "18")
    (1.0, 0.0, 0.0)
    """
    runs = [run for run in _RUN.findall(text[-_READ:]) if run != "."]
    golds = _RUN.findall(solution.rpartition("####")[2])  # none of a question of the user's own
    return float(bool(golds and runs) and runs[-1] == golds[0].replace(",", ""))
