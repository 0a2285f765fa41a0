"""Estimators from returns alone: no critic and no group."""

from __future__ import annotations

import torch

from agent_envs.adapters.estimators.critic import add_token_rewards, from_tokens
from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.adapters.estimators.segments import discounted_sums, lay_out, lay_out_tokens, whiten


def reinforce(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """REINFORCE over steps (Williams 1992; Agent-R1's ``reinforce``): $G_t = r_t + gamma G_{t+1}$, whitened over steps.

    $A = (G - mean) / (std + 1e-8)$ with the unbiased std. Goes with the loss ``reinforce``.

    Rewards 0 and 1 with $gamma = 1/2$: G is 1/2 and 1, mean 3/4, std 0.3536, A is -0.7071 and 0.7071.

    No deviation. Without a critic a trajectory that a limit ended counts nothing beyond it.
    """
    steps = lay_out(rows)
    g = discounted_sums(steps.take(rows.rewards), steps.lengths, steps.discount(rows, options.gamma))
    return Advantages(steps.spread(whiten(g) if options.whiten else g), steps.spread(g))


def reinforce_pp(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """REINFORCE++ (arXiv 2501.03262): the discounted return at every token of the whole trajectory.

    $G_k = r_k + gamma G_{k+1}$ over the tokens the policy wrote, across steps; the step's reward is on its last token,
    with a KL in the reward where there is one. $A = (G - mean) / sqrt(var + 1e-8)$ over all tokens.

    Two steps of 2 and 1 tokens, reward 1 at the end, $gamma = 1/2$: G is 1/4, 1/2 and 1.

    ``row_returns=True`` ends the sum at the step's last token, as StepPO and CAPO do, which apply verl's function to
    each step row by itself: a step without a reward of its own has return 0. On one-step episodes, and on stream rows,
    both are verl's ``reinforce_plus_plus``.

    Raises:
        ConfigError: There are no tokens.
    """
    steps = lay_out(rows)
    tokens = lay_out_tokens(rows, steps, "reinforce_pp")
    metrics: dict[str, float] = {}
    r = torch.zeros(int(tokens.lengths.sum()), dtype=torch.float64)
    add_token_rewards(r, rows, steps, tokens, metrics)
    g = discounted_sums(r, tokens.counts if options.row_returns else tokens.lengths, options.gamma)
    return from_tokens(steps, options, tokens, g, g, metrics)
