"""Advantage estimators over (trajectory, step): pure tensor functions, no trainer import.

A row is one step of one trajectory: a prompt and the response sampled for it, wherever its tokens are in a trainer's
batch. ``StepRows`` hold the data of the steps, and ``TokenRows`` their tokens for estimators that work on tokens.

    estimator = get_estimator("gae")
    result = estimator(rows, EstimatorOptions(gamma=0.99))
    advantages, returns = result.on_tokens(rows.tokens.step_row)    # [tokens]

=========================  ==============  ===========================================================================
name                       advantage of    formula, for trajectory i, step t, token k, score $S_i = sum_t r_t$
=========================  ==============  ===========================================================================
``gae``                    steps, critic   $delta_t = r_t + gamma V_{t+1} - V_t$, $A_t = delta_t + gamma lam A_{t+1}$
``token_gae``              tokens, critic  the same over the tokens of the whole trajectory
``bi_level_gae``           tokens, critic  over turns first, then over tokens with the turns' returns as rewards
``grpo``                   trajectories    $(S_i - mean_g) / (std_g + 1e-6)$; Dr.GRPO: $S_i - mean_g$
``rloo``                   trajectories    $S_i$ - mean of the group's other scores
``reinforce``              steps           $G_t = r_t + gamma G_{t+1}$, whitened over steps
``reinforce_pp``           tokens          $G_k = r_k + gamma G_{k+1}$ over the trajectory, whitened over tokens
``reinforce_pp_baseline``  trajectories    $S_i - mean_g$, whitened over tokens
``remax``                  trajectories    $S_i$ - the return of the group's greedy episode
``gdpo``                   trajectories    $sum_k w_k (S_ik - mean_gk) / (std_gk + 1e-6)$ over the reward's components
                                           k, whitened over tokens
``gigpo``                  steps           grpo + w ($G_t$ compared among steps from the same state)
two token baselines        tokens          ``optimal_token_baseline``, ``tir_optimal_token_baseline``: see the module
others                     trajectories    ``gpg``, ``grpo_passk``, ``opo``: see ``groups``
=========================  ==============  ===========================================================================

Each function's docstring has its paper, a worked example and its differences from the released code. For all of
them: rows that are not valid (padding, broken episodes) enter no sum, mean or deviation and have advantage 0; the order
of rows does not matter; equal numbers are whitened to 0.

Before an estimator runs, ``process_rewards`` mixes reward components, ``RewardScale`` scales rewards, and
``check_log_probs`` and ``check_episodes`` check what is not in the rows.
"""

from agent_envs.errors import needs_extra

with needs_extra("hf"):
    import torch  # noqa: F401

from agent_envs.adapters.estimators.checks import check_episodes, check_log_probs, check_rows, say_once
from agent_envs.adapters.estimators.critic import bi_level_gae, gae, reinforce, reinforce_pp, token_gae
from agent_envs.adapters.estimators.groups import gigpo, grpo, reinforce_pp_baseline, remax, rloo
from agent_envs.adapters.estimators.process import (
    ProcessRewards,
    RewardScale,
    component_table,
    prime_normalised,
    process_rewards,
)
from agent_envs.adapters.estimators.registry import ESTIMATORS, Estimator, get_estimator
from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows, TokenRows
from agent_envs.adapters.estimators.segments import masked_whiten, whiten
from agent_envs.adapters.estimators.token_baselines import score_norms

__all__ = [
    "ESTIMATORS", "Advantages", "Estimator", "EstimatorOptions", "ProcessRewards", "RewardScale", "StepRows",
    "TokenRows", "bi_level_gae", "check_episodes", "check_log_probs", "check_rows", "component_table", "gae",
    "get_estimator", "gigpo", "grpo", "masked_whiten", "prime_normalised", "process_rewards", "reinforce",
    "reinforce_pp", "reinforce_pp_baseline", "remax", "rloo", "say_once", "score_norms", "token_gae", "whiten",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
