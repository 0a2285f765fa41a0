"""What the policy losses are made of: their settings, ratios of trained tokens, clips, sums and metrics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from agent_envs.adapters.losses.tally import Tally, maximum, mean
from agent_envs.checks import number

__all__ = [
    "LARGEST", "LossOptions", "PolicyLoss", "Tokens", "clip", "clip_metrics", "over_tokens", "ratio_metrics", "read",
    "token_metrics", "weighted_sum",
]  # fmt: skip

LARGEST = 20.0
"""Of |lp - old| in a ratio per token, as in verl."""


@dataclass(frozen=True)
class LossOptions:
    """Settings of the policy losses; each uses what it needs.

    Raises:
        ConfigError: A value is outside its range.
    """

    clip_ratio_low: float = 0.2
    """e_l: the ratio is clipped below 1 - e_l."""
    clip_ratio_high: float = 0.2
    """e_h: the ratio is clipped above 1 + e_h."""
    clip_ratio_c: float | None = 3.0
    """vanilla: bound of the dual clip, larger than 1; None for none."""
    tau_pos: float = 1.0
    """sapo: temperature of the gate where A > 0."""
    tau_neg: float = 1.05
    """sapo: temperature of the gate elsewhere."""
    clip_cov_ratio: float = 2e-4
    """clip_cov: share of a micro-batch's tokens that are left out, at least one token."""
    clip_cov_lb: float = 1.0
    """clip_cov: covariance above which a token may be left out."""
    clip_cov_ub: float = 5.0
    """clip_cov: covariance up to which it may."""
    kl_cov_ratio: float = 2e-4
    """kl_cov: share of a micro-batch's tokens with a penalty, at least one token."""
    ppo_kl_coef: float = 0.1
    """kl_cov: coefficient of that penalty."""
    dro_beta: float | None = None
    """dro: coefficient of the squared log ratio, which dro needs."""
    ratio_tolerance: float = 1e-5
    """Metrics: |log ratio| up to which a ratio counts as 1 (float32 round-off between two passes)."""

    def __post_init__(self) -> None:
        for name in ("clip_ratio_low", "clip_ratio_high", "ppo_kl_coef", "ratio_tolerance"):
            number(name, getattr(self, name), minimum=0)
        for name in ("tau_pos", "tau_neg"):
            number(name, getattr(self, name), above=0)
        for name in ("clip_cov_ratio", "kl_cov_ratio"):
            number(name, getattr(self, name), above=0, maximum=1)
        for name in ("clip_cov_lb", "clip_cov_ub"):
            number(name, getattr(self, name))
        if self.dro_beta is not None:
            number("dro_beta", self.dro_beta, above=0)
        if self.clip_ratio_c is not None:
            number("clip_ratio_c", self.clip_ratio_c, above=1)


class PolicyLoss(Protocol):
    """The signature of a policy loss."""

    def __call__(
        self, log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
        step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
        """Return the loss of a micro-batch and its metrics.

        Args, all tensors of shape [tokens]:
            log_probs: Log-probabilities under the policy being trained, with a graph.
            old_log_probs: Log-probabilities under the policy that made the batch.
            weights: 0 for untrained tokens; see ``agent_envs.adapters.losses``, for ``step_ids`` too.
            is_weights: Additional factors of the token losses (rollout correction).

        Returns:
            sum(weights * token_loss) as a scalar, and ``pg_clipfrac``, ``pg_clipfrac_lower`` (shares of tokens on
            which a clip acts), ``ppo_kl`` (mean of old - new), ``ratio/mean``, ``ratio/max``, ``ratio/moved`` (share
            of ratios that left 1; gspo has one ratio per step).
        """


class Tokens(NamedTuple):
    """What a policy loss reads of each token, 0 for untrained ones, in float32 at least; all of shape [tokens]."""

    trained: torch.Tensor
    log_ratio: torch.Tensor
    log_probs: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor


TokenLoss = Callable[[Tokens, LossOptions], tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]]
"""Returns the loss of each token, and where an upper and a lower clip act; None for a clip that never does."""


def over_tokens(function: TokenLoss) -> PolicyLoss:
    """Make a policy loss, with one ratio per token, of what a token loses."""

    @functools.wraps(function)
    def loss(
        log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
        step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
        t = read(log_probs, old_log_probs, advantages, weights, step_ids)
        losses, clipped, lower = function(t, options)
        return weighted_sum(losses, weights, t.trained, is_weights), token_metrics(t, options, clipped, lower)

    return loss


def read(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor,
) -> Tokens:  # fmt: skip
    """Return what a loss reads: a NaN of an untrained token reaches neither the loss nor a gradient."""
    trained = (weights != 0) & (step_ids >= 0)
    dtype = torch.promote_types(torch.promote_types(log_probs.dtype, old_log_probs.dtype), torch.float32)

    def known(x: torch.Tensor) -> torch.Tensor:
        return torch.where(trained, x, 0.0).to(dtype)

    old = known(old_log_probs)
    return Tokens(trained, known(log_probs) - old, known(log_probs), old, torch.where(trained, advantages, 0.0))


def clip(ratio: torch.Tensor, a: torch.Tensor, options: LossOptions) -> tuple[torch.Tensor, torch.Tensor]:
    """max(-A ratio, -A clip(ratio)), and where the second is larger."""
    free = -a * ratio
    bounded = -a * ratio.clamp(1 - options.clip_ratio_low, 1 + options.clip_ratio_high)
    return torch.maximum(free, bounded), bounded > free


def weighted_sum(
    losses: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor, is_weights: torch.Tensor | None
) -> torch.Tensor:
    factors = torch.where(trained, weights, 0.0)
    if is_weights is not None:
        factors = factors * torch.where(trained, is_weights, 0.0)
    return (losses * factors.detach()).sum()


def clip_metrics(t: Tokens, clipped: torch.Tensor | None, lower: torch.Tensor | None) -> dict[str, Tally]:
    never = torch.zeros_like(t.trained)
    return {
        "pg_clipfrac": mean(never if clipped is None else clipped, t.trained),
        "pg_clipfrac_lower": mean(never if lower is None else lower, t.trained),
        "ppo_kl": mean(-t.log_ratio, t.trained),
    }


def ratio_metrics(
    ratio: torch.Tensor, counted: torch.Tensor, log_ratio: torch.Tensor, options: LossOptions
) -> dict[str, Tally]:
    return {
        "ratio/mean": mean(ratio, counted),
        "ratio/max": maximum(ratio, counted),
        "ratio/moved": mean(log_ratio.detach().abs() > options.ratio_tolerance, counted),
    }


def token_metrics(
    t: Tokens, options: LossOptions, clipped: torch.Tensor | None, lower: torch.Tensor | None
) -> dict[str, Tally]:
    """The metrics of a loss with a ratio per token; a clip that is None never acts."""
    ratio = t.log_ratio.detach().clamp(-LARGEST, LARGEST).exp()
    return clip_metrics(t, clipped, lower) | ratio_metrics(ratio, t.trained, t.log_ratio, options)
