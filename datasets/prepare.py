"""The tasks that `agentr1 prepare TASK` knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from agent_envs.datasets.alfworld.prepare import prepare_alfworld
from agent_envs.datasets.gsm8k.prepare import prepare_gsm8k
from agent_envs.datasets.papersearch.prepare import prepare_papers
from agent_envs.datasets.qa.prepare import prepare_qa
from agent_envs.datasets.qa.rows import DATASETS
from agent_envs.datasets.webshop.prepare import prepare_webshop
from agent_envs.errors import ConfigError, DataError, did_you_mean

__all__ = ["PREPARERS", "prepare"]

PREPARERS: dict[str, Callable[[str | None, Path | None], Path]] = {
    "alfworld": prepare_alfworld,
    "gsm8k": prepare_gsm8k,
    "papersearch": prepare_papers,
    "webshop": prepare_webshop,
    **{name: functools.partial(prepare_qa, name) for name in DATASETS},
}
"""What fetches or converts each task's data: (path to take it from or None, folder to write or None) -> folder."""


def prepare(task: str, from_path: str | None = None, out: str | Path | None = None) -> Path:
    """Put a task's official data where `data="official"` finds it.

    Args:
        task: The task's name, like "gsm8k".
        from_path: Files to take the data from; None fetches them.
        out: The folder to write instead of the one in `data_dir()`.

    Returns:
        The folder written.

    Raises:
        ConfigError: There is no such task.
        DataError: The data cannot be fetched or read.
    """
    if task not in PREPARERS:
        raise ConfigError(f"there is no data to prepare for {task!r}.{did_you_mean(task, PREPARERS)}")
    try:
        folder = None if out is None else Path(out).expanduser()
    except RuntimeError as e:
        raise DataError(f"{str(out)[:100]!r} is no usable path: {e}") from e
    return PREPARERS[task](from_path, folder)
