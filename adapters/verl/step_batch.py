"""Helpers of the trainer that need none of its state."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict

from agent_envs.adapters.estimators import StepRows
from agent_envs.errors import ConfigError

__all__ = ["collect", "mini_batches", "plain", "repair_tracker", "step_rows"]


def mini_batches(name: str, config: Any, run: Any) -> int:
    """Mini-batches per training batch; both sizes count prompts, each with ``rollout.n`` trajectories."""
    size, total = int(config.ppo_mini_batch_size), int(run.data.train_batch_size)
    if size < 1 or total % size:
        raise ConfigError(f"{name}.ppo_mini_batch_size must divide data.train_batch_size ({total} prompts), got {size}")
    return total // size


def step_rows(
    extra: list[dict], uids: list[str], kinds: np.ndarray, rewards: torch.Tensor, values: torch.Tensor | None
) -> StepRows:
    """The estimators' view of a padded batch; ``values`` [rows, response tokens] or None."""
    names = {name: i for i, name in enumerate(dict.fromkeys(fields["trajectory"] for fields in extra))}
    groups = {uid: i for i, uid in enumerate(dict.fromkeys(uids))}
    at_start = None if values is None else values[:, 0].float()
    final = None
    if at_start is not None:
        of = {extra[i]["trajectory"]: at_start[i] for i in np.flatnonzero(kinds == "value")}
        final = torch.tensor([float(of.get(fields["trajectory"], math.nan)) for fields in extra])
    return StepRows(
        rewards=rewards.float(),
        trajectory=torch.tensor([names[fields["trajectory"]] for fields in extra]),
        step=torch.tensor([int(fields["step_index"]) for fields in extra]),
        group=torch.tensor([groups[uid] for uid in uids]),
        valid=torch.from_numpy(kinds == "step"),
        truncated=torch.tensor([bool(fields["truncated"] and not fields["terminated"]) for fields in extra]),
        values=at_start,
        final_values=final,
    )


def collect(output: dict[str, Any], role: str, metrics: dict) -> None:
    renamed = rename_dict(output, f"{role}/")
    renamed[f"perf/mfu/{role}"] = renamed.pop(f"{role}/mfu")
    metrics.update(reduce_metrics(renamed))


def plain(value: Any) -> dict:
    """What TransferQueue gives back for a dictionary: itself, or wrapped."""
    return value if isinstance(value, dict) else dict(value.data)


def repair_tracker(folder: Path) -> None:
    """Point verl's tracker at the newest complete checkpoint if a kill left it empty.

    verl rewrites ``latest_checkpointed_iteration.txt`` in place, after everything else (trainer_base.py:1013).
    """
    tracker = folder / "latest_checkpointed_iteration.txt"
    if not tracker.exists() or tracker.read_text().strip().isdigit():
        return
    complete = [int(p.parent.name.rsplit("_", 1)[1]) for p in folder.glob("global_step_*/data.pt")]
    if not complete:
        tracker.unlink()
        return
    partial_file = tracker.with_suffix(f".{os.getpid()}.partial")
    partial_file.write_text(str(max(complete)))
    partial_file.replace(tracker)
