"""Real GSM8K rows: the released jsonl, the hub's parquet, folders of either, and what `agentr1 prepare gsm8k` fetched.

{"question": "Weng earns $12 an hour ...", "answer": "Weng earns 12/60 = $<<12/60=0.2>>0.2 ...\\n#### 10"}

In verl's layout (`agent_envs.datasets.fields`) both are in `extra_info`; the prompt adds what is asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.fields import as_object, text_field, verl_row
from agent_envs.datasets.files import file_tasks
from agent_envs.errors import DataError
from agent_envs.problem_env import Problem
from agent_envs.rewards.math_answers import gold_answer
from agent_envs.tasks import FileTasks, is_verl_row

SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class GSM8KTask(Problem):
    """One real row, `gsm8k/SPLIT/INDEX`; its answer is the gold number in plain form, from what follows `####`."""

    solution: str
    """The row's answer: a worked solution that ends with `#### N`."""


def gsm8k_rows(data: str | os.PathLike[str], split: str = "train") -> FileTasks[GSM8KTask]:
    """Return the real rows of a split; arguments and errors are those of `file_tasks`."""
    return file_tasks(data, split, parse_row, task="gsm8k", suffixes=SUFFIXES)


def parse_row(row: Any, where: str, task_id: str) -> GSM8KTask:
    """Return a row as a task; DataError says what is wrong with it and `where` it is."""
    fields = verl_row(row, where, "gsm8k").extra if is_verl_row(row) else row
    fields = as_object(fields, "an object with 'question' and 'answer'", where)
    question, solution = text_field(fields, "question", where), text_field(fields, "answer", where)
    _, marker, gold = solution.rpartition("####")
    if not marker:
        raise DataError(f"{where}: the answer does not end with '#### N': {solution[-60:]!r}")
    try:
        answer = gold_answer(gold)
    except DataError as e:
        raise DataError(f"{where}: there is no number after '####': {gold[:60]!r}") from e
    return GSM8KTask(task_id, question, answer, solution)
