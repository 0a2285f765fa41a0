"""Metrics over episodes, whatever number of rows each has: pure functions on what ``episode_record`` makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agent_envs.episode import StopReason

__all__ = ["summarise", "training_metrics", "validation_metrics"]


def summarise(name: str, values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation, largest and smallest of ``values``, nothing for none.

    >>> summarise("x", [1.0, 3.0])
    {'x/mean': 2.0, 'x/std': 1.0, 'x/max': 3.0, 'x/min': 1.0}
    """
    if not len(values):
        return {}
    x = np.asarray(values, dtype=float)
    return {
        f"{name}/mean": float(x.mean()),
        f"{name}/std": float(x.std()),
        f"{name}/max": float(x.max()),
        f"{name}/min": float(x.min()),
    }


def _common(prefix: str, records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    steps = sum(r["num_steps"] for r in records)
    out = {
        **summarise(f"{prefix}/return", [r["return"] for r in records]),
        **summarise(f"{prefix}/score", [r["score"] for r in records]),
        **summarise(f"{prefix}/num_steps", [r["num_steps"] for r in records]),
        f"{prefix}/episodes": float(len(records)),
        f"{prefix}/invalid_action_rate": sum(r["invalid_actions"] for r in records) / max(steps, 1.0),
    }
    for reason in StopReason:
        count = sum(r["stop_reason"] == reason.value for r in records)
        out[f"{prefix}/stop/{reason.value}"] = count / max(len(records), 1)
    return out


def training_metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Metrics of a training batch, one record per episode."""
    n = max(len(records), 1)
    return {
        "env/success": sum(r["success"] for r in records) / n,
        **_common("env", records),
        "env/tokens/prompt": float(sum(r["prompt_tokens"] for r in records)),
        "env/tokens/response": float(sum(r["response_tokens"] for r in records)),
        "env/tokens/response_per_episode": sum(r["response_tokens"] for r in records) / n,
        "env/zero_step_episodes": float(sum(r["num_steps"] == 0 for r in records)),
    }


def validation_metrics(records: Sequence[Mapping[str, Any]], expected: int) -> dict[str, float]:
    """Metrics of a validation.

    Args:
        records: One per episode that came back.
        expected: How many were asked for; one that did not come back counts as a failure.

    Returns:
        Success with its standard error (binomial), and the episodes' statistics.
    """
    n = max(expected, len(records), 1)
    success = sum(r["success"] for r in records) / n
    return {
        "val/success": success,
        "val/success_stderr": math.sqrt(success * (1 - success) / n),
        **_common("val", records),
        "val/lost_episodes": float(max(expected - len(records), 0)),
    }
