"""The critic's loss, a teacher's labels and the policy's entropy: sums over flat tokens, like all losses here."""

from __future__ import annotations

import torch

from agent_envs.adapters.losses.tally import Tally, mean


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
