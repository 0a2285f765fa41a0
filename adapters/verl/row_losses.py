"""verl's actor and critic losses, made exact for batches with padding rows and several rows per trajectory.

Both wrap verl's own loss (verl/workers/utils/losses.py) and change what it divides by:

- ``seq-mean-*`` aggregation divides by the rows of the whole mini-batch, padding included (``global_batch_size``,
  core_algos.py:1188). Here it divides by the rows that are trained, which each row carries in a column.
- Metrics are plain means over micro-batches, whatever is in them. Here they are means over what is trained, so that
  neither padding nor the cut into micro-batches changes them.
- The critic of a step-level estimator learns the value at the action's start alone: its mask is the first response
  position of every trained row (losses.py:147 takes all response tokens), and its mean is over rows.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils import losses

__all__ = ["ACTOR_ROWS", "CRITIC_ROWS", "action_start_mask", "actor_loss", "critic_loss"]

ACTOR_ROWS = "actor_rows"
"""Column: trained rows in the actor mini-batch of this row, on all ranks, float, shape [rows]."""
CRITIC_ROWS = "critic_rows"
"""Column: the same for the critic's mini-batches."""


def actor_loss(
    config: Any, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's policy loss over the trained rows of a micro-batch.

    Args:
        config: verl's ``ActorConfig``.
        model_output: ``log_probs`` and perhaps ``entropy``, jagged [rows, tokens].
        data: The micro-batch.
        dp_group: As verl passes it.

    Returns:
        The loss and its metrics.
    """
    rows = float(data[ACTOR_ROWS][0])
    tokens = _tokens(data["loss_mask"])
    of = float(data["batch_num_tokens"])
    data = _with(data, global_batch_size=max(rows, 1.0), batch_num_tokens=max(of, 1.0))
    loss, metrics = losses.ppo_loss(config, model_output, data, dp_group)
    return loss, _weighted(metrics, tokens / max(of, 1.0) * data["dp_size"])


def critic_loss(
    config: Any, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None, *, action_start: bool
) -> tuple[torch.Tensor, dict[str, Any]]:
    """verl's value loss over the trained rows of a micro-batch.

    Args:
        config: verl's ``CriticConfig``.
        model_output: ``values``, jagged [rows, tokens].
        data: The micro-batch.
        dp_group: As verl passes it.
        action_start: Learn the value at the first response position alone, instead of at every response token.

    Returns:
        The loss and its metrics.
    """
    rows = float(data[CRITIC_ROWS][0])
    of = rows if action_start else float(data["batch_num_tokens"])
    if action_start:
        data = _with(data, response_mask=action_start_mask(data["response_mask"]))
    data = _with(data, global_batch_size=max(rows, 1.0), batch_num_tokens=max(of, 1.0))
    share = _tokens(data["response_mask"]) / max(of, 1.0) * data["dp_size"]
    loss, metrics = losses.value_loss(config, model_output, data, dp_group)
    return loss, _weighted(metrics, share)


def action_start_mask(response_mask: torch.Tensor) -> torch.Tensor:
    """1 at the first response position of every row that is trained there, 0 elsewhere; jagged [rows, tokens]."""
    rows = [torch.cat([row[:1], torch.zeros_like(row[1:])]) for row in response_mask.unbind()]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def _tokens(mask: torch.Tensor) -> float:
    return float(mask.values().sum() if mask.is_nested else mask.sum())


def _with(data: TensorDict, **values: Any) -> TensorDict:
    """A shallow copy of ``data`` with other values."""
    out = data.copy()
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            out[name] = value
        else:
            tu.assign_non_tensor_data(out, name, value)
    return out


def _weighted(metrics: dict[str, Any], share: float) -> dict[str, Any]:
    """Means over this micro-batch as its part of the mean over the mini-batch; sums stay as they are."""
    out: dict[str, Any] = {}
    for name, metric in metrics.items():
        if isinstance(metric, Metric) and metric.aggregation is AggregationType.MEAN:
            out[name] = Metric(AggregationType.SUM, float(metric.aggregate()) * share)
        elif isinstance(metric, Metric) or name == "kl_coef":
            out[name] = metric
        else:
            out[name] = Metric(AggregationType.SUM, float(metric) * share)
    return out
