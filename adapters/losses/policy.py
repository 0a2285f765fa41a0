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
``gpg``        ``reinforce`` under verl's name; GPG (arXiv 2504.02546) is this loss with the estimator ``gpg``
others         ``cispo``, ``clip_cov``, ``dppo_kl``, ``dppo_tv``, ``dro``, ``geo_mean``, ``kl_cov``, ``sapo``: see
               ``agent_envs.adapters.losses.variants``
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

from typing import Protocol

import torch

from agent_envs.adapters.losses import variants
from agent_envs.adapters.losses.tally import Tally
from agent_envs.adapters.losses.terms import (
    LARGEST,
    LossOptions,
    clip,
    clip_metrics,
    moved,
    ratio_metrics,
    token_metrics,
    weighted_sum,
)
from agent_envs.checks import choice, load_function
from agent_envs.errors import ConfigError

__all__ = [
    "LOSS_PRESETS", "POLICY_LOSSES", "PolicyLoss", "RatioWatch", "gspo", "loss_preset", "policy_loss",
    "reinforce", "vanilla",
]  # fmt: skip


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
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    a = torch.where(trained, advantages, 0.0)
    ratio = log_ratio.clamp(-LARGEST, LARGEST).exp()
    losses, clipped = clip(ratio, a, options)
    lower = torch.zeros_like(clipped)
    if options.clip_ratio_c is not None:
        bound = -a * options.clip_ratio_c
        lower = (a < 0) & (losses > bound)
        losses = torch.where(a < 0, torch.minimum(losses, bound), losses)
    metrics = token_metrics(trained, log_ratio, options, clipped, lower)
    return weighted_sum(losses, weights, trained, is_weights), metrics


def reinforce(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
    """-A log pi; the old log-probabilities are used for metrics only."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    losses = -torch.where(trained, advantages, 0.0) * torch.where(trained, log_probs, 0.0).to(log_ratio.dtype)
    return weighted_sum(losses, weights, trained, is_weights), token_metrics(trained, log_ratio, options)


def gspo(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
    step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
    """The clipped objective with one ratio per step; see the module's docstring."""
    trained, log_ratio = moved(log_probs, old_log_probs, weights, step_ids)
    step = step_ids.clamp(min=0)  # untrained tokens add 0 to step 0
    steps = int(step.max()) + 1 if step.numel() else 1
    counts = torch.zeros(steps, dtype=log_ratio.dtype, device=log_ratio.device)
    counts.index_add_(0, step, trained.to(counts.dtype))
    sums = torch.zeros_like(counts).index_add_(0, step, log_ratio.detach())
    log_s = sums / counts.clamp(min=1.0)  # [steps]
    own = torch.where(trained, log_probs - log_probs.detach(), 0.0)  # 0 with the gradient of lp
    s = (own + log_s[step]).clamp(max=10.0).exp()
    a = torch.where(trained, advantages, 0.0)
    losses, clipped = clip(s, a, options)
    metrics = clip_metrics(trained, clipped, torch.zeros_like(clipped), log_ratio)
    metrics |= ratio_metrics(log_s.clamp(max=10.0).exp(), counts > 0, log_s, options)
    return weighted_sum(losses, weights, trained, is_weights), metrics


_ALL: dict[str, PolicyLoss] = {
    "gpg": reinforce, "gspo": gspo, "pspo": gspo, "reinforce": reinforce, "steppo": gspo, "vanilla": vanilla,
    **variants.VARIANTS,
}  # fmt: skip
POLICY_LOSSES: dict[str, PolicyLoss] = dict(sorted(_ALL.items()))
"""Policy losses by name."""

LOSS_PRESETS: dict[str, LossOptions] = {
    "cispo": LossOptions(clip_ratio_low=1.0),  # no lower bound, as in the paper's runs
    "dppo_kl": LossOptions(clip_ratio_low=0.05, clip_ratio_high=0.05, clip_ratio_c=20.0),
    "dppo_tv": LossOptions(clip_ratio_low=0.15, clip_ratio_high=0.15, clip_ratio_c=20.0),
    "dro": LossOptions(dro_beta=1.0),
    "geo_mean": LossOptions(clip_ratio_low=0.4, clip_ratio_high=0.4),
    "pspo": LossOptions(clip_ratio_low=3e-4, clip_ratio_high=4e-4, clip_ratio_c=10.0),
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
    if name == "bypass_mode":
        raise ConfigError(
            "'bypass_mode' is no loss but verl's choice between vanilla and reinforce with corrected weights: name one "
            "of them, and set algorithm.rollout_correction.bypass_mode"
        )
    return POLICY_LOSSES[choice("the policy loss", name, POLICY_LOSSES)]


def loss_preset(name: str) -> LossOptions:
    """Return the default options of a policy loss. Raises ConfigError as ``policy_loss`` does."""
    policy_loss(name)
    return LOSS_PRESETS.get(name, LossOptions())


_WITHOUT_RATIO = ("dro", "gpg", "reinforce")


class RatioWatch:
    """Reports once, after ``patience`` training steps, that a run's ratios never left 1.

    With one mini-batch per batch, the policy being updated is the one that sampled: rho = 1 for every token, no clip
    acts, and ``steppo``, ``gspo``, ``pspo`` and ``vanilla`` are the same update.

    >>> watch = RatioWatch("steppo", patience=2)
    >>> watch.update(0.0), watch.update(0.0)[:33], watch.update(0.0)
    (None, 'no ratio of the steppo loss has l', None)

    Args:
        loss: Name of the policy loss.
        patience: Training steps to wait for.
        updates: Updates that a batch is divided into, if its old log-probabilities are computed by the trained model.
            With one update the ratios then differ from 1 by rounding alone, which in bfloat16 they always do.
    """

    def __init__(self, loss: str, patience: int = 3, updates: int | None = None) -> None:
        self.loss, self.patience, self.updates = loss, patience, updates
        self._still = 0  # training steps; -1 once a ratio has moved

    def update(self, moved: float) -> str | None:
        """Record a training step's ``ratio/moved`` (over its mini-batches); return the notice when it first applies."""
        if moved > 0 and self.updates != 1:
            self._still = -1
        if self._still < 0 or self.loss in _WITHOUT_RATIO:
            return None
        self._still += 1
        if self._still != self.patience:
            return None
        return (
            f"no ratio of the {self.loss} loss has left 1, but for rounding, in {self.patience} training steps: "
            "clipping never acts and the update equals the plain policy gradient. Use at least two mini-batches per "
            "batch (verl: a smaller ppo_mini_batch_size; PyTorch loop: mini_batches) or more than one epoch "
            "(ppo_epochs; epochs)"
        )
