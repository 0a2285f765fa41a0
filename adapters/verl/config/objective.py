"""How a run turns steps into a loss: estimator, rewards, weighting, KL and correction, read from verl's configuration.

verl's own settings are used where they exist (``algorithm.*``, ``actor_rollout_ref.actor.*``); those that verl does not
have are under ``agentr1``:

=============================  ========================================================================================
``weighting``                  what a mini-batch's loss is a mean over: ``trajectory``, ``row`` or ``token``
``process_rewards``            {component: weight}: which of ``info["reward_components"]`` are process rewards; none
``normalize_process_rewards``  ``prime`` or null
``process_reward_weight``      weight of the process reward relative to the rest of the reward; 1
``layout``                     what the models compute: ``merged`` rows, ``steps``, or ``tree``; see ``choose_layout``
``mode``                       ``sync``, or the next batches are played while one is trained: on the same devices with
                               ``colocate``, on others with ``separate``
``lookahead``                  batches under way besides the one that is trained next; 0, or 1 if not ``sync``
``mini_batches_of_rows``       whether ``ppo_mini_batch_size`` times ``rollout.n`` counts steps, as in verl; False
``scale_rewards``              ``batch`` or ``running``: divide rewards by the deviation of returns; null
``stall_timeout``              seconds that a phase of a run may stand still before the run is stopped; 3600
``request_seeds``              whether each request of generation has a seed, so that episodes repeat; True
every field of                 ``bootstrap_truncated``, ``turn_gamma``, ``gigpo_norm``, ...; except ``gamma``, ``lam``
``EstimatorOptions``           and ``norm_by_std``, which come from ``algorithm``
=============================  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent_envs.adapters.estimators import Estimator, EstimatorOptions, ProcessRewards, RewardScale, get_estimator
from agent_envs.adapters.losses import KL_KINDS, WEIGHTINGS, KLController, kl_controller
from agent_envs.adapters.verl.config.checks import needs_steps, tree_obstacle
from agent_envs.adapters.verl.config.row_losses import find_row_loss
from agent_envs.checks import boolean, choice, integer, number, shown
from agent_envs.errors import ConfigError, check_release, did_you_mean

__all__ = ["SETTINGS", "Objective", "choose_layout", "lookahead", "read_objective"]

_FROM_ALGORITHM = {"gamma", "group_size", "lam", "norm_by_std"}
_OPTIONS = tuple(f.name for f in fields(EstimatorOptions) if f.name not in _FROM_ALGORITHM)
_DEFAULTS = {
    **{name: getattr(EstimatorOptions(), name) for name in _OPTIONS},
    "mini_batches_of_rows": False,
    "poll_interval": 0.05,
    "process_reward_weight": 1.0,
    "request_seeds": True,
    "seed": 0,
    "trust": False,
}
_OWN = ("normalize_process_rewards", "process_reward_weight", "process_rewards", "scale_rewards", "weighting")
_ELSEWHERE = (
    "env_workers", "episode_timeout", "episodes_dir", "layout", "lookahead", "max_broken", "max_episodes",
    "mini_batches_of_rows", "mode", "phase_file", "poll_interval", "request_seeds", "seed", "stall_timeout",
    "step_timeout", "trust",
)  # fmt: skip
MODES = ("sync", "colocate", "separate")
"""Values of ``agentr1.mode``."""
SETTINGS = tuple(sorted([*_OPTIONS, *_OWN, *_ELSEWHERE]))
"""Every name under ``agentr1``."""


@dataclass(frozen=True)
class Objective:
    """How a run turns steps into a loss."""

    estimator: Estimator
    options: EstimatorOptions = field(default_factory=EstimatorOptions)
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
    """verl's ``algorithm.rollout_correction``, unless it is bypassed; None for none."""
    row_loss: Callable[..., Any] | None = None
    """The policy loss if it was written for verl's rows; None if it is one of this package's kind."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs: the KL's coefficient and the scale of the rewards."""
        kl, scale = self.kl, self.scale
        return {"kl": None if kl is None else kl.value, "scale": None if scale is None else scale.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        if self.kl is not None and state["kl"] is not None:
            self.kl.value = float(state["kl"])
        if self.scale is not None and state["scale"] is not None:
            self.scale.load_state_dict(state["scale"])


def read_objective(config: Any) -> Objective:
    """Return the objective of a run from verl's configuration, every reference resolved.

    Raises:
        ConfigError: A setting that does not exist, or a value that does not fit.
    """
    algorithm, actor = config.algorithm, config.actor_rollout_ref.actor
    settings = dict(config.get("agentr1") or {})
    for name, value in settings.items():
        if name not in SETTINGS:
            raise ConfigError(f"unknown setting agentr1.{name}.{did_you_mean(name, SETTINGS)}")
        _check_type(name, value)
    lookahead(settings)
    choice("agentr1.layout", settings.get("layout", "merged"), ("merged", "steps", "tree"))
    weighting = choice("agentr1.weighting", settings.get("weighting", "trajectory"), WEIGHTINGS)
    choice("algorithm.kl_penalty", algorithm.kl_penalty, KL_KINDS)
    choice("actor_rollout_ref.actor.kl_loss_type", actor.kl_loss_type, KL_KINDS)
    options = EstimatorOptions(
        gamma=float(number("algorithm.gamma", algorithm.gamma)),
        lam=float(number("algorithm.lam", algorithm.lam)),
        norm_by_std=bool(algorithm.get("norm_adv_by_std_in_grpo", True)),
        group_size=integer("actor_rollout_ref.rollout.n", config.actor_rollout_ref.rollout.n, minimum=1),
        **{name: settings[name] for name in _OPTIONS if name in settings},
    )
    kl = None
    if algorithm.use_kl_in_reward:
        ctrl = algorithm.kl_ctrl
        coef, target, horizon = (number(f"algorithm.kl_ctrl.{k}", ctrl[k]) for k in ("kl_coef", "target_kl", "horizon"))
        kl = kl_controller(ctrl.type, coef, target=target, horizon=horizon)
    scale = settings.get("scale_rewards")
    estimator = get_estimator(str(algorithm.adv_estimator))
    for name, value in (
        ("algorithm.use_kl_in_reward", algorithm.use_kl_in_reward),
        ("agentr1.process_rewards", settings.get("process_rewards")),
        ("agentr1.scale_rewards", scale),
    ):
        if value and estimator.name == "gdpo":
            raise ConfigError(f"the estimator gdpo compares the reward's components as they are: leave out {name}")
    return Objective(
        estimator=estimator,
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
        correction=_correction(algorithm.get("rollout_correction", None)),
        row_loss=find_row_loss(config.actor_rollout_ref),
    )


def lookahead(settings: Mapping[str, Any]) -> int:
    """Return how many batches are under way besides the one that is trained next.

    Args:
        settings: What is under ``agentr1``.

    Raises:
        ConfigError: ``mode`` or ``lookahead`` does not exist, or they do not fit.
    """
    mode, given = choice("agentr1.mode", settings.get("mode", "sync"), MODES), settings.get("lookahead")
    ahead = (0 if mode == "sync" else 1) if given is None else integer("agentr1.lookahead", given, minimum=0)
    if ahead and mode == "sync":
        raise ConfigError(
            f"agentr1.lookahead={ahead} needs agentr1.mode=colocate or separate: with sync nothing is played ahead"
        )
    return ahead


def _correction(correction: Any) -> Any:
    """verl's rollout correction, or None if it is bypassed."""
    if correction is None or not correction.get("bypass_mode", False):
        return correction
    for name in ("rollout_is", "rollout_rs"):
        if correction.get(name) is not None:
            raise ConfigError(
                f"algorithm.rollout_correction.{name} corrects the actor's old log-probabilities, but with bypass_mode "
                "they are the sampler's own: add algorithm.rollout_correction.bypass_mode=False, or "
                f"algorithm.rollout_correction.{name}=null"
            )
    return None


def _check_type(name: str, value: Any) -> None:
    """Refuse a value of another type than its setting's: a word would count as True where a boolean is expected."""
    full, default = f"agentr1.{name}", _DEFAULTS.get(name)
    if isinstance(default, bool):
        boolean(full, value)
    elif isinstance(default, (int, float)):
        number(full, value)
    elif name in ("stall_timeout", "step_timeout", "episode_timeout") and value is not None:
        number(full, value, above=0)
    elif name in ("env_workers", "max_episodes") and value is not None:
        integer(full, value, minimum=1)
        if name == "env_workers":
            check_release("aiohttp", "serve")
            check_release("websockets", "serve")
    elif name == "process_rewards" and value is not None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{full} must be {{component: weight}}, such as {{format: 0.5}}, got {shown(value)}")
        for component, weight in value.items():
            number(f"{full}.{component}", weight)


def choose_layout(config: Any, *, cpu: bool) -> str:
    """Return ``agentr1.layout``; where none is set, trees on a CPU if the model takes them, and merged rows otherwise.

    On a CPU trees are never slower (benchmarks/merging.py); there is no such measurement of GPUs, of LoRA, nor of modes
    that play ahead.
    """
    settings, model = config.get("agentr1") or {}, config.actor_rollout_ref.model
    if given := settings.get("layout"):
        return str(given)
    if needs_steps(config):
        return "steps"
    measured = cpu and settings.get("mode", "sync") == "sync"
    if not measured or model.get("lora_rank", 0) or model.get("lora_adapter_path") or tree_obstacle(config):
        return "merged"
    from transformers import AutoConfig

    from agent_envs.adapters.trees.attention import check_model

    try:
        for path in {model.path, config.critic.model.path} if config.critic.enable else {model.path}:
            check_model(AutoConfig.from_pretrained(path, trust_remote_code=False))
    except (ConfigError, OSError, ValueError):  # verl itself says what is wrong with a model
        return "merged"
    return "tree"
