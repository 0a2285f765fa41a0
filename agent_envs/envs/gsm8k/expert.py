"""The experts and demonstrators of GSM8K: what to calculate next, rightly or with mistakes."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np

from agent_envs.datasets.gsm8k.generated.problems import GeneratedTask
from agent_envs.datasets.gsm8k.rows import GSM8KTask
from agent_envs.errors import ToolError
from agent_envs.rewards.math_answers import extract_answer
from agent_envs.tools.calculator import evaluate

__all__ = ["annotated_steps", "combined", "demonstrated", "worked_steps", "wrong_answer"]

_ANNOTATION = re.compile(r"<<([^<>=]{1,200})=[^<>]{0,200}>>")
_OPERATOR = re.compile(r"(?<=[0-9)%])\s*([-+*/])")


@functools.lru_cache(maxsize=1024)
def annotated_steps(solution: str) -> tuple[tuple[str, str], ...]:
    """The calculations that a GSM8K solution annotates and their values; those that are no arithmetic are left out.

    >>> annotated_steps("He has 3 * 4 = <<3 * 4=12>>12 apples and <<x=2>>2 pears.\\n#### 12")
    (('3*4', '12'),)
    """
    steps = []
    for expression in _ANNOTATION.findall(solution):
        compact = "".join(expression.split())
        try:
            steps.append((compact, evaluate(compact)))
        except ToolError:
            continue
    return tuple(steps)


def worked_steps(task: GSM8KTask | GeneratedTask) -> tuple[tuple[str, str], ...]:
    """The calculations of a task's solution and their results."""
    if isinstance(task, GeneratedTask):
        return tuple((operation.expression, str(operation.result)) for operation in task.operations)
    return annotated_steps(task.solution)


def combined(task: GeneratedTask, seen: Sequence[str]) -> str:
    """One expression for the answer, in which the results that have been seen stand as numbers."""
    parts: list[str] = []
    for operation in task.operations:
        sides = [
            parts[side.made_by] if side.made_by is not None else str(side.value)
            for side in (operation.left, operation.right)
        ]
        whole = f"{sides[0]}{operation.op}{sides[1]}"
        parts.append(str(operation.result) if str(operation.result) in seen else f"({whole})")
    return whole


def demonstrated(
    task: GSM8KTask | GeneratedTask, observed: Sequence[str], rng: np.random.Generator, noise: float
) -> str:
    """The next calculation of a demonstrator who keeps the operands and, with probability `noise`, mistakes the sign.

    Args:
        task: The task.
        observed: The results so far, which are carried on even where they are wrong.
        rng: Source of the mistakes.
        noise: Probability of a mistake.
    """
    done = len(observed)
    if isinstance(task, GeneratedTask):
        operation = task.operations[done]
        sides = (operation.left, operation.right)
        left, right = (str(q.value) if q.made_by is None else observed[q.made_by] for q in sides)
        op = _wrong_operator(left, operation.op, right, rng) if rng.random() < noise else operation.op
        return f"{left}{op}{right}"
    expression = worked_steps(task)[done][0]
    if rng.random() < noise:
        return _OPERATOR.sub(lambda m: "+" if m[1] != "+" else "-", expression, count=1)
    return expression


def wrong_answer(answer: str, rng: np.random.Generator) -> str:
    """Another number than the answer, close to it."""
    number = extract_answer(answer) or "0"
    return evaluate(f"{number}+{int(rng.integers(1, 10))}")


def _wrong_operator(left: str, op: str, right: str, rng: np.random.Generator) -> str:
    choices = [other for other in "+-*" if other != op]
    if op != "/" and right.isdigit() and int(right) > 0 and left.isdigit() and int(left) % int(right) == 0:
        choices.append("/")
    return choices[int(rng.integers(len(choices)))]
