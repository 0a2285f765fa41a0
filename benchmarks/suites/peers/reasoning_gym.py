"""Reasoning Gym: data sets of generated problems, each with a function that scores an answer."""

from __future__ import annotations

from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

IMPORT = "import reasoning_gym"
TASK = "gsm_symbolic: a generated word problem, and its score"
_ONE = "has no tools: a problem and one answer"
WHY = {
    "gymnasium_env": "is a data set, not an environment",
    "loop": _ONE,
    "tool_limit": _ONE,
    "program": _ONE,
    "hostile_calls": _ONE,
    "processed": "is no trainer",
}


class Played:
    """An item of the data set for a reset, and its score for a step."""

    def __init__(self) -> None:
        self.items = reasoning_gym.create_dataset("gsm_symbolic", size=1000, seed=0)
        self.item: Any = None

    def reset(self, seed: int) -> str:
        self.item = self.items[seed % 1000]
        return str(self.item["question"])

    def step(self, action: str) -> tuple[str, float, bool]:
        return "", float(self.items.score_answer(action, self.item)), True


def task() -> Played:
    return Played()


def action(number: int) -> str:
    return str(number)


def expert() -> tuple[int, int, str]:
    """Every generator's own answers, scored by itself; some give none with their items."""
    passed = played = count = 0
    faulty, silent = [], []
    for name in sorted(set(DATASETS) - {"composite"}):
        items = reasoning_gym.create_dataset(name, size=5, seed=0)
        scores = [items.score_answer(item["answer"], item) for item in items if item["answer"] is not None]
        if not scores:
            silent.append(name)
            continue
        count += 1
        played += len(scores)
        right = sum(score == 1.0 for score in scores)
        passed += right
        if right < len(scores):
            faulty.append(name)
    text = f"{count} generators, 5 items each, their own answers scored by themselves"
    text += f"; without an answer: {', '.join(silent)}" * bool(silent)
    return passed, played, text + f"; not full: {', '.join(faulty)}" * bool(faulty)
