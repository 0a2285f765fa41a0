"""The losses that verl's workers minimise: ``agent_envs.adapters.losses`` on a micro-batch of any rows.

verl's own losses (verl/workers/utils/losses.py) average over the rows and tokens of a batch, padding included. Here the
driver has given every response token its weight and its step, so merged rows, one row per step, padding rows and any
split into micro-batches and ranks give the same sum. verl adds up micro-batches and averages over data-parallel ranks,
so everything is multiplied by the number of ranks.
Metrics travel as totals with their counts (``collect`` divides).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.losses import ppo_loss

from agent_envs.adapters.losses import LossOptions, Tally, entropy_loss, kl_loss, label_loss, policy_loss, value_loss
from agent_envs.adapters.losses.ratios import record_ratios
from agent_envs.adapters.verl.batch.table import flat, response_index, row_offsets

STEP_NUMBERS = "step_numbers"
"""Column: the step of the batch that wrote each response token, -1 for none; jagged [rows, tokens]."""
POLICY_WEIGHTS = "policy_weights"
"""Column: weight of each response token in the policy's loss; jagged [rows, tokens]."""
TOKEN_WEIGHTS = "token_weights"
"""Column of losses for rows: weight of each token if all trained tokens of the mini-batch weigh the same; jagged."""
LABEL_WEIGHTS = "label_weights"
"""Column of a teacher: weight of each response token in the cross-entropy of its labels; jagged [rows, tokens]."""
VALUE_WEIGHTS = "value_weights"
"""Column: weight of each response token in the critic's loss; jagged [rows, tokens]."""

_OF_LOSS = ("clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef", "dro_beta")
_TOTAL, _COUNT = "|total", "|count"


def loss_options(actor: Any) -> LossOptions:
    """Return the policy loss's settings in verl's actor configuration; ``clip_ratio`` stands for a side not set."""
    low, high, c = (actor.get(f"clip_ratio_{name}") for name in ("low", "high", "c"))
    return LossOptions(
        clip_ratio_low=float(actor.clip_ratio if low is None else low),
        clip_ratio_high=float(actor.clip_ratio if high is None else high),
        clip_ratio_c=None if c is None else float(c),
        **{name: float(actor.get(name)) for name in ("tau_pos", "tau_neg") if actor.get(name) is not None},
        **{name: float(actor.policy_loss[name]) for name in _OF_LOSS if actor.policy_loss.get(name) is not None},
    )


def actor_loss(
    config: Any,
    model_output: dict[str, Any],
    data: TensorDict,
    dp_group: Any = None,
    *,
    options: LossOptions,
    ratios: str | None = None,
    update: int = 0,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the policy's loss on a micro-batch and its metrics: ``loss_mode``, entropy, KL to the reference.

    ``config`` is verl's ``ActorConfig``; ``model_output`` has ``log_probs`` and optionally ``entropy``, jagged [rows,
    tokens]. In the folder ``ratios`` the log-ratio of each step is recorded, under the number of the ``update``.
    """
    weights = flat(data[POLICY_WEIGHTS])
    trained = (weights != 0).nonzero().squeeze(1)  # [trained tokens]
    indices = output_indices(data)[trained]
    weights = weights[trained]
    log_probs = flat(model_output["log_probs"])[indices]
    # renumbered: a micro-batch holds few of the batch's steps
    steps = flat(data[STEP_NUMBERS])[trained].unique(return_inverse=True)[1]

    def column(name: str) -> torch.Tensor:
        return flat(data[name])[trained]

    corrected = column("rollout_is_weights") if "rollout_is_weights" in data else None
    old, advantages = column("old_log_probs"), column("advantages")
    function = policy_loss(config.policy_loss.get("loss_mode", "vanilla"))
    loss, metrics = function(log_probs, old, advantages, weights, steps, options, corrected)
    if ratios is not None:
        record_ratios(ratios, data["training_step"], update, log_probs.detach() - old, advantages, steps)
    sums = {"pg_loss": loss}
    if model_output.get("entropy") is not None:
        sums["entropy_loss"], tallies = entropy_loss(flat(model_output["entropy"])[indices], weights)
        metrics |= tallies
        loss = loss - config.entropy_coeff * sums["entropy_loss"]
    if config.use_kl_loss:
        sums["kl_loss"], tallies = kl_loss(log_probs, column("ref_log_prob"), weights, config.kl_loss_type)
        metrics |= tallies
        loss = loss + config.kl_loss_coef * sums["kl_loss"]
    if LABEL_WEIGHTS in data:
        taught = flat(data[LABEL_WEIGHTS])
        at = (taught != 0).nonzero().squeeze(1)
        imitation, tallies = label_loss(flat(model_output["log_probs"])[output_indices(data)[at]], taught[at])
        loss, metrics = loss + imitation, metrics | tallies
    return loss * data["dp_size"], _reported("actor", metrics, sums, data["dp_size"])


def of_mini_batch(engine: Any, data: TensorDict, loss: Any) -> Any:
    """Return a loss for one mini-batch, given what it needs to know of all its micro-batches, over all ranks.

    ``capo`` centres log-ratios at their mean under the policy as it is now: one more pass, without gradients.
    """
    if getattr(loss, "func", None) is not actor_loss:
        return loss
    known: dict[str, Any] = {}
    if loss.keywords.get("ratios") is not None:
        engine.recorded_updates = known["update"] = getattr(engine, "recorded_updates", 0) + 1
    if loss.keywords["config"].policy_loss.get("loss_mode") == "capo":
        sums = torch.zeros(2, dtype=torch.float64)  # of the log-ratios, and how many there are

        def add_up(model_output: dict[str, Any], data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, dict]:
            used = (flat(data[POLICY_WEIGHTS]) != 0).nonzero().squeeze(1)
            log_probs = flat(model_output["log_probs"])[output_indices(data)[used]]
            sums.add_(torch.tensor([float((log_probs - flat(data["old_log_probs"])[used]).double().sum()), len(used)]))
            return log_probs.new_zeros(()), {}

        engine.forward_backward_batch(data, add_up, forward_only=True)
        total = sums.to(flat(data[POLICY_WEIGHTS]).device)
        torch.distributed.all_reduce(total, group=engine.get_data_parallel_group())
        known["options"] = replace(loss.keywords["options"], mean_log_ratio=float(total[0] / total[1].clamp(min=1)))
    return partial(loss, **known)


def row_actor_loss(
    config: Any, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None, *, function: Callable[..., Any]
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return verl's own ``ppo_loss`` with a policy loss that was written for its rows, and its metrics.

    What is not trained (padding, broken episodes, rejected tokens) is masked, and counts neither as a token nor as a
    row of the mini-batch. Arguments are those of ``actor_loss``; the rows are steps, and the weights in
    ``POLICY_WEIGHTS`` those of means over rows.
    """
    weights, weights_of_tokens = flat(data[POLICY_WEIGHTS]), flat(data[TOKEN_WEIGHTS])
    trained = weights != 0
    if not bool(trained.any()):
        return 0.0 * flat(model_output["log_probs"]).sum(), {}
    offsets = row_offsets(data["responses"]).to(weights.device)
    row = torch.arange(len(offsets) - 1, device=weights.device).repeat_interleave(offsets.diff())
    counts = torch.bincount(row[trained], minlength=len(offsets) - 1)  # [rows] trained tokens of each
    batch = data.copy()
    longest = int(offsets.diff().max())  # without it a column is padded to the number of all its tokens
    batch["response_mask"] = torch.nested.nested_tensor_from_jagged(trained.long(), offsets, max_seqlen=longest)
    first = int(trained.nonzero()[0])
    tu.assign_non_tensor(
        batch,
        batch_num_tokens=round(1.0 / float(weights_of_tokens[first])),
        global_batch_size=round(1.0 / float(weights[first] * counts[row[first]])),
    )
    POLICY_LOSS_REGISTRY[config.policy_loss.loss_mode] = function
    return ppo_loss(config, model_output, batch, dp_group)


def critic_loss(
    config: Any, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return the critic's loss on a micro-batch and its metrics; ``model_output`` has ``values``, jagged."""
    weights = flat(data[VALUE_WEIGHTS])
    trained = (weights != 0).nonzero().squeeze(1)
    values = flat(model_output["values"])[output_indices(data)[trained]]
    old, returns = flat(data["values"])[trained], flat(data["returns"])[trained]
    loss, metrics = value_loss(values.squeeze(-1) if values.dim() > 1 else values, old, returns, weights[trained],
                               clip=config.cliprange_value)  # fmt: skip
    return loss * data["dp_size"], _reported("critic", metrics, {"vf_loss": loss}, data["dp_size"])


def collect(output: Mapping[str, Any], role: str) -> dict[str, float]:
    """Return verl's metrics of an update, one number or one per mini-batch, as plain numbers over all mini-batches.

    ``role`` (``actor`` or ``critic``) is prepended to names that lack it.
    """
    out: dict[str, float] = {}
    for name, value in output.items():
        full = name if name.startswith(f"{role}/") else f"{role}/{name}"
        numbers: Sequence[float] = value if isinstance(value, (list, tuple)) else [value]
        if full.endswith(_TOTAL):
            if count := float(np.sum(output[f"{name.removesuffix(_TOTAL)}{_COUNT}"])):
                out[full.removesuffix(_TOTAL)] = float(np.sum(numbers)) / count
        elif not full.endswith(_COUNT):
            largest = full.endswith("/max")
            if finite := [x for x in numbers if not (largest and x == -np.inf)]:
                out[full] = float(np.max(finite) if largest else np.mean(finite))
    if f"{role}/mfu" in out:
        out[f"perf/mfu/{role}"] = out.pop(f"{role}/mfu")
    return out


def output_indices(data: TensorDict) -> torch.Tensor:
    """Return the index of the model's output for each response token, shape [response tokens]."""
    lengths = row_offsets(data["responses"]).diff()
    return response_index(row_offsets(data["input_ids"]).to(lengths.device), lengths)


def _reported(
    role: str, tallies: Mapping[str, Tally], sums: Mapping[str, torch.Tensor], ranks: int
) -> dict[str, Metric]:
    out = {f"{role}/{name}": Metric(AggregationType.SUM, x.detach() * ranks) for name, x in sums.items()}
    for name, tally in tallies.items():
        if tally.largest:
            out[f"{role}/{name}"] = Metric(AggregationType.MAX, tally.total)
        else:
            out[f"{role}/{name}{_TOTAL}"] = Metric(AggregationType.SUM, tally.total * ranks)
            out[f"{role}/{name}{_COUNT}"] = Metric(AggregationType.SUM, tally.count * ranks)
    return out
