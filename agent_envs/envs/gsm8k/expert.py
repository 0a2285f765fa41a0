"""The expert and the demonstrator of GSM8K: what to calculate next, correctly or with mistakes."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence

import numpy as np

from agent_envs.datasets.gsm8k.generated.problems import GeneratedTask
from agent_envs.datasets.gsm8k.rows import GSM8KTask
from agent_envs.errors import ToolError
from agent_envs.tools.calculator import evaluate

_ANNOTATION = re.compile(r"<<([^<>=]{1,200})=[^<>]{0,200}>>")
_OPERATOR = re.compile(r"(?<=[0-9)%])\s*([-+*/])")


@functools.lru_cache(maxsize=1024)
def worked_steps(solution: str) -> tuple[tuple[str, str], ...]:
    """Return the calculations that a solution annotates as `<<3*4=12>>` with their values, if they have one."""
    steps = []
    for expression in _ANNOTATION.findall(solution):
        compact = "".join(expression.split())
        with contextlib.suppress(ToolError):
            steps.append((compact, evaluate(compact)))
    return tuple(steps)


def next_calculation(task: GSM8KTask | GeneratedTask, observed: Sequence[str], steps_left: int) -> str | None:
    """Return the first calculation whose result has not been observed, or None if all have.

    With two steps left, the calculations that remain become one expression (real rows go on to the answer instead).
    """
    unseen = [calculation for calculation, result in worked_steps(task.solution) if result not in observed]
    if steps_left > 2 or len(unseen) < 2 or not isinstance(task, GeneratedTask):
        return unseen[0] if unseen else None
    results: list[str] = []  # of the operations so far: what was observed, or how to calculate it
    for step, (_, result) in enumerate(worked_steps(task.solution)):
        calculation = "".join(_calculation(task, step, results))
        results.append(result if result in observed else f"({calculation})")
    return calculation


def demonstrated(
    task: GSM8KTask | GeneratedTask, observed: Sequence[str], rng: np.random.Generator, noise: float
) -> str:
    """Return the next calculation from the results so far, with probability `noise` one with another operation."""
    step, wrong = len(observed), rng.random() < noise
    if not isinstance(task, GeneratedTask):
        calculation = worked_steps(task.solution)[step][0]
        return _OPERATOR.sub(lambda m: "-" if m[1] == "+" else "+", calculation, count=1) if wrong else calculation
    left, op, right = _calculation(task, step, observed)
    if wrong:
        divisible = left.isdigit() and right.isdigit() and int(right) > 0 and int(left) % int(right) == 0
        others = [other for other in ("+-*/" if divisible else "+-*") if other != op]
        op = others[rng.integers(len(others))]
    return f"{left}{op}{right}"


def wrong_answer(answer: str, rng: np.random.Generator) -> str:
    """Return a wrong answer close to the right one."""
    return evaluate(f"{answer}+{rng.integers(1, 10)}")


def _calculation(task: GeneratedTask, step: int, results: Sequence[str]) -> tuple[str, str, str]:
    """Return an operation with the results of earlier ones as they are given."""
    left, op, right = task.operations[step][:3]
    operands = [str(x.value) if x.made_by is None else results[x.made_by] for x in (left, right)]
    return operands[0], op, operands[1]
