"""Estimators by name, with what a trainer must bring for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent_envs.adapters.estimators.checks import check_rows, note_zero_advantages
from agent_envs.adapters.estimators.critic import bi_level_gae, gae, token_gae
from agent_envs.adapters.estimators.gigpo import gigpo
from agent_envs.adapters.estimators.groups import grpo, reinforce_pp_baseline, remax, rloo
from agent_envs.adapters.estimators.returns import reinforce, reinforce_pp
from agent_envs.adapters.estimators.rows import Advantages, EstimatorOptions, StepRows
from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["ESTIMATORS", "Estimator", "get_estimator"]


@dataclass(frozen=True)
class Estimator:
    """An estimator and what a trainer must know to use it."""

    name: str
    """What ``algorithm.adv_estimator`` calls it."""
    function: Callable[[StepRows, EstimatorOptions], Advantages]
    """The formula."""
    needs_critic: bool = False
    """Whether rows must carry values."""
    critic_at_action_start: bool = False
    """Whether the critic learns only at the first response position (the value of the state before acting)."""
    needs_tokens: bool = False
    """Whether rows must carry their tokens; with a critic, those carry the values."""
    needs_baseline: bool = False
    """Whether each group plays a greedy episode besides, whose return the rows carry."""
    needs_anchors: bool = False
    """Whether rows must carry the states before acting."""
    compares_groups: bool = False
    """Whether trajectories are compared within their group: groups of one teach nothing."""

    def compute(self, rows: StepRows, options: EstimatorOptions) -> Advantages:
        """Check the rows, apply the formula, count what is worth a warning.

        Raises:
            ConfigError: The rows lack what the estimator needs.
            DataError: Numbers or indices that cannot be: names the trajectory.
        """
        counts = check_rows(rows, options.group_size if self.compares_groups else None)
        result = self.function(rows, options)
        counts |= result.metrics | note_zero_advantages(result.advantages, rows.valid, self.name)
        return replace(result, metrics=counts)


ESTIMATORS: dict[str, Estimator] = {
    e.name: e
    for e in (
        Estimator("bi_level_gae", bi_level_gae, needs_critic=True, needs_tokens=True),
        Estimator("gae", gae, needs_critic=True, critic_at_action_start=True),
        Estimator("gigpo", gigpo, needs_anchors=True, compares_groups=True),
        Estimator("grpo", grpo, compares_groups=True),
        Estimator("reinforce", reinforce),
        Estimator("reinforce_pp", reinforce_pp, needs_tokens=True),
        Estimator("reinforce_pp_baseline", reinforce_pp_baseline, needs_tokens=True, compares_groups=True),
        Estimator("remax", remax, needs_baseline=True),
        Estimator("rloo", rloo, compares_groups=True),
        Estimator("token_gae", token_gae, needs_critic=True, needs_tokens=True),
    )
}
"""Estimators by name."""


def get_estimator(name: str) -> Estimator:
    """The estimator called ``name``.

    Raises:
        ConfigError: There is none; lists what there is.
    """
    try:
        return ESTIMATORS[name]
    except KeyError:
        raise ConfigError(f"unknown advantage estimator {name!r}.{did_you_mean(name, ESTIMATORS)}") from None
