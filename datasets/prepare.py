"""The tasks that `agentr1 prepare TASK` knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from agent_envs.checks import choice
from agent_envs.datasets.alfworld.prepare import RELEASES, prepare_alfworld
from agent_envs.datasets.data_dir import expanded
from agent_envs.datasets.download import hub_source
from agent_envs.datasets.gsm8k.prepare import prepare_gsm8k
from agent_envs.datasets.papersearch.prepare import prepare_papers
from agent_envs.datasets.qa.prepare import prepare_qa
from agent_envs.datasets.webshop.prepare import LINKS, prepare_webshop

__all__ = ["PREPARERS", "SOURCES", "prepare"]

PREPARERS: dict[str, Callable[[str | None, Path | None], Path]] = {
    "alfworld": prepare_alfworld,
    "gsm8k": prepare_gsm8k,
    "papersearch": prepare_papers,
    "webshop": prepare_webshop,
    **{name: functools.partial(prepare_qa, name) for name in ("hotpotqa", "2wiki", "musique")},
}
"""Each task's function: (path to take the data from or None, folder to write or None) -> folder written."""

SOURCES: dict[str, str] = {
    "alfworld": RELEASES,
    "webshop": LINKS,
    **{
        name: f"https://huggingface.co/datasets/{hub_source(name)[0]}"
        for name in PREPARERS
        if name not in ("alfworld", "webshop")
    },
}
"""Where each task's data is released."""


def prepare(task: str, from_path: str | None = None, out: str | Path | None = None) -> Path:
    """Put a task's official data where `data="official"` finds it, and return the folder written.

    Args:
        task: The task's name, like "gsm8k".
        from_path: Files to take the data from; None fetches them.
        out: The folder to write instead of the one in `data_dir()`.

    Raises:
        ConfigError: There is no such task.
        DataError: The data cannot be fetched, read or written.
    """
    return PREPARERS[choice("task", task, PREPARERS)](from_path, None if out is None else expanded(out))
