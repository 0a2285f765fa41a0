"""ScienceWorld's tasks: the variations of each family, which rows of the processed data release name.

{"reward_model": {"ground_truth": {"task_name": "boil", "variation_idx": 3}}, "extra_info": {...}, ...}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_envs.datasets.fields import text_field, verl_row
from agent_envs.datasets.files import file_tasks
from agent_envs.errors import DataError
from agent_envs.files import table
from agent_envs.tasks import FileTasks

VARIATIONS: dict[str, int] = table(__package__, "scienceworld.json")
"""The families and how many variations each has."""


@dataclass(frozen=True, slots=True)
class ScienceTask:
    """A variation of a family."""

    task_id: str
    """`scienceworld/FAMILY:VARIATION`."""
    family: str
    variation: int


def science_task(family: str, variation: int) -> ScienceTask:
    """Return a variation as a task."""
    return ScienceTask(f"scienceworld/{family}:{variation}", family, variation)


def science_rows(data: str, split: str = "train") -> FileTasks[ScienceTask]:
    """Return the tasks of a split's rows; arguments and errors are those of `file_tasks`."""
    return file_tasks(data, split, _parse_row, task="scienceworld", suffixes=(".parquet", ".jsonl"))


def _parse_row(row: Any, where: str, task_id: str) -> ScienceTask:
    named = verl_row(row, where, "scienceworld").extra
    family, variation = text_field(named, "task_name", where), named.get("variation_idx")
    if family not in VARIATIONS or type(variation) is not int or not 0 <= variation < VARIATIONS[family]:
        raise DataError(f"{where}: ScienceWorld has no task {family[:80]!r} with the variation {variation!r:.20}")
    return science_task(family, variation)
