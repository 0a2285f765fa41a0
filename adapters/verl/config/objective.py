"""What a run makes of its steps: estimator, rewards, weighting, KL and correction, read from verl's configuration.

verl's own settings are read where they exist (``algorithm.*``, ``actor_rollout_ref.actor.*``); what verl has no name
for is under ``agentr1``:

=============================  ========================================================================================
``weighting``                  what a mini-batch's loss is a mean over: ``trajectory``, ``row`` or ``token``
``process_rewards``            {component: weight} of ``info["reward_components"]`` that are process rewards; none
``normalize_process_rewards``  ``prime``, or null
``process_reward_weight``      weight of the process reward beside the rest of the reward; 1
``scale_rewards``              ``batch`` or ``running``: divide rewards by the deviation of returns; null
every field of                 ``bootstrap_truncated``, ``turn_gamma``, ``gigpo_norm``, ...; but for ``gamma``, ``lam``
``EstimatorOptions``           and ``norm_by_std``, which come from ``algorithm``
=============================  ========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent_envs.adapters.estimators import Estimator, EstimatorOptions, ProcessRewards, RewardScale, get_estimator
from agent_envs.adapters.losses import KL_KINDS, WEIGHTINGS, KLController, kl_controller
from agent_envs.errors import ConfigError, did_you_mean

__all__ = ["SETTINGS", "Objective", "read_objective"]

_FROM_ALGORITHM = {"gamma", "group_size", "lam", "norm_by_std"}
_OPTIONS = tuple(f.name for f in fields(EstimatorOptions) if f.name not in _FROM_ALGORITHM)
_DEFAULTS = {
    **{name: getattr(EstimatorOptions(), name) for name in _OPTIONS},
    "merge": True,
    "poll_interval": 0.02,
    "process_reward_weight": 1.0,
    "seed": 0,
}
_OWN = ("normalize_process_rewards", "process_reward_weight", "process_rewards", "scale_rewards", "weighting")
_ELSEWHERE = ("episode_timeout", "episodes_dir", "merge", "poll_interval", "seed", "step_timeout")
SETTINGS = tuple(sorted([*_OPTIONS, *_OWN, *_ELSEWHERE]))
"""Every name under ``agentr1``."""


@dataclass(frozen=True)
class Objective:
    """What a run makes of its steps."""

    estimator: Estimator
    """Advantages and returns."""
    options: EstimatorOptions = field(default_factory=EstimatorOptions)
    """Settings of the estimator."""
    weighting: str = "trajectory"
    """What a mini-batch's loss is a mean over: ``trajectory``, ``row`` or ``token``."""
    process: ProcessRewards = field(default_factory=ProcessRewards)
    """Which reward components are process rewards; off by default."""
    scale: RewardScale | None = None
    """Scaling of the rewards; None for none."""
    kl: KLController | None = None
    """Coefficient of the KL in the reward; None for none."""
    kl_kind: str = "kl"
    """Estimate of that KL."""
    correction: Mapping[str, Any] | None = None
    """verl's ``algorithm.rollout_correction`` where it is not bypassed; None for none."""

    def state(self) -> dict[str, Any]:
        """What a run that is continued needs: the KL's coefficient and the scale of the rewards."""
        return {
            "kl": None if self.kl is None else self.kl.value,
            "scale": None if self.scale is None else self.scale.state_dict(),
        }

    def go_on_from(self, state: Mapping[str, Any]) -> None:
        """Take in what ``state`` gave."""
        if self.kl is not None and state["kl"] is not None:
            self.kl.value = float(state["kl"])
        if self.scale is not None and state["scale"] is not None:
            self.scale.load_state_dict(state["scale"])


def read_objective(config: Any) -> Objective:
    """The objective of a run.

    Args:
        config: verl's configuration.

    Raises:
        ConfigError: An unknown name or a value that does not fit; lists what there is.
    """
    algorithm = config.algorithm
    settings = dict(config.get("agentr1") or {})
    for name in settings:
        if name not in SETTINGS:
            raise ConfigError(f"unknown setting agentr1.{name}.{did_you_mean(name, SETTINGS)}")
    _check_types(settings)
    weighting = str(settings.get("weighting", "trajectory"))
    if weighting not in WEIGHTINGS:
        raise ConfigError(f"unknown agentr1.weighting {weighting!r}.{did_you_mean(weighting, WEIGHTINGS)}")
    options = EstimatorOptions(
        gamma=float(algorithm.gamma),
        lam=float(algorithm.lam),
        norm_by_std=bool(algorithm.get("norm_adv_by_std_in_grpo", True)),
        group_size=int(config.actor_rollout_ref.rollout.n),
        **{name: settings[name] for name in _OPTIONS if name in settings},
    )
    for name, kind in (
        ("algorithm.kl_penalty", algorithm.kl_penalty),
        ("actor_rollout_ref.actor.kl_loss_type", config.actor_rollout_ref.actor.kl_loss_type),
    ):
        if kind not in KL_KINDS:
            raise ConfigError(f"unknown {name} {kind!r}.{did_you_mean(str(kind), KL_KINDS)}")
    kl = None
    if algorithm.use_kl_in_reward:
        ctrl = algorithm.kl_ctrl
        kl = kl_controller(ctrl.type, float(ctrl.kl_coef), target=float(ctrl.target_kl), horizon=float(ctrl.horizon))
    scale = settings.get("scale_rewards")
    correction = algorithm.get("rollout_correction", None)
    if correction is not None and correction.get("bypass_mode", False):
        asked = [name for name in ("rollout_is", "rollout_rs") if correction.get(name) is not None]
        if asked:
            raise ConfigError(
                f"algorithm.rollout_correction.{asked[0]} corrects old log-probabilities of the actor's, and with "
                "bypass_mode they are the sampler's own: add algorithm.rollout_correction.bypass_mode=False, "
                f"or algorithm.rollout_correction.{asked[0]}=null"
            )
        correction = None
    return Objective(
        estimator=get_estimator(str(algorithm.adv_estimator)),
        options=options,
        weighting=weighting,
        process=ProcessRewards(
            weights={str(name): float(w) for name, w in (settings.get("process_rewards") or {}).items()},
            normalize=settings.get("normalize_process_rewards"),
            weight=float(settings.get("process_reward_weight", 1.0)),
        ),
        scale=None if scale is None else RewardScale(str(scale), gamma=options.gamma),
        kl=kl,
        kl_kind=str(algorithm.kl_penalty),
        correction=correction,
    )


def _check_types(settings: Mapping[str, Any]) -> None:
    """Refuse what is not of its setting's type: a word where a switch is expected would count as True."""
    for name, value in settings.items():
        default = _DEFAULTS.get(name)
        if isinstance(default, bool) and not isinstance(value, bool):
            raise ConfigError(f"agentr1.{name} is True or False, got {value!r}")
        if isinstance(default, (int, float)) and not isinstance(default, bool) and not _is_number(value):
            raise ConfigError(f"agentr1.{name} is a finite number, got {value!r}")
    for name in ("step_timeout", "episode_timeout"):
        seconds = settings.get(name)
        if seconds is not None and not (_is_number(seconds) and seconds > 0):
            raise ConfigError(f"agentr1.{name} is a number of seconds above 0, or null; got {seconds!r}")
    weights = settings.get("process_rewards")
    if weights is not None and not (isinstance(weights, Mapping) and all(map(_is_number, weights.values()))):
        raise ConfigError(f"agentr1.process_rewards is {{component: weight}}, such as {{format: 0.5}}; got {weights!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
