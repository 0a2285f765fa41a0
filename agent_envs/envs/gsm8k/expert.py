"""The expert and the demonstrator of GSM8K: what to calculate next, correctly or with mistakes."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence

import numpy as np

from agent_envs.datasets.gsm8k.generated.problems import GeneratedTask
from agent_envs.datasets.gsm8k.generated.world import Operation
from agent_envs.datasets.gsm8k.rows import GSM8KTask
from agent_envs.errors import ToolError
from agent_envs.tools.calculator import evaluate

__all__ = ["annotated_steps", "demonstrated", "next_calculation", "worked_steps", "wrong_answer"]

_ANNOTATION = re.compile(r"<<([^<>=]{1,200})=[^<>]{0,200}>>")
_OPERATOR = re.compile(r"(?<=[0-9)%])\s*([-+*/])")


@functools.lru_cache(maxsize=1024)
def annotated_steps(solution: str) -> tuple[tuple[str, str], ...]:
    """Return the calculations that a GSM8K solution annotates as `<<3*4=12>>` with their values, if they have one."""
    steps = []
    for expression in _ANNOTATION.findall(solution):
        compact = "".join(expression.split())
        with contextlib.suppress(ToolError):
            steps.append((compact, evaluate(compact)))
    return tuple(steps)


def worked_steps(task: GSM8KTask | GeneratedTask) -> tuple[tuple[str, str], ...]:
    """Return the calculations of a task's solution and their results."""
    if isinstance(task, GeneratedTask):
        return tuple((operation.expression, str(operation.result)) for operation in task.operations)
    return annotated_steps(task.solution)


def next_calculation(task: GSM8KTask | GeneratedTask, observed: Sequence[str], steps_left: int) -> str | None:
    """Return the first calculation whose result has not been observed, or None if all have.

    With two steps left, the calculations that remain become one expression (real rows go on to the answer instead).
    """
    unseen = [step for step, result in worked_steps(task) if result not in observed]
    if steps_left == 2 and len(unseen) > 1 and isinstance(task, GeneratedTask):
        return _combined(task, observed)
    return unseen[0] if unseen else None


def _combined(task: GeneratedTask, observed: Sequence[str]) -> str:
    """Return one expression for the answer, with the results that have been observed as numbers."""
    parts: list[str] = []
    for operation in task.operations:
        whole = operation.op.join(_operands(operation, parts))
        parts.append(str(operation.result) if str(operation.result) in observed else f"({whole})")
    return whole


def _operands(operation: Operation, results: Sequence[str]) -> list[str]:
    """Return the two operands of an operation, taking those that earlier operations made from `results`."""
    pair = (operation.left, operation.right)
    return [str(operand.value) if operand.made_by is None else results[operand.made_by] for operand in pair]


def demonstrated(
    task: GSM8KTask | GeneratedTask, observed: Sequence[str], rng: np.random.Generator, noise: float
) -> str:
    """Return the next calculation from the results so far, with probability `noise` one with another operation."""
    step, wrong = len(observed), rng.random() < noise
    if isinstance(task, GeneratedTask):
        operation = task.operations[step]
        left, right = _operands(operation, observed)
        return f"{left}{_wrong_operator(left, operation.op, right, rng) if wrong else operation.op}{right}"
    expression = worked_steps(task)[step][0]
    return _OPERATOR.sub(lambda m: "+" if m[1] != "+" else "-", expression, count=1) if wrong else expression


def wrong_answer(answer: str, rng: np.random.Generator) -> str:
    """Return a wrong answer close to the right one."""
    return evaluate(f"{answer}+{int(rng.integers(1, 10))}")


def _wrong_operator(left: str, op: str, right: str, rng: np.random.Generator) -> str:
    choices = [other for other in "+-*" if other != op]
    if op != "/" and right.isdigit() and int(right) > 0 and left.isdigit() and int(left) % int(right) == 0:
        choices.append("/")
    return choices[int(rng.integers(len(choices)))]
