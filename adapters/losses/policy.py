"""Policy losses: the contribution of each token, given how far the policy has moved since it was sampled.

With lp and old the log-probabilities of a token now and when the batch was made, A its advantage, w its weight, and
rho = exp(lp - old):

=============  ======================================================================================================
``vanilla``    PPO's clipped objective (arXiv 1707.06347, eq. 7) with the dual clip (arXiv 1912.09729):
               L = max(-A rho, -A clip(rho, 1-e_l, 1+e_h));  where A < 0: L = min(L, -A c)
``reinforce``  L = -A lp, without ratio and clip (Williams 1992)
``gspo``       GSPO-token (arXiv 2507.18071, eq. 13-14) with a step as the sequence: s = exp(mean over the step's tokens
               of (lp - old)), token form s_k = sg[s] pi_k / sg[pi_k];  L = max(-A s_k, -A clip(s_k, 1-e_l, 1+e_h))
``steppo``     the same function: StepPO (arXiv 2604.18401) is ``gspo`` over steps with the estimator ``gae``
``pspo``       the same function with PaperScout's clip, 3e-4 and 4e-4 (``loss_preset("pspo")``)
=============  ======================================================================================================

Details: lp - old is clamped to +-20 in ``vanilla``, and the log of s_k to at most 10, both as in verl; ``gspo`` has no
dual clip. All tokens of a step have the same s, so a step is clipped as a whole. In verl a row is one step; here step
ids mark the steps, and a row may hold several.

    One step of two tokens with ratios e^0.1 and e^0.3, advantage 1: vanilla takes min(1.105, 1.2) and min(1.350, 1.2),
    gspo takes the step's s = e^0.2 = 1.221 for both, beyond the clip:

    >>> lp, old = torch.tensor([-1.0, -1.0]), torch.tensor([-1.1, -1.3])
    >>> batch = lp, old, torch.ones(2), torch.full((2,), 0.5), torch.zeros(2, dtype=torch.int64), LossOptions()
    >>> round(float(vanilla(*batch)[0]), 4)  # -(1.10517 + 1.2) / 2
    -1.1526
    >>> round(float(gspo(*batch)[0]), 4)
    -1.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from agent_envs.adapters.losses.tally import Tally, maximum, mean
from agent_envs.checks import choice, load_function, number

__all__ = [
    "LOSS_PRESETS", "POLICY_LOSSES", "LossOptions", "PolicyLoss", "RatioWatch", "gspo", "loss_preset", "policy_loss",
    "reinforce", "vanilla",
]  # fmt: skip


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
    ratio_tolerance: float = 1e-5
    """Metrics: |log ratio| up to which a ratio counts as 1 (float32 round-off between two passes)."""

    def __post_init__(self) -> None:
        for name in ("clip_ratio_low", "clip_ratio_high", "ratio_tolerance"):
            number(name, getattr(self, name), minimum=0)
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


def vanilla(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
    """PPO's clipped objective with the dual clip; see the module's docstring."""
    trained, log_ratio = _log_ratio(log_probs, old_log_probs, weights, step_ids)
    a = torch.where(trained, advantages, 0.0)
    ratio = log_ratio.clamp(-20.0, 20.0).exp()
    losses, clipped = _clip(ratio, a, options)
    lower = torch.zeros_like(clipped)
    if options.clip_ratio_c is not None:
        bound = -a * options.clip_ratio_c
        lower = (a < 0) & (losses > bound)
        losses = torch.where(a < 0, torch.minimum(losses, bound), losses)
    metrics = _metrics(trained, clipped, lower, log_ratio) | _ratio_metrics(ratio, trained, log_ratio, options)
    return _total(losses, weights, trained, is_weights), metrics


def reinforce(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
    """-A log pi; the old log-probabilities are used for metrics only."""
    trained, log_ratio = _log_ratio(log_probs, old_log_probs, weights, step_ids)
    losses = -torch.where(trained, advantages, 0.0) * torch.where(trained, log_probs, 0.0).to(log_ratio.dtype)
    none = torch.zeros_like(trained)
    ratio = log_ratio.detach().clamp(-20.0, 20.0).exp()
    metrics = _metrics(trained, none, none, log_ratio) | _ratio_metrics(ratio, trained, log_ratio, options)
    return _total(losses, weights, trained, is_weights), metrics


def gspo(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
    """The clipped objective with one ratio per step; see the module's docstring."""
    trained, log_ratio = _log_ratio(log_probs, old_log_probs, weights, step_ids)
    step = step_ids.clamp(min=0)  # untrained tokens add 0 to step 0
    steps = int(step.max()) + 1 if step.numel() else 1
    counts = torch.zeros(steps, dtype=log_ratio.dtype, device=log_ratio.device)
    counts.index_add_(0, step, trained.to(counts.dtype))
    sums = torch.zeros_like(counts).index_add_(0, step, log_ratio.detach())
    log_s = sums / counts.clamp(min=1.0)  # [steps]
    own = torch.where(trained, log_probs - log_probs.detach(), 0.0)  # 0 with the gradient of lp
    s = (own + log_s[step]).clamp(max=10.0).exp()
    a = torch.where(trained, advantages, 0.0)
    losses, clipped = _clip(s, a, options)
    metrics = _metrics(trained, clipped, torch.zeros_like(clipped), log_ratio)
    metrics |= _ratio_metrics(log_s.clamp(max=10.0).exp(), counts > 0, log_s, options)
    return _total(losses, weights, trained, is_weights), metrics


POLICY_LOSSES: dict[str, PolicyLoss] = {
    "gspo": gspo, "pspo": gspo, "reinforce": reinforce, "steppo": gspo, "vanilla": vanilla
}  # fmt: skip
"""Policy losses by name."""

LOSS_PRESETS: dict[str, LossOptions] = {
    "pspo": LossOptions(clip_ratio_low=3e-4, clip_ratio_high=4e-4, clip_ratio_c=10.0)
}
"""The options of losses whose defaults differ from those of ``LossOptions``."""


def policy_loss(name: str) -> PolicyLoss:
    """Return a policy loss by name.

    Args:
        name: One of ``POLICY_LOSSES``, or ``module:name`` of a ``PolicyLoss`` of your own. The module is imported.

    Raises:
        ConfigError: There is no such loss; lists the names.
    """
    if ":" in name:
        return load_function(name, "the policy loss")
    return POLICY_LOSSES[choice("the policy loss", name, POLICY_LOSSES)]


def loss_preset(name: str) -> LossOptions:
    """Return the default options of a policy loss. Raises ConfigError as ``policy_loss`` does."""
    policy_loss(name)
    return LOSS_PRESETS.get(name, LossOptions())


class RatioWatch:
    """Reports once, after ``patience`` training steps, that a run's ratios never left 1.

    With one mini-batch per batch, the policy being updated is the one that sampled: rho = 1 for every token, no clip
    acts, and ``steppo``, ``gspo``, ``pspo`` and ``vanilla`` are the same update.

    >>> watch = RatioWatch("steppo", patience=2)
    >>> watch.update(0.0), watch.update(0.0)[:33], watch.update(0.0)
    (None, 'no ratio of the steppo loss has l', None)
    """

    def __init__(self, loss: str, patience: int = 3) -> None:
        self.loss, self.patience = loss, patience
        self._still = 0  # training steps; -1 once a ratio has moved

    def update(self, moved: float) -> str | None:
        """Record a training step's ``ratio/moved`` (over its mini-batches); return the notice when it first applies."""
        if moved > 0:
            self._still = -1
        if self._still < 0 or self.loss == "reinforce":
            return None
        self._still += 1
        if self._still != self.patience:
            return None
        return (
            f"no ratio of the {self.loss} loss has left 1 in {self.patience} training steps: clipping never acts and "
            "the update equals the plain policy gradient. Use at least two mini-batches per batch (verl: a smaller "
            "ppo_mini_batch_size; PyTorch loop: mini_batches) or more than one epoch (ppo_epochs; epochs)"
        )


def _log_ratio(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, weights: torch.Tensor, step_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which tokens are trained, and lp - old for those, 0 for others; at least float32."""
    trained = (weights != 0) & (step_ids >= 0)
    dtype = torch.promote_types(torch.promote_types(log_probs.dtype, old_log_probs.dtype), torch.float32)
    # Both are replaced before the subtraction: a NaN of an untrained token reaches neither the loss nor a gradient.
    new = torch.where(trained, log_probs, 0.0).to(dtype)
    old = torch.where(trained, old_log_probs, 0.0).to(dtype)
    return trained, new - old


def _clip(ratio: torch.Tensor, a: torch.Tensor, options: LossOptions) -> tuple[torch.Tensor, torch.Tensor]:
    """max(-A ratio, -A clip(ratio)), and where the second is larger."""
    free = -a * ratio
    bounded = -a * ratio.clamp(1 - options.clip_ratio_low, 1 + options.clip_ratio_high)
    return torch.maximum(free, bounded), bounded > free


def _total(
    losses: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor, is_weights: torch.Tensor | None
) -> torch.Tensor:
    factors = torch.where(trained, weights, 0.0)
    if is_weights is not None:
        factors = factors * torch.where(trained, is_weights, 0.0)
    return (losses * factors.detach()).sum()


def _metrics(
    trained: torch.Tensor, clipped: torch.Tensor, lower: torch.Tensor, log_ratio: torch.Tensor
) -> dict[str, Tally]:
    return {
        "pg_clipfrac": mean(clipped, trained),
        "pg_clipfrac_lower": mean(lower, trained),
        "ppo_kl": mean(-log_ratio, trained),
    }


def _ratio_metrics(
    ratio: torch.Tensor, counted: torch.Tensor, log_ratio: torch.Tensor, options: LossOptions
) -> dict[str, Tally]:
    return {
        "ratio/mean": mean(ratio, counted),
        "ratio/max": maximum(ratio, counted),
        "ratio/moved": mean(log_ratio.detach().abs() > options.ratio_tolerance, counted),
    }
