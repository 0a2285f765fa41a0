"""The data sets that `agentr1 generate TASK` writes: generated tasks in a released file format."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_envs.datasets.alfworld.generate import generate_alfworld
from agent_envs.datasets.papersearch.generate import generate_papersearch
from agent_envs.datasets.webshop.generate import generate_webshop
from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["GENERATORS", "generate"]

GENERATORS: dict[str, Callable[..., Path]] = {
    "alfworld": generate_alfworld,
    "papersearch": generate_papersearch,
    "webshop": generate_webshop,
}
"""What writes each task's files: (out, n, **options) -> folder written."""


def generate(task: str, out: str | Path, n: int = 1000, **options: Any) -> Path:
    """Write `n` generated tasks as files in the released format.

    Args:
        task: The task's name, like "alfworld".
        out: The folder to write.
        n: Number of tasks.
        **options: What the task's writer takes besides, such as `split`, `size` and `seed`; None means its default.

    Returns:
        The folder written.

    Raises:
        ConfigError: There is no such task, or it does not take an option.
        DataError: The folder holds something else or cannot be written.
    """
    if task not in GENERATORS:
        raise ConfigError(f"there is no writer of generated tasks for {task!r}.{did_you_mean(task, GENERATORS)}")
    writer = GENERATORS[task]
    given = {name: value for name, value in options.items() if value is not None}
    taken = inspect.signature(writer).parameters
    for name in given:
        if name not in taken:
            raise ConfigError(f"generated {task} takes no --{name}.{did_you_mean(name, taken)}")
    try:
        folder = Path(out).expanduser()
    except RuntimeError as e:
        raise ConfigError(f"{str(out)[:100]!r} is no usable path: {e}") from e
    return writer(folder, n, **given)
