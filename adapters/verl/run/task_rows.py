"""Dataset rows for verl: one row per task, naming the environment and the task's index in it.

verl reads ``prompt`` (only to have one: the agent loop builds the true prompt from the environment), ``data_source``,
``agent_name``, ``reward_model`` and ``extra_info``; the other columns reach the agent loop as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_envs.errors import ConfigError, MissingExtraError
from agent_envs.files import replacing

__all__ = ["make_rows", "write_rows"]


def make_rows(
    env_id: str,
    indices: Iterable[int],
    *,
    phase: str = "train",
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    seed: int | None = None,
) -> list[dict[str, Any]]:
    """Rows for the tasks at ``indices`` of an environment.

    Args:
        env_id: What ``gymnasium.make`` takes.
        indices: Task indices within the split that ``env_kwargs`` names.
        phase: ``train`` or ``validation``: which of the two the rows are for.
        env_kwargs: Keyword arguments of the environment (``split``, ``data``...), JSON values.
        wrappers: Specs such as ``FormatReward(weight=0.1)``, the first innermost.
        seed: Seed of every reset, or None.

    Returns:
        One dictionary per index.

    Raises:
        ConfigError: Another phase, or keyword arguments that are not JSON.

    >>> make_rows("AgentR1/GSM8K-v0", [3], env_kwargs={"split": "test"})[0]["extra_info"]
    {'index': 3, 'phase': 'train'}
    """
    if phase not in ("train", "validation"):
        raise ConfigError(f"phase is 'train' or 'validation', got {phase!r}")
    try:
        kwargs = json.dumps(dict(env_kwargs or {}), sort_keys=True)
    except TypeError as e:
        raise ConfigError(f"env_kwargs must be JSON values, got {env_kwargs!r}: {e}") from e
    reset = {} if seed is None else {"seed": int(seed)}
    return [
        {
            "prompt": [{"role": "user", "content": f"{env_id} task {index}"}],
            "data_source": env_id,
            "agent_name": "agentr1_env",
            "reward_model": {"style": "environment", "ground_truth": ""},
            "extra_info": {"index": int(index), "phase": phase, **reset},
            "env_id": env_id,
            "env_kwargs": kwargs,
            "wrappers": json.dumps(list(wrappers)),
        }
        for index in indices
    ]


def write_rows(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a parquet file, which appears whole or not at all.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as e:
        raise MissingExtraError("pyarrow", extra="verl") from e
    with replacing(path) as partial:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), partial)
