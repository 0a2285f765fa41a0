"""Algorithms by name: which estimator, which loss, and the settings that make it that algorithm.

Every estimator is an algorithm of its own name; the other names are pairs that were published under them. Weighting, KL
and clips that a paper merely used are a preset's business.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_envs.adapters.estimators import ESTIMATORS, Estimator, get_estimator
from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["ALGORITHMS", "Algorithm", "get_algorithm"]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What ``--algo`` stands for."""

    name: str
    """Name on the command line."""
    estimator_name: str
    """Advantages and returns."""
    loss: str = "vanilla"
    """The policy's loss."""
    overrides: tuple[str, ...] = ()
    """Further verl settings, in Hydra's form."""

    @property
    def estimator(self) -> Estimator:
        """The estimator and what it needs."""
        return get_estimator(self.estimator_name)

    @property
    def settings(self) -> list[str]:
        """verl's settings, in Hydra's form."""
        return [
            f"algorithm.adv_estimator={self.estimator_name}",
            f"actor_rollout_ref.actor.policy_loss.loss_mode={self.loss}",
            f"critic.enable={self.estimator.needs_critic}",
            *self.overrides,
        ]


_PUBLISHED = (
    Algorithm("dr_grpo", "grpo", overrides=("algorithm.norm_adv_by_std_in_grpo=False",)),
    Algorithm("gspo", "grpo", "gspo"),
    Algorithm("ppo", "gae"),
    Algorithm(
        "pspo",
        "gae",
        "pspo",
        (
            "actor_rollout_ref.actor.clip_ratio_low=3e-4",
            "actor_rollout_ref.actor.clip_ratio_high=4e-4",
            "actor_rollout_ref.actor.clip_ratio_c=10.0",
        ),
    ),
    Algorithm("reinforce", "reinforce", "reinforce"),
    Algorithm("steppo", "gae", "steppo"),
)

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm for algorithm in (*(Algorithm(name, name) for name in ESTIMATORS), *_PUBLISHED)
}
"""Algorithms by name."""


def get_algorithm(name: str) -> Algorithm:
    """The algorithm called ``name``.

    Raises:
        ConfigError: There is none; lists what there is.
    """
    if name not in ALGORITHMS:
        raise ConfigError(f"unknown algorithm {name!r}.{did_you_mean(name, ALGORITHMS)}")
    return ALGORITHMS[name]
