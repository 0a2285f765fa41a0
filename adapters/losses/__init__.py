"""Losses over flat tensors of tokens: the same whether a row of the batch holds one step or several.

No trainer is imported. Every loss is a sum over tokens of ``weights * token_loss``. The weights, made once per
mini-batch by ``token_weights``, decide which tokens are trained and how much a token, a step and an episode count, and
contain every normaliser. So a trainer adds up the losses of micro-batches without any division; if it averages
gradients over data-parallel ranks, it multiplies by their number.

    weights = token_weights("trajectory", lengths, trajectory, step_ids, mini_batch)     # driver, whole batch, once
    loss, metrics = policy_loss("vanilla")(log_probs, old, advantages, weights, ids, options)    # per micro-batch
    kl, kl_metrics = kl_loss(log_probs, ref, weights, "low_var_kl")
    entropy, entropy_metrics = entropy_loss(token_entropy, weights)
    total = loss + kl_coef * kl - entropy_coef * entropy
    critic, critic_metrics = value_loss(values, old_values, returns, value_weights, clip=0.5)

Arguments shared by all losses, flat over the tokens of a micro-batch in any order:

============  ========================================================================================================
weights       [tokens] float; exactly 0 for padding, prompts, tool results, rejected tokens and broken episodes; their
              other values are ignored, NaN included
step_ids      [tokens] int64; the step of each token, 0..steps-1 within the micro-batch, -1 for untrained ones; all
              tokens of a step are in one micro-batch
metrics       name -> ``Tally`` (total and count, or a maximum): ``merge`` adds up micro-batches and ranks exactly, and
              ``averages`` divides at the end
============  ========================================================================================================

A micro-batch without a trained token has loss 0 with a graph, so its gradients are zeros.
"""

from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch  # noqa: F401

from agent_envs.adapters.losses.kl import KL_KINDS, KLController, kl_controller, kl_in_reward, kl_loss, kl_penalty
from agent_envs.adapters.losses.policy import (
    LOSS_PRESETS,
    POLICY_LOSSES,
    PolicyLoss,
    RatioWatch,
    gspo,
    loss_preset,
    policy_loss,
    reinforce,
    vanilla,
)
from agent_envs.adapters.losses.terms import LossOptions, Tally, averages, entropy_loss, label_loss, merge, value_loss
from agent_envs.adapters.losses.weights import WEIGHTINGS, action_start, step_weights, token_weights

__all__ = [
    "KL_KINDS", "LOSS_PRESETS", "POLICY_LOSSES", "WEIGHTINGS", "KLController", "LossOptions", "PolicyLoss",
    "RatioWatch", "Tally", "action_start", "averages", "entropy_loss", "gspo", "kl_controller", "kl_in_reward",
    "kl_loss", "kl_penalty", "label_loss", "loss_preset", "merge", "policy_loss", "reinforce", "step_weights",
    "token_weights", "value_loss", "vanilla",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
