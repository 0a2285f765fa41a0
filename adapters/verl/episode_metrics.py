"""Metrics over episodes, whatever number of rows each has: pure functions on what ``episode_record`` makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agent_envs.episode import StopReason
from agent_envs.families import score_families

__all__ = ["step_metrics", "summarise", "training_metrics", "validation_metrics"]


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


def _by_family(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Success by family, for environments that name one, and by split where tasks of several were played."""
    out = {}
    for score in score_families((r["env"], r["split"], r["family"], r["success"]) for r in records):
        out[f"val/{score.metric}/success"] = score.success
        out[f"val/{score.metric}/episodes"] = float(score.episodes)
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


def step_metrics(rows: Sequence[Mapping[str, Any]], lengths: Sequence[int], trained: int) -> dict[str, float]:
    """Metrics of a training batch's rows and steps.

    Args:
        rows: The rows' records as the agent loop makes them, padding included.
        lengths: Tokens of each row.
        trained: Tokens that weigh something in the policy's loss.

    Returns:
        Lengths per step, and what merging saved: ``env/merge_factor`` is the number of tokens that one row per step
        would process over the number that the merged rows do.
    """
    steps = [step for row in rows if row["kind"] == "step" for step in row["steps"]]
    responses = [step["end"] - step["start"] for step in steps]
    real = [(row, n) for row, n in zip(rows, lengths, strict=True) if row["kind"] in ("step", "value")]
    apart = sum(step["prompt_tokens"] for step in steps) + sum(responses)
    for row, n in real:
        if row["value_at"] >= 0:  # the prompt of the state after the last step, and its filler, end the row
            apart += n
    together = sum(n for _, n in real)
    return {
        **summarise("prompt_length", [step["prompt_tokens"] for step in steps]),
        **summarise("response_length", responses),
        "env/rows": float(sum(row["kind"] != "padding" for row in rows)),
        "env/trained_steps": float(len(steps)),
        "env/masked_rows": float(sum(row["kind"] == "masked" for row in rows)),
        "env/pad_row_share": sum(row["kind"] == "padding" for row in rows) / max(len(rows), 1),
        "env/merge_factor": apart / max(together, 1),
        "env/tokens/processed": float(sum(lengths)),
        "env/tokens/trained": float(trained),
        "env/tokens/trained_share": trained / max(sum(lengths), 1),
    }


def validation_metrics(records: Sequence[Mapping[str, Any]], expected: int) -> dict[str, float]:
    """Metrics of a validation.

    Args:
        records: One per episode that came back.
        expected: How many were asked for; one that did not come back counts as a failure.

    Returns:
        Success with its standard error (binomial), and the episodes' statistics; `val/ENV/FAMILY/success` where info
        names the families of tasks, and `val/ENV/SPLIT/...` where tasks of several splits were played.
    """
    n = max(expected, len(records), 1)
    success = sum(r["success"] for r in records) / n
    return {
        "val/success": success,
        "val/success_stderr": math.sqrt(success * (1 - success) / n),
        **_common("val", records),
        **_by_family(records),
        "val/lost_episodes": float(max(expected - len(records), 0)),
    }
