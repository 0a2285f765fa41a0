"""Where the reward of question answering is decided: the scores of the final answer, and the released format reward.

Matching is in `agent_envs.rewards.short_answers`; `qa_format` follows Agent-R1's qa_em_and_format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from agent_envs.rewards.short_answers import exact_match, substring_match

REWARDS = ("em", "f1", "qa_format", "sub_em")

_TURN = re.compile(r"<think>.*?</think>\s*<tool_call>.*?</tool_call>\s*", re.DOTALL)
_LAST_TURN = re.compile(r"<think>.*?</think>.*<answer>(?P<answer>.*?)</answer>\s*", re.DOTALL)
_TAGS = ("think", "tool_call", "answer")


def answer_scores(answer: str, golds: Sequence[str], f1: Callable[[str, Sequence[str]], float]) -> dict[str, float]:
    """Return em, f1 and sub_em of a final answer, each from 0 to 1; `f1` is the data set's own."""
    em = exact_match(answer, golds) if answer else 0.0
    return {"em": em, "f1": f1(answer, golds), "sub_em": substring_match(answer, golds)}


def qa_format(turns: Sequence[str], golds: Sequence[str], text: str | None = None) -> float:
    """Return the released reward of a whole episode, from -1 to 1: `-1 + format + (answer if format >= 0.5)`.

    format: 0.5 for each well-formed turn `<think>...</think><tool_call>...</tool_call>` and 0.5 if the last turn is
    `<think>...</think>...<answer>...</answer>`, at most 1. answer: 1 if a gold is a substring of the answer, else 0.2
    if one is a substring of the whole text, else 0. The release logs this substring match as its exact match.

    The turns are the policy's texts; `text` is all text of the episode, tool results included (default: the turns).

    >>> search = '<think>Where?</think><tool_call>{"name": "search"}</tool_call>'
    >>> qa_format([search, "<think>So.</think><answer>in Paris</answer>"], ["Paris"])
    1.0
    """
    last = turns[-1] if turns else ""
    ending = _LAST_TURN.fullmatch(last.strip()) if _single_tags(last, "think", "answer") else None
    calls = sum(_single_tags(turn, "think", "tool_call") and bool(_TURN.fullmatch(turn.strip())) for turn in turns)
    form = min(1.0, 0.5 * calls + 0.5 * (ending is not None))
    if form < 0.5:
        return -1.0 + form
    answer = ending["answer"] if ending else ""
    if answer and substring_match(answer, golds):
        return form
    return -1.0 + form + 0.2 * substring_match("\n".join(turns) if text is None else text, golds)


def _single_tags(turn: str, *names: str) -> bool:
    """Return whether the turn opens and closes each of these tags once and none of the others."""
    return all(turn.count(f"<{tag}>") == turn.count(f"</{tag}>") == int(tag in names) for tag in _TAGS)
