"""Further policy losses that verl registers, over steps: a row of verl is one step.

With lp, old, A, rho = exp(lp - old) as in ``policy``, p = exp(lp), q = exp(old) and sg[] without a gradient:

============  ========================================================================================================
``cispo``     MiniMax-M1 (arXiv 2506.13585, eq. 4-5): L = -sg[clip(rho, 1-e_l, 1+e_h)] A lp
``dppo_tv``   DPPO with the binary total variation (arXiv 2602.04879): L = -sg[min(rho, c)] A lp where the policy has
              not moved too far in the direction that A asks for, p - q <= e_h for A > 0 and q - p <= e_l elsewhere; 0
              otherwise. e_l and e_h are bounds of the divergence, c is ``clip_ratio_c``
``dppo_kl``   the same with the binary divergence q log(q/p) + (1-q) log((1-q)/(1-p)) in place of the variation
``dro``       L = -(A lp - beta/2 (lp - old)^2), after arXiv 2405.19107; ``dro_beta`` must be set
``geo_mean``  GMPO (arXiv 2507.20673, eq. 4): one ratio per step, s = exp(mean of its tokens' clipped log ratios),
              L = -A s, with log ratios clipped to [-e_l, e_h] where A asks for more; A is the mean over the step
``sapo``      SAPO (arXiv 2511.20347): L = -A 4/tau sigmoid(tau (rho - 1)), tau = tau_pos for A > 0, else tau_neg
``clip_cov``  Clip-Cov (arXiv 2505.22617, sec. 4.2): the clipped objective without a few tokens, drawn among those whose
              (A - mean A)(lp - mean lp) is between two bounds
``kl_cov``    KL-Cov (same paper): L = -A rho, with ``ppo_kl_coef`` |lp - old| added on the tokens where that product is
              largest
============  ========================================================================================================

The two covariances and their means are over the trained tokens of a micro-batch, as in verl: these two losses depend on
how micro-batches are cut, the others do not.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from agent_envs.adapters.losses.tally import Tally
from agent_envs.adapters.losses.terms import LARGEST, LossOptions, clip, moved, token_metrics, weighted_sum
from agent_envs.errors import ConfigError

__all__ = ["VARIANTS", "cispo", "clip_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "kl_cov", "sapo"]

_Result = tuple[torch.Tensor, dict[str, Tally]]


def cispo(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """The policy gradient with clipped importance weights; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    ratio = log_ratio.detach().clamp(-LARGEST, LARGEST).exp()
    bounded = ratio.clamp(1 - options.clip_ratio_low, 1 + options.clip_ratio_high)
    losses = -bounded * torch.where(trained, advantages, 0.0) * _of(log_probs, trained, log_ratio)
    metrics = token_metrics(trained, log_ratio, options, bounded != ratio)
    return weighted_sum(losses, weights, trained, is_weights), metrics


def dppo_tv(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """DPPO with the binary total variation; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    p, q = _probabilities(log_probs, old_log_probs, trained, log_ratio)
    kept = torch.where(advantages > 0, p - q <= options.clip_ratio_high, q - p <= options.clip_ratio_low)
    return _dppo(log_probs, advantages, weights, trained, log_ratio, kept, options, is_weights)


def dppo_kl(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """DPPO with the binary Kullback-Leibler divergence; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    p, q = _probabilities(log_probs, old_log_probs, trained, log_ratio)
    divergence = -q * log_ratio.detach() + (1 - q) * ((1 - q + 1e-8) / (1 - p + 1e-8)).log()
    up = (divergence <= options.clip_ratio_high) | (p <= q)
    down = (divergence <= options.clip_ratio_low) | (p >= q)
    kept = torch.where(advantages > 0, up, down)
    return _dppo(log_probs, advantages, weights, trained, log_ratio, kept, options, is_weights)


def _dppo(
    log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor,
    log_ratio: torch.Tensor, kept: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None,
) -> _Result:  # fmt: skip
    ratio = log_ratio.detach().clamp(-LARGEST, LARGEST).exp()
    truncated = ratio.clamp(max=options.clip_ratio_c or math.inf)
    losses = -torch.where(trained & kept, advantages, 0.0) * truncated * _of(log_probs, trained, log_ratio)
    metrics = token_metrics(trained, log_ratio, options, ~kept, kept & (ratio > truncated))
    return weighted_sum(losses, weights, trained, is_weights), metrics


def dro(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """Direct reward optimisation; see the module's docstring."""
    if options.dro_beta is None:
        raise ConfigError("the loss dro needs dro_beta, the coefficient of its squared log ratio, above 0")
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    a = torch.where(trained, advantages, 0.0)
    losses = 0.5 * options.dro_beta * log_ratio.square() - a * _of(log_probs, trained, log_ratio)
    return weighted_sum(losses, weights, trained, is_weights), token_metrics(trained, log_ratio, options)


def geo_mean(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """The geometric mean of a step's clipped ratios; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    step = step_ids.clamp(min=0)
    steps = int(step.max()) + 1 if step.numel() else 1
    zeros = torch.zeros(steps, dtype=log_ratio.dtype, device=log_ratio.device)
    counts = zeros.index_add(0, step, trained.to(zeros.dtype)).clamp(min=1.0)  # [steps]

    def over_step(x: torch.Tensor) -> torch.Tensor:
        return zeros.index_add(0, step, torch.where(trained, x, 0.0).to(zeros.dtype)) / counts

    a = torch.where(trained, advantages, 0.0)
    bounded, sign = log_ratio.clamp(-options.clip_ratio_low, options.clip_ratio_high), a.sign()
    s = over_step(sign * torch.minimum(sign * log_ratio, sign * bounded)).exp()
    losses = -(over_step(a) * s)[step]
    if is_weights is not None:
        losses = losses * over_step((torch.where(trained, is_weights, 1.0) + 1e-10).log()).exp().detach()[step]
    clipped = bounded != log_ratio
    metrics = token_metrics(trained, log_ratio, options, clipped & (a > 0), clipped & (a < 0))
    return weighted_sum(losses, weights, trained, None), metrics


def sapo(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """A soft gate in place of the clip; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    ratio, a = log_ratio.clamp(-LARGEST, LARGEST).exp(), torch.where(trained, advantages, 0.0)
    tau = torch.where(a > 0, options.tau_pos, options.tau_neg).to(ratio.dtype)
    losses = -a * torch.sigmoid(tau * (ratio - 1.0)) * (4.0 / tau)
    return weighted_sum(losses, weights, trained, is_weights), token_metrics(trained, log_ratio, options)


def clip_cov(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """The clipped objective without a few tokens of large covariance; see the module's docstring.

    The tokens are drawn from a generator that starts anew in each micro-batch, so a resumed run draws the same.
    """
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    a, ratio = torch.where(trained, advantages, 0.0), log_ratio.exp()
    losses, clipped = clip(ratio, a, options)
    covariance = _covariance(log_probs, a, trained, log_ratio)
    may = trained & ~clipped & (covariance > options.clip_cov_lb) & (covariance < options.clip_cov_ub)
    found = may.nonzero().squeeze(1)
    count = max(int(options.clip_cov_ratio * int(trained.sum())), 1)
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(len(found)))
    left_out = torch.zeros_like(trained)
    left_out[found[order[:count].to(found.device)]] = True
    metrics = token_metrics(trained, log_ratio, options, left_out)
    return weighted_sum(losses.masked_fill(left_out, 0.0), weights, trained, is_weights), metrics


def kl_cov(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> _Result:  # fmt: skip
    """The objective without a clip, penalised where the covariance is largest; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    a, ratio = torch.where(trained, advantages, 0.0), log_ratio.exp()
    count = int(trained.sum())
    count = min(count, max(1, int(count * options.kl_cov_ratio)))
    covariance = _covariance(log_probs, a, trained, log_ratio).masked_fill(~trained, -torch.inf)
    penalised = torch.zeros_like(trained)
    penalised[covariance.topk(count).indices] = True
    losses = -a * ratio + torch.where(penalised, options.ppo_kl_coef * log_ratio.abs(), 0.0)
    metrics = token_metrics(trained, log_ratio, options, penalised)
    return weighted_sum(losses, weights, trained, is_weights), metrics


VARIANTS: dict[str, Any] = {
    "cispo": cispo, "clip_cov": clip_cov, "dppo_kl": dppo_kl, "dppo_tv": dppo_tv, "dro": dro, "geo_mean": geo_mean,
    "kl_cov": kl_cov, "sapo": sapo,
}  # fmt: skip
"""The losses of this module by name."""


def _of(log_probs: torch.Tensor, trained: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The log-probabilities of the trained tokens, 0 elsewhere."""
    return torch.where(trained, log_probs, 0.0).to(like.dtype)


def _probabilities(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, trained: torch.Tensor, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _of(log_probs, trained, like).detach().exp(), _of(old_log_probs, trained, like).exp()


def _covariance(log_probs: torch.Tensor, a: torch.Tensor, trained: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """(A - mean A)(lp - mean lp) of each token, with means over the trained ones, shape [tokens]."""
    lp, count = _of(log_probs.detach(), trained, like), trained.sum().clamp(min=1)
    return (a - a.sum() / count) * (lp - lp.sum() / count)
