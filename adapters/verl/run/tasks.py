"""Which tasks a run trains on and which it holds out, and the rows that tell verl about them.

A row names an environment and a task's index in it. verl reads ``prompt`` (it wants one; the agent loop gets the real
one from the environment), ``data_source``, ``agent_name``, ``reward_model`` and ``extra_info``; the other columns reach
the agent loop unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.adapters.task_rows import as_json
from agent_envs.adapters.verl.config.compose import RunConfig
from agent_envs.checks import choice
from agent_envs.errors import ConfigError, needs_extra
from agent_envs.files import replacing
from agent_envs.wrapping.specs import make_text_env, takes_splits

__all__ = ["Tasks", "choose_tasks", "env_kwargs", "make_env", "make_rows", "write_rows"]

_SEEN = {"validation": "valid_seen", "test": "valid_unseen"}  # splits that stand for these where the data has them


@dataclass(frozen=True, slots=True)
class Tasks:
    """Which tasks are trained on and which are held out."""

    train_split: str
    train: tuple[int, ...]
    """Indices to train on, in order; they repeat if the split is smaller than the run."""
    held_out: tuple[tuple[str, tuple[int, ...]], ...]
    """Splits, each with the indices that are held out of training."""
    pool: int | None = None
    """Where the environment has no splits: tasks below this index are trained on, the others are held out."""


def make_env(config: RunConfig, split: str | None = None) -> gym.Env[Any, str]:
    """Make the run's environment with its wrappers.

    Raises:
        AgentEnvsError: There is no such environment or split, or a wrapper does not fit.
    """
    return make_text_env(config.env, env_kwargs(config, split or config.split), config.wrappers)


def env_kwargs(config: RunConfig, split: str) -> dict[str, Any]:
    """Return the arguments of the run's environment for a split, which one without splits is not told."""
    return {**config.env_kwargs, **({"split": split, "data": config.data} if takes_splits(config.env) else {})}


def choose_tasks(config: RunConfig, *, tasks_per_step: int, validation_tasks: int | None) -> Tasks:
    """Draw the run's tasks. The held-out ones are the same for every seed, so that runs can be compared.

    Held out are ``config.validation``, those of its splits that the data has; without it "valid_seen" and
    "valid_unseen" if the data has both; otherwise the split "validation" if there is one, otherwise "test". Each gives
    the same number of ``validation_tasks``, or all it has for None. If the data has none of them (a single file), or
    the run trains on the only one, `val_fraction` of the split is held out; of an environment without splits, such as a
    game, the last ones. Passes are shuffled, and the last tasks of one that make no batch are left out.

    Raises:
        ConfigError: The split does not exist, has too few tasks to hold any out, or the environment does not say how
            many tasks it has.
    """
    env = make_env(config)
    env.reset(options={"index": 0})  # a wrapper may reject every task
    if not env.has_wrapper_attr("num_tasks"):
        env.close()
        raise ConfigError(f"{config.env} does not say how many tasks it has (num_tasks), so none can be drawn")
    count, splits = int(env.get_wrapper_attr("num_tasks")), takes_splits(config.env)
    split = env.unwrapped.tasks.split if splits else "all"  # type: ignore[attr-defined]
    env.close()
    counts: list[tuple[str, int]] = []
    if split != "all" and config.validation is not None:
        counts = _counts(config, config.validation)
        if not counts:
            raise ConfigError(f"the data has none of the splits to validate on: {', '.join(config.validation)}")
    elif split != "all":
        seen = _counts(config, _SEEN.values())
        trained = _SEEN.get(split, split) if seen else split
        counts = [item for item in seen or _counts(config, _SEEN) if item[0] != trained][: 2 if seen else 1]
    pool = np.arange(count)
    orders = [(name, np.random.default_rng(0).permutation(size)) for name, size in counts]
    if not orders:
        order = np.random.default_rng(0).permutation(count)
        kept = round(count * config.val_fraction)
        if not 0 < kept < count:
            raise ConfigError(
                f"--val-fraction {config.val_fraction} of {count} tasks leaves none to train on or none to hold out"
            )
        if not splits:
            order = np.concatenate([count - kept + np.random.default_rng(0).permutation(kept), pool[: count - kept]])
        orders, pool = [(split, order[:kept])], np.sort(order[kept:])
    others = None if validation_tasks is None else validation_tasks // len(orders)
    first = None if others is None else validation_tasks - others * (len(orders) - 1)  # type: ignore[operator]
    rng, drawn = np.random.default_rng(config.seed), list[int]()
    whole = len(pool) // tasks_per_step * tasks_per_step or len(pool)
    while len(drawn) < config.steps * tasks_per_step:  # a longer run begins like a shorter one
        drawn += pool[rng.permutation(len(pool))[:whole]].tolist()
    return Tasks(
        train_split=split,
        train=tuple(drawn[: config.steps * tasks_per_step]),
        held_out=tuple(
            (name, tuple(order[: others if i else first].tolist())) for i, (name, order) in enumerate(orders)
        ),
        pool=None if splits else len(pool),
    )


def _counts(config: RunConfig, splits: Iterable[str]) -> list[tuple[str, int]]:
    """The splits that exist, with their numbers of tasks."""
    counts = []
    for split in splits:
        try:
            env = make_env(config, split)
            counts.append((split, env.unwrapped.num_tasks))  # type: ignore[attr-defined]
        except ConfigError:
            continue
        env.close()
    return counts


def make_rows(
    env_id: str,
    indices: Iterable[int],
    *,
    phase: str = "train",
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    seed: int | None = None,
) -> list[dict[str, Any]]:
    """Return one row per task index, an index within the split that ``env_kwargs`` names.

    ``phase`` is ``train`` or ``validation``; ``wrappers`` are specs such as ``FormatReward(weight=0.1)``, innermost
    first; ``seed`` is for every reset.

    Raises:
        ConfigError: Another phase, or keyword arguments that JSON cannot hold.

    >>> make_rows("AgentR1/GSM8K-v0", [3], env_kwargs={"split": "test"})[0]["extra_info"]
    {'index': 3, 'phase': 'train'}
    """
    choice("phase", phase, ("train", "validation"))
    kwargs = as_json(env_kwargs)
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
    """Write rows to a parquet file, which appears whole or not at all.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    with needs_extra("verl"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with replacing(path) as partial:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), partial)
