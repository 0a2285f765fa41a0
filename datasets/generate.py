"""The tasks that `agentr1 generate TASK` knows: generated tasks as files in a released format."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_envs.checks import choice
from agent_envs.datasets.alfworld.generate import generate_alfworld
from agent_envs.datasets.data_dir import expanded
from agent_envs.datasets.papersearch.generate import generate_papersearch
from agent_envs.datasets.webshop.generate import generate_webshop
from agent_envs.errors import ConfigError, did_you_mean

GENERATORS: dict[str, Callable[..., Path]] = {
    "alfworld": generate_alfworld,
    "papersearch": generate_papersearch,
    "webshop": generate_webshop,
}
"""Each task's function: (folder to write, n, **options) -> folder written."""


def generate(task: str, out: str | Path, n: int = 1000, **options: Any) -> Path:
    """Write `n` generated tasks as files in the released format, and return the folder written.

    Args:
        task: The task's name, like "alfworld".
        out: The folder to write.
        n: Number of tasks.
        **options: Further options of the task, such as `split`, `size` and `seed`; None means the default.

    Raises:
        ConfigError: There is no such task, or it has no such option.
        DataError: The folder holds something else or cannot be written.
    """
    write = GENERATORS[choice("task", task, GENERATORS)]
    options = {name: value for name, value in options.items() if value is not None}
    parameters = inspect.signature(write).parameters
    for name in options:
        if name not in parameters:
            raise ConfigError(f"generated {task} has no option --{name}.{did_you_mean(name, parameters)}")
    return write(expanded(out), n, **options)
