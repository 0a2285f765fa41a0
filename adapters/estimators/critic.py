"""gae (of steps; steppo and ppo use it), token_gae and bi_level_gae: estimators with a critic.

All of them (Schulman et al., arXiv 1506.02438, eq. 11-16) are $delta_k = r_k + gamma V_{k+1} - V_k$ and
$A_k = delta_k + gamma lam A_{k+1}$, and differ in what k counts and where V is read.

Deviation from the released code, for all three: a truncated trajectory bootstraps, with $V_T$ the value of its final
state, if that is known (``bootstrap_truncated=False`` is the released rule, $V_T = 0$).
"""

from __future__ import annotations

import torch

from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.adapters.estimators.segments import (
    StepLayout,
    TokenLayout,
    discounted_sums,
    lay_out,
    lay_out_tokens,
    masked_whiten,
    next_in_segment,
    whiten,
)
from agent_envs.errors import ConfigError


def gae(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """Step-level GAE (Agent-R1, arXiv 2511.14460; StepPO, arXiv 2604.18401).

    k counts steps; $V_t$ is the value of the state before acting, at the last prompt token:
    $delta_t = r_t + gamma V_{t+1} - V_t$, $A_t = delta_t + gamma lam A_{t+1}$, $R_t = A_t + V_t$. A is whitened over
    step rows, $(A - mean) / (std + 1e-8)$ with the unbiased std.

    Rewards 0, 1 and values 1/2, 1/4 with $gamma = 0.9$, $lam = 0.8$: $delta_1 = 1 - 1/4 = 0.75$,
    $delta_0 = 0.9/4 - 1/2 = -0.275$, $A_0 = -0.275 + 0.72 * 0.75 = 0.265$:

    >>> one = torch.tensor([0, 0])
    >>> rows = StepRows(torch.tensor([0.0, 1.0]), one, torch.tensor([0, 1]), one, one == 0, one > 0,
    ...                 values=torch.tensor([0.5, 0.25]))
    >>> out = gae(rows, EstimatorOptions(gamma=0.9, lam=0.8, whiten=False))
    >>> [round(a, 4) for a in out.advantages.tolist()], [round(r, 4) for r in out.returns.tolist()]
    ([0.265, 0.75], [0.765, 1.0])

    Raises:
        ConfigError: There are no values.
    """
    if rows.values is None:
        raise ConfigError("the estimator 'gae' needs values: train with a critic, or use 'grpo'")
    steps = lay_out(rows)
    v = steps.take(rows.values)
    final, metrics = steps.final_values(rows, options.bootstrap_truncated)
    gamma = steps.discount(rows, options.gamma)
    delta = steps.take(rows.rewards) + gamma * next_in_segment(v, steps.lengths, final) - v
    a = discounted_sums(delta, steps.lengths, gamma * options.lam)
    return Advantages(steps.spread(whiten(a) if options.whiten else a), steps.spread(a + v), metrics)


def token_gae(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GAE over the generated tokens of a trajectory: "PPO" in StepPO's comparison, and the stream layout's.

    k counts the tokens that the policy wrote; other tokens do not advance the recursion. Across a step boundary
    $V_{k+1}$ is the value of the following step's first token, and A carries over. The step's reward is on its last
    token. A is whitened over tokens, $(A - mean) / sqrt(var + 1e-8)$; $R = A + V$ before that, at every token. With
    gamma or lam below 1 the discount counts tokens.

    Two steps of 2 and 1 tokens, values .5, .4, .2, reward 1 at the end, $gamma = 1$, $lam = 0.5$: delta is -.1, -.2,
    .8, $A_2 = .8$, $A_1 = -.2 + .4 = .2$, $A_0 = -.1 + .1 = 0$.

    On one-step episodes this is verl's ``gae``, and on stream rows (tool tokens masked) too.

    Raises:
        ConfigError: There are no tokens, or they have no values.
    """
    steps = lay_out(rows)
    tokens = lay_out_tokens(rows, steps, "token_gae")
    v = _token_values(rows, tokens, "token_gae")
    final, metrics = steps.final_values(rows, options.bootstrap_truncated)
    delta = next_in_segment(v, tokens.lengths, final).mul_(options.gamma).sub_(v)
    add_token_rewards(delta, rows, steps, tokens, metrics)
    a = discounted_sums(delta, tokens.lengths, options.gamma * options.lam)
    return from_tokens(steps, options, tokens, a, a + v, metrics)


def bi_level_gae(rows: StepRows, options: EstimatorOptions) -> Advantages:
    """GAE over turns, then over the tokens of each turn (RAGEN, arXiv 2504.20073; its "bi-level GAE").

    First over turns with gamma_turn (0.95), where V_t is read at the turn's last token: A^turn_t, and the turn's return
    G_t = A^turn_t + V_t. Then over tokens within each turn, with G_t in the place of the turn's reward, nothing beyond
    the turn's end, and gamma and lam per token. A is whitened over tokens; R = A + V before that.

    Two turns of 2 and 1 tokens, values .5, .4, .2, rewards 0 and 1, gamma_turn = .5, gamma = lam = 1:
    delta_1 = 1 - .2 = .8, G_1 = 1; delta_0 = .5 * .2 - .4 = -.3, A_0 = -.3 + .5 * .8 = .1, G_0 = .5.
    Tokens: .5 - .5 = 0, .5 - .4 = .1, 1 - .2 = .8.

    Deviations from RAGEN's code: a turn is a step of the episode, so that one with reward 0 counts too (there a turn's
    end is a token whose reward is not 0). Rewards of tokens inside a turn (a KL in the reward) count in the turn's
    reward and are paid at their token, once: the turn's last token gets G_t minus them.

    Raises:
        ConfigError: There are no tokens, or they have no values.
    """
    steps = lay_out(rows)
    tokens = lay_out_tokens(rows, steps, "bi_level_gae")
    v = _token_values(rows, tokens, "bi_level_gae")
    final, metrics = steps.final_values(rows, options.bootstrap_truncated)
    written, last = tokens.written, tokens.last
    turns = torch.bincount(steps.trajectory[written], minlength=len(steps.lengths))
    reward = steps.take(rows.rewards)[written]
    v_turn = v[last]
    delta = reward + options.turn_gamma * next_in_segment(v_turn, turns, final) - v_turn
    turn_return = discounted_sums(delta, turns, options.turn_gamma * options.lam) + v_turn
    counts = tokens.counts[written]
    delta = next_in_segment(v, counts).mul_(options.gamma).sub_(v)
    add_token_rewards(delta, rows, steps, tokens, metrics)
    delta[last] += turn_return - reward
    a = discounted_sums(delta, counts, options.gamma * options.lam)
    return from_tokens(steps, options, tokens, a, a + v, metrics)


def add_token_rewards(
    x: torch.Tensor, rows: StepRows, steps: StepLayout, tokens: TokenLayout, metrics: dict[str, float]
) -> None:
    """Add the rewards of the tokens laid out to ``x`` (float64), in place: their own, or each step's on its last token.

    Steps whose reward has no token to sit on are counted in ``metrics``.
    """
    reward = steps.take(rows.rewards)
    metrics["rewards_without_tokens"] = float(((tokens.counts == 0) & (reward != 0)).sum())
    if rows.tokens is not None and rows.tokens.rewards is not None:
        x += tokens.take(rows.tokens.rewards)
    else:
        x[tokens.last] += reward[tokens.written]


def _token_values(rows: StepRows, tokens: TokenLayout, estimator: str) -> torch.Tensor:
    if rows.tokens is None or rows.tokens.values is None:
        raise ConfigError(f"the estimator {estimator!r} needs values of tokens: train with a critic, or use 'grpo'")
    return tokens.take(rows.tokens.values)


def from_tokens(
    steps: StepLayout, options: EstimatorOptions, tokens: TokenLayout, a: torch.Tensor, returns: torch.Tensor,
    metrics: dict[str, float],
) -> Advantages:  # fmt: skip
    """Return the result of an estimator over tokens, whitened over tokens if asked for; ``a`` has shape [tokens]."""
    white = masked_whiten(a) if options.whiten else a
    at_start = torch.zeros(len(tokens.counts), dtype=torch.float64)
    at_start[tokens.written] = returns[tokens.first[tokens.written]]
    return Advantages(
        steps.spread(tokens.step_means(white)),
        steps.spread(at_start),
        metrics,
        token_advantages=tokens.spread(white),
        token_returns=tokens.spread(returns),
    )


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
