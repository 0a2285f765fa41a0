r"""Released rows of mathematics, by the path of their files: DAPO-Math-17k, AIME, MATH.

{"prompt": [{"role": "user", "content": "..."}], "reward_model": {"ground_truth": "34"}}      DAPO-Math-17k
{"problem": "...", "answer": "204"}                                  AIME 2024 and 2025; also "Problem" and "Answer"
{"problem": "...", "solution": "... \\boxed{\\frac{1}{2}} ..."}      MATH
{"question": "...", "answer": "..."}                                 any other
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.fields import answer_field, as_object, keys_of, text_field, verl_row
from agent_envs.datasets.files import file_tasks
from agent_envs.errors import DataError
from agent_envs.problem_env import Problem
from agent_envs.rewards.tagged import boxed
from agent_envs.tasks import FileTasks, is_verl_row

SUFFIXES = (".jsonl", ".parquet", ".json")
# Words that DAPO-Math-17k puts around every problem, and that contradict the formats here.
_BEFORE = "The last line of your response should be"
_AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


@dataclass(frozen=True, slots=True)
class MathRow(Problem):
    """One released row, `mathcode/SPLIT/INDEX`; its answer is the gold one as it is written, LaTeX included."""


def math_rows(data: str | os.PathLike[str], split: str = "train") -> FileTasks[MathRow]:
    """Return the rows of a split; arguments and errors are those of `file_tasks`."""
    return file_tasks(data, split, parse_row, task="mathcode", suffixes=SUFFIXES)


def parse_row(row: Any, where: str, task_id: str) -> MathRow:
    """Return a row as a task; DataError says what is wrong with it and `where` it is."""
    if is_verl_row(row):
        named = verl_row(row, where, "mathcode")
        question = named.question
        if question.startswith(_BEFORE):
            question = question.partition("\n\n")[2].removesuffix(_AFTER)
        answer = answer_field({"ground_truth": named.ground_truth}, "ground_truth", where)
        return MathRow(task_id, question.strip(), answer.strip())
    fields = as_object(row, "an object with a problem and its answer", where)
    asked = next((key for key in ("problem", "Problem", "question") if key in fields), "problem")
    question = text_field(fields, asked, where)
    for key in ("answer", "Answer"):
        if key in fields:
            return MathRow(task_id, question, answer_field(fields, key, where).strip())
    answer = boxed(text_field(fields, "solution", where)) or ""
    if not answer:
        raise DataError(f"{where}: there is no answer, and no \\boxed{{}} in the solution (keys: {keys_of(fields)})")
    return MathRow(task_id, question, answer)
