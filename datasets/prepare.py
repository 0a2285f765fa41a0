"""The tasks that `agentr1 prepare TASK` knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from agent_envs.checks import choice
from agent_envs.datasets.alfworld.prepare import RELEASES, prepare_alfworld
from agent_envs.datasets.alfworld.rows import RELEASED_GAMES
from agent_envs.datasets.data_dir import expanded, user_path
from agent_envs.datasets.download import hub_source
from agent_envs.datasets.gsm8k.prepare import prepare_gsm8k
from agent_envs.datasets.papersearch.prepare import prepare_papers
from agent_envs.datasets.qa.prepare import prepare_qa
from agent_envs.datasets.verl_rows import verl_row
from agent_envs.datasets.webshop.prepare import LINKS, prepare_webshop
from agent_envs.errors import ConfigError, DataError
from agent_envs.tasks import read_rows

__all__ = ["FROM", "PREPARERS", "SOURCES", "prepare"]

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

FROM = ("huggingface", "modelscope")
"""What `--source` takes."""

_MODELSCOPE = "https://modelscope.cn/datasets/Melmaphother/Agent-R1-data"
_RELEASED = {
    "alfworld": "alfworld",
    "papersearch": "pasa",
    "webshop": "webshop_full",
    **dict.fromkeys(("hotpotqa", "2wiki", "musique"), "hotpotqa"),
}
"""The folder of each task in Agent-R1's data release."""


def prepare(
    task: str, from_path: str | None = None, out: str | Path | None = None, *, source: str | None = None
) -> Path:
    """Put a task's official data where `data="official"` finds it, and return the folder written.

    Args:
        task: The task's name, like "gsm8k".
        from_path: Files to take the data from; None fetches them.
        out: The folder to write instead of the one in `data_dir()`.
        source: "modelscope" for Agent-R1's data release in `from_path`: its rows are checked, and its own folder is
            returned, for `data=` (of WebShop for `goals=`); nothing is copied but games that are packed. "huggingface"
            for the data set on the hub. None for the original, wherever it is.

    Raises:
        ConfigError: There is no such task, or its data is not there.
        DataError: The data cannot be fetched, read or written.
    """
    prepare_task = PREPARERS[choice("task", task, PREPARERS)]
    if source is not None:
        choice("--source", source, FROM)
    if source == "huggingface" and "huggingface.co" not in SOURCES[task]:
        raise ConfigError(f"{task} is not on Hugging Face but at {SOURCES[task]}; leave out --source")
    if source == "modelscope":
        folder = _release_folder(task, from_path)
        if task == "alfworld" and not (folder / RELEASED_GAMES).is_dir():
            return prepare_task(str(folder), None if out is None else expanded(out))
        return folder
    return prepare_task(from_path, None if out is None else expanded(out))


def _release_folder(task: str, from_path: str | None) -> Path:
    """Return a task's folder of the data release, every row of which has been read."""
    if task not in _RELEASED:
        raise ConfigError(f"Agent-R1's data release is read for {', '.join(_RELEASED)}; for {task}, leave out --source")
    if from_path is None:
        raise ConfigError(f"download {_MODELSCOPE}, and pass its folder: --source modelscope --from FOLDER")
    given = user_path(from_path)
    folder = next((each for each in (given / _RELEASED[task], given) if [*each.glob("*.parquet")]), None)
    if folder is None:
        raise DataError(f"{from_path}: expected the release, or its folder {_RELEASED[task]}/ with files SPLIT.parquet")
    for file in sorted(folder.glob("*.parquet")):
        for row, where in read_rows(file):
            verl_row(row, where)
    return folder
