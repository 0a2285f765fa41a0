"""Which tasks a run trains on and which it holds out, and the rows that tell verl about them.

A row names an environment and a task's index in it. verl reads ``prompt`` (it wants one; the agent loop gets the real
one from the environment), ``data_source``, ``agent_name``, ``reward_model`` and ``extra_info``; the other columns reach
the agent loop unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.adapters.curriculum import Curriculum
from agent_envs.adapters.task_rows import as_json
from agent_envs.adapters.verl.config.compose import RunConfig
from agent_envs.checks import choice
from agent_envs.errors import ConfigError, DataError, first_line, needs_extra
from agent_envs.files import replacing
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import make_text_env, takes_argument

_SEEN = {"validation": "valid_seen", "test": "valid_unseen"}  # splits that stand for these where the data has them
_REAL = {"real": "test"}  # RealScholarQuery, as a folder of Agent-R1's data release calls it


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
    """Make the run's environment with its wrappers."""
    return make_text_env(config.env, config.env_kwargs_of(split or config.split), config.wrappers)


def choose_tasks(
    config: RunConfig, *, tasks_per_step: int, validation_tasks: int | None, levels: Curriculum | None = None
) -> Tasks:
    """Draw the run's tasks. The held-out ones are the same for every seed, so that runs can be compared.

    Held out are ``config.validation``, those of its splits that the data has; without it "valid_seen" and
    "valid_unseen" if the data has both; otherwise the split "validation" if there is one, otherwise "test". Each gives
    the same number of ``validation_tasks``, or all it has for None. If the data has none of them (a single file), or
    the run trains on the only one, `val_fraction` of the split is held out; of an environment without splits, such as a
    game, the last ones. Passes are shuffled, and the last tasks of one that make no batch are left out. With
    ``levels``, those that every level has are trained on.

    Raises:
        ConfigError: The split does not exist, has too few tasks to hold any out, or the environment does not say how
            many tasks it has.
    """
    count, split = _task_count(config)
    splits = takes_argument(config.env, "split")
    counts: list[tuple[str, int]] = []
    if split != "all" and config.validation is not None:
        counts = _counts(config, config.validation)
        counts = counts or _counts(config, [_REAL[name] for name in config.validation if name in _REAL])
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
        held = round(count * config.val_fraction)
        if not 0 < held < count:
            raise ConfigError(
                f"--val-fraction {config.val_fraction} of {count} tasks leaves none to train on or none to hold out"
            )
        if not splits:
            order = np.concatenate([count - held + np.random.default_rng(0).permutation(held), pool[: count - held]])
        orders, pool = [(split, order[:held])], np.sort(order[held:])
    for own in () if levels is None else levels.env_kwargs:
        pool = pool[pool < _task_count(replace(config, env_kwargs={**config.env_kwargs, **own}))[0]]
    others = None if validation_tasks is None else validation_tasks // len(orders)
    first = None if others is None else validation_tasks - others * (len(orders) - 1)  # type: ignore[operator]
    drawn = _passes(len(pool), config.steps * tasks_per_step, tasks_per_step, config.seed)
    held_out = tuple((name, tuple(order[: others if i else first].tolist())) for i, (name, order) in enumerate(orders))
    return Tasks(split, tuple(pool[drawn].tolist()), held_out, pool=None if splits else len(pool))


def _task_count(config: RunConfig) -> tuple[int, str]:
    """How many tasks the run's split has, and what the data calls it; "all" where the environment has no splits."""
    with closing(make_env(config)) as env:
        env.reset(options={"index": 0})  # a wrapper may reject every task
        if not env.has_wrapper_attr("num_tasks"):
            raise ConfigError(f"{config.env} does not say how many tasks it has (num_tasks), so none can be drawn")
        split = env.unwrapped.tasks.split if takes_argument(config.env, "split") else "all"  # type: ignore[attr-defined]
        return int(env.get_wrapper_attr("num_tasks")), split


def _passes(size: int, wanted: int, batch: int, seed: int) -> list[int]:
    """So many of the numbers below ``size``, in shuffled passes of whole batches; more begin like fewer."""
    rng, drawn = np.random.default_rng(seed), list[int]()
    whole = size // batch * batch or size
    while len(drawn) < wanted:
        drawn += rng.permutation(size)[:whole].tolist()
    return drawn[:wanted]


def mixed_rows(rows: Sequence[Sequence[Any]], weights: Sequence[float], wanted: int) -> list[Any]:
    """Return rows of several environments in turn, so that any beginning has about ``weights`` of them, which sum to 1.

    Each list is taken from its beginning, and again where it ends.

    >>> "".join(mixed_rows(["abc", "xy"], [0.75, 0.25], 8))
    'abcxabcy'
    """
    taken, out = [0] * len(rows), list[Any]()
    for place in range(1, wanted + 1):
        which = max(range(len(rows)), key=lambda i: weights[i] * place - taken[i])
        out.append(rows[which][taken[which] % len(rows[which])])
        taken[which] += 1
    return out


def rows_of_files(config: RunConfig, phase: str, *, trust: bool) -> list[dict[str, Any]]:
    """Return rows for the tasks of the files that a run names for ``phase``, in the files' order.

    A file whose rows name environments (``env_id``), as ``write_rows`` writes them, is taken unchanged, after a check
    that without ``trust`` they name nothing that only the user may (``recorded_env``). Any other holds tasks of the
    run's environment, as its argument ``data``, or ``goals`` where it has one.
    """
    rows: list[dict[str, Any]] = []
    for path in config.train_files if phase == "train" else config.val_files:
        with needs_extra("verl"):
            import pyarrow.parquet as pq
        try:
            named = "env_id" in pq.read_schema(path).names if path.endswith(".parquet") else False
            written = pq.read_table(path).to_pylist() if named else []
        except (OSError, ValueError) as e:  # pyarrow's own errors are of these
            raise DataError(f"{path} cannot be read as parquet: {first_line(e)}") from e
        if not named and config.mixed:
            raise ConfigError(f"the rows of {path} do not name their environments (env_id), and the run has several")
        before = len(rows)
        if not named:
            own = replace(config, data=path)
            if takes_argument(config.env, "goals"):  # of a catalogue, which stays
                own = replace(config, split="all", env_kwargs={**config.env_kwargs, "goals": path})
            count, split = _task_count(own)
            kwargs = own.env_kwargs_of(split)
            rows += make_rows(own.env, range(count), phase=phase, env_kwargs=kwargs, wrappers=own.wrappers)
        for number, row in enumerate(written):
            where, extra = f"{path}, row {number}", row.get("extra_info")
            try:
                parts = {name: json.loads(row[name]) for name in ("env_kwargs", "wrappers") if row.get(name)}
                index, seed = extra["index"], extra.get("seed")
                if not all(type(number) is int and number >= 0 for number in (index, 0 if seed is None else seed)):
                    raise ValueError(f"got index {index!r:.40} and seed {seed!r:.40}")
            except (KeyError, TypeError, ValueError) as e:
                expected = "a task's extra_info.index (and its seed, if any) from 0 on, and arguments as JSON"
                raise DataError(f"{where}: expected {expected}: {e}") from e
            own_env, kwargs, wrappers = recorded_env({"env": row["env_id"], **parts}, where, trust=trust)
            rows += make_rows(own_env, [index], phase=phase, env_kwargs=kwargs, wrappers=wrappers, seed=seed)
        if len(rows) == before:
            raise DataError(f"{path} has no rows, of which each is a task: leave it out")
    return rows


def training_rows(
    config: RunConfig, tasks: Sequence[Tasks], tasks_per_step: int, *, trust: bool
) -> list[dict[str, Any]]:
    """Return the rows of a run's tasks in the order of training, a batch after another."""
    wanted = config.steps * tasks_per_step
    if config.train_files:
        rows = rows_of_files(config, "train", trust=trust)
        return [rows[i] for i in _passes(len(rows), wanted, tasks_per_step, config.seed)]
    parts = [
        make_rows(part.env, own.train, env_kwargs=part.env_kwargs_of(own.train_split), wrappers=part.wrappers)
        for part, own in zip(config.parts(), tasks, strict=True)
    ]
    return mixed_rows(parts, [share.weight for share in config.mixed] or [1.0], wanted)


def validation_rows(config: RunConfig, tasks: Sequence[Tasks], *, trust: bool) -> list[dict[str, Any]]:
    """Return the rows of the tasks that are held out."""
    if config.val_files:
        return rows_of_files(config, "validation", trust=trust)
    rows = []
    for part, own in zip(config.parts(), tasks, strict=True):
        for split, indices in own.held_out:
            kwargs = part.env_kwargs_of(split)
            rows += make_rows(part.env, indices, phase="validation", env_kwargs=kwargs, wrappers=part.wrappers)
    return rows


def _counts(config: RunConfig, splits: Iterable[str]) -> list[tuple[str, int]]:
    """The splits that exist, with their numbers of tasks."""
    counts = []
    for split in splits:
        with suppress(ConfigError):
            counts.append((split, _task_count(replace(config, split=split))[0]))
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
    """Write rows to a parquet file, which appears whole or not at all."""
    with needs_extra("verl"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with replacing(path) as partial:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), partial)
