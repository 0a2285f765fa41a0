"""Estimators with a baseline for every token of a group (Li et al., The Optimal Token Baseline, PMLR 306).

$G_k$ is the sum of the rewards from token k of a trajectory on, $w_k = 1 - 2 p_k + sum_v p_v^2$ the squared norm of
the gradient of the token's log-probability by the logits, $W_k = w_1 + ... + w_k$ over the trajectory's tokens so far:

$A_k = G_k - B_k$, $B_k = (sum_j W_jk G_jk) / (sum_j W_jk)$ over the trajectories j of the group that have a token there

What is the same place in two trajectories is where the two estimators differ:

==============================  ======================================================================================
``optimal_token_baseline``      token k of step t, for the same t and k
``tir_optimal_token_baseline``  the k-th token that the policy wrote, in whichever step
==============================  ======================================================================================

Both are undiscounted and not whitened. A token without a counterpart in the group has baseline 0, as in verl, where
those are the end of the group's longest trajectory; the metric ``tokens_without_counterpart`` is their share. Where a
row is a step both are verl's; on whole episodes in one masked row, ``tir_optimal_token_baseline`` is. verl's
``optimal_token_baseline`` compares columns there, which what the environment said between two steps has moved.

Deviation from verl: the only trajectory of a group has advantage 0 and is counted.
"""

from __future__ import annotations

import torch

from agent_envs.adapters.estimators.critic import add_token_rewards, from_tokens
from agent_envs.adapters.estimators.groups import relative_scores
from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.adapters.estimators.segments import discounted_sums, lay_out, lay_out_tokens
from agent_envs.errors import ConfigError


def score_norms(log_probs: torch.Tensor, sum_pi_squared: torch.Tensor) -> torch.Tensor:
    """Return the squared norm of the gradient of each token's log-probability by the logits, shape [tokens].

    Args:
        log_probs: Log-probability of each token, shape [tokens].
        sum_pi_squared: Sum of the squared probabilities of the distribution it was drawn from, shape [tokens].

    >>> p = torch.tensor([0.5, 0.25, 0.25])  # the gradient by the logits is (1, 0, 0) - p
    >>> float(score_norms(p[:1].log(), (p * p).sum(0, keepdim=True))) == 0.5**2 + 0.25**2 + 0.25**2
    True
    """
    return 1.0 - 2.0 * log_probs.exp() + sum_pi_squared


def optimal_token_baseline(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """The optimal token baseline, token by token within a step; see the module's docstring.

    Two trajectories of one token with w 1 and 3 and rewards 1 and 0: $B = 1/4$, A is 3/4 and -1/4.

    Raises:
        ConfigError: There are no tokens, or their ``score_norms`` are missing.
    """
    return _compare(rows, "optimal_token_baseline", within_steps=True)


def tir_optimal_token_baseline(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """The optimal token baseline, token by token of the whole trajectory; see the module's docstring.

    Trajectories of tokens (1, 2) and (1), all $w = 1$, rewards 1 and 0 at the end: G is 1, 1 and 0; B at the first
    token 1/2, at the second 0; A is 1/2, 1 and -1/2.

    Raises:
        ConfigError: There are no tokens, or their ``score_norms`` are missing.
    """
    return _compare(rows, "tir_optimal_token_baseline", within_steps=False)


def _compare(rows: StepRows, estimator: str, *, within_steps: bool) -> Advantages:
    """Compare each token with the group's at the same place of the same step, or of the whole trajectory."""
    steps = lay_out(rows)
    tokens = lay_out_tokens(rows, steps, estimator)
    if rows.tokens is None or rows.tokens.score_norms is None:
        raise ConfigError(
            f"the estimator {estimator!r} needs the sums of squared probabilities: give TokenRows.score_norms"
        )
    _, metrics = relative_scores(steps, rows, by_std=False)
    counts = tokens.counts if within_steps else tokens.lengths
    within = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    step = steps.take(rows.step).long().repeat_interleave(counts) if within_steps else torch.zeros_like(within)
    reward = torch.zeros(len(within), dtype=torch.float64)
    add_token_rewards(reward, rows, steps, tokens, metrics)
    g = discounted_sums(reward, tokens.lengths, 1.0)
    # sums from the start are those from the end of the reversed trajectories
    w = discounted_sums(tokens.take(rows.tokens.score_norms).flip(0), tokens.lengths.flip(0), 1.0).flip(0)
    group, groups = steps.groups(rows)
    size = torch.bincount(group, minlength=groups)[group].repeat_interleave(tokens.lengths)
    group = group.repeat_interleave(tokens.lengths)
    place = torch.stack([group, step, within]).unique(dim=1, return_inverse=True)[1]  # [k]
    zeros = torch.zeros(int(place.max()) + 1 if len(place) else 0, dtype=torch.float64)
    weighted, total = zeros.index_add(0, place, g * w), zeros.index_add(0, place, w)
    alone = torch.bincount(place)[place] == 1
    baseline = torch.where(alone, 0.0, (weighted / (total + 1e-8))[place])
    metrics["tokens_without_counterpart"] = float(alone.double().mean()) if len(alone) else 0.0
    a = torch.where(size > 1, g - baseline, 0.0)
    return from_tokens(steps, EstimatorOptions(whiten=False), tokens, a, g, metrics)
