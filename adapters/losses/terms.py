"""What the policy losses are made of, the losses beside them, and metrics that add up exactly over micro-batches.

All are sums over flat tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch

from agent_envs.checks import number


class Tally(NamedTuple):
    """One metric of a part of a batch."""

    total: torch.Tensor
    """Sum over the counted elements, or the largest of them, scalar without a graph."""
    count: torch.Tensor
    """Number of elements, scalar."""
    largest: bool = False
    """Whether ``total`` is a maximum."""


def mean(x: torch.Tensor, counted: torch.Tensor) -> Tally:
    """Return the mean of ``x`` over the elements where ``counted``, a bool tensor of the same shape, is True."""
    return Tally(torch.where(counted, x.detach().double(), 0.0).sum(), counted.sum())


def maximum(x: torch.Tensor, counted: torch.Tensor) -> Tally:
    """Return the maximum of the elements where ``counted`` is True; minus infinity if there are none."""
    values = torch.where(counted, x.detach().double(), -torch.inf)
    return Tally(values.amax() if values.numel() else values.new_tensor(-torch.inf), counted.sum(), largest=True)


def merge(parts: Iterable[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Return the metrics of all parts together.

    >>> a = {"x": Tally(torch.tensor(3.0), torch.tensor(2))}
    >>> b = {"x": Tally(torch.tensor(6.0), torch.tensor(1))}
    >>> averages(merge([a, b]))
    {'x': 3.0}
    """
    out: dict[str, Tally] = {}
    for part in parts:
        for name, new in part.items():
            if (old := out.get(name)) is not None:
                total = torch.maximum(old.total, new.total) if old.largest else old.total + new.total
                new = Tally(total, old.count + new.count, old.largest)
            out[name] = new
    return out


def averages(metrics: Mapping[str, Tally]) -> dict[str, float]:
    """Return the metrics as numbers, without those that have no elements.

    >>> averages({"x": Tally(torch.tensor(0.0), torch.tensor(0))})
    {}
    """
    return {
        name: float(tally.total if tally.largest else tally.total / tally.count)
        for name, tally in metrics.items()
        if int(tally.count)
    }


LARGEST = 20.0
"""Of |lp - old| in a ratio per token, as in verl."""
LARGEST_OF_STEP = 10.0
"""Of the log of a ratio per step, as in verl."""
_STILL = 1e-5  # |log ratio| up to which a ratio counts as 1: float32 round-off between two passes


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
    mean_log_ratio: float | None = None
    """capo: mean of lp - old over the trained tokens of the mini-batch, all ranks; None for those at hand."""

    def __post_init__(self) -> None:
        for name in ("clip_ratio_low", "clip_ratio_high", "ppo_kl_coef"):
            number(name, getattr(self, name), minimum=0)
        for name in ("tau_pos", "tau_neg"):
            number(name, getattr(self, name), above=0)
        for name in ("clip_cov_ratio", "kl_cov_ratio"):
            number(name, getattr(self, name), above=0, maximum=1)
        for name in ("clip_cov_lb", "clip_cov_ub"):
            number(name, getattr(self, name))
        for name, above in (("mean_log_ratio", None), ("dro_beta", 0), ("clip_ratio_c", 1)):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=above)


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


@dataclass(frozen=True)
class Tokens:
    """What a policy loss reads of each token, 0 for untrained ones, in float32 at least; all of shape [tokens]."""

    trained: torch.Tensor
    log_ratio: torch.Tensor
    log_probs: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor
    step: torch.Tensor
    """The step of each, 0 for untrained ones, which add 0 to it."""
    is_weights: torch.Tensor | None = None

    @cached_property
    def counts(self) -> torch.Tensor:
        """How many trained tokens each step has, shape [steps]."""
        counts = self.log_ratio.new_zeros(int(self.step.max()) + 1 if self.step.numel() else 1)
        return counts.detach().index_add_(0, self.step, self.trained.to(counts.dtype))

    def step_means(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean of ``x``, shape [tokens], over the trained tokens of each step, shape [steps]."""
        values = torch.where(self.trained, x, 0.0).to(self.counts.dtype)
        return torch.zeros_like(self.counts).index_add(0, self.step, values) / self.counts.clamp(min=1.0)


class TokenLosses(NamedTuple):
    """What the tokens of a micro-batch lose."""

    losses: torch.Tensor
    """Of each token, shape [tokens]."""
    clipped: torch.Tensor | None = None
    """Where an upper clip acts, shape [tokens]; None for one that never does."""
    lower: torch.Tensor | None = None
    """Where a lower one does."""
    log_ratios: torch.Tensor | None = None
    """Log ratio of each step, shape [steps]; None where each token has its own."""
    corrected: bool = False
    """Whether ``is_weights`` are in the losses already."""


def policy_loss_of(function: Callable[[Tokens, LossOptions], TokenLosses]) -> PolicyLoss:
    """Make a policy loss of what a token loses."""

    @functools.wraps(function)
    def loss(
        log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, weights: torch.Tensor,
        step_ids: torch.Tensor, options: LossOptions, is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
        trained = (weights != 0) & (step_ids >= 0)
        dtype = torch.promote_types(torch.promote_types(log_probs.dtype, old_log_probs.dtype), torch.float32)

        def known(x: torch.Tensor) -> torch.Tensor:  # a NaN of an untrained token reaches neither loss nor gradient
            return torch.where(trained, x, 0.0)

        new, old = known(log_probs).to(dtype), known(old_log_probs).to(dtype)
        t = Tokens(trained, new - old, new, old, known(advantages), step_ids.clamp(min=0), is_weights)
        out = function(t, options)
        factors = known(weights)
        if is_weights is not None and not out.corrected:
            factors = factors * known(is_weights)
        never, counted, log_ratio = torch.zeros_like(trained), trained, t.log_ratio.detach()
        ratio = log_ratio.clamp(-LARGEST, LARGEST).exp()
        if out.log_ratios is not None:
            counted, log_ratio, ratio = t.counts > 0, out.log_ratios, out.log_ratios.clamp(max=LARGEST_OF_STEP).exp()
        return (out.losses * factors.detach()).sum(), {
            "pg_clipfrac": mean(never if out.clipped is None else out.clipped, trained),
            "pg_clipfrac_lower": mean(never if out.lower is None else out.lower, trained),
            "ppo_kl": mean(-t.log_ratio, trained),
            "ratio/mean": mean(ratio, counted),
            "ratio/max": maximum(ratio, counted),
            "ratio/moved": mean(log_ratio.abs() > _STILL, counted),
        }

    return loss


def clip(ratio: torch.Tensor, a: torch.Tensor, options: LossOptions) -> tuple[torch.Tensor, torch.Tensor]:
    """$max(-A ratio, -A clip(ratio))$, and where the second is larger."""
    free = -a * ratio
    bounded = -a * ratio.clamp(1 - options.clip_ratio_low, 1 + options.clip_ratio_high)
    return torch.maximum(free, bounded), bounded > free


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, weights: torch.Tensor, *,
    clip: float | None = None,
) -> tuple[torch.Tensor, dict[str, Tally]]:  # fmt: skip
    """$sum_k w_k/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)$ over tokens k.

    The weights select the tokens that the critic learns at: the first of every step for the value of the state before
    acting (``action_start``), all trained ones for token-level estimators.

    Args:
        values: The critic's values, with a graph, shape [tokens].
        old_values: Its values when the batch was made, shape [tokens].
        returns: Its targets, shape [tokens].
        weights: 0 where it does not learn, shape [tokens].
        clip: Maximum distance of a value from the old one; None for no limit.

    Returns:
        The loss, and ``vf_clipfrac`` and ``vpred_mean`` over the tokens it learns at.

    >>> zero, one = torch.tensor([0.0]), torch.tensor([1.0])
    >>> float(value_loss(one, zero, torch.tensor([3.0]), one, clip=0.5)[0])  # max((1 - 3)^2, (.5 - 3)^2) / 2
    3.125
    """
    learned = weights != 0
    v, old, r = (torch.where(learned, x, 0.0) for x in (values, old_values, returns))
    free = (v - r).square()
    losses, clipped = free, torch.zeros_like(learned)
    if clip is not None:
        bounded = (torch.maximum(torch.minimum(v, old + clip), old - clip) - r).square()
        losses, clipped = torch.maximum(free, bounded), bounded > free
    return 0.5 * (losses * weights).sum(), {"vf_clipfrac": mean(clipped, learned), "vpred_mean": mean(v, learned)}


def entropy_loss(entropy: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, dict[str, Tally]]:
    """Return sum(weights * entropy), and ``entropy``: its mean over trained tokens.

    Subtract it, times a coefficient, to keep the policy exploring. ``entropy`` is that of the distribution each token
    was drawn from (nats), shape [tokens].
    """
    trained = weights != 0
    kept = torch.where(trained, entropy, 0.0)
    return (kept * weights).sum(), {"entropy": mean(kept, trained)}


def label_loss(log_probs: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, dict[str, Tally]]:
    """Return sum(weights * -log_probs), the cross-entropy of a teacher's labels, and ``label_loss``: its mean.

    Both of shape [tokens]; the weights are 0 for tokens of no label.
    """
    nats = torch.where(weights != 0, -log_probs, 0.0)
    return (nats * weights).sum(), {"label_loss": mean(nats, weights != 0)}
