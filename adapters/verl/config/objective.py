"""How a run turns steps into a loss: estimator, rewards, weighting, KL and correction, read from verl's configuration.

verl's own settings are used where they exist (``algorithm.*``, ``actor_rollout_ref.actor.*``), else ``Settings``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_envs.adapters.estimators import Estimator, EstimatorOptions, ProcessRewards, RewardScale, get_estimator
from agent_envs.adapters.losses import KL_KINDS, KLController, kl_controller
from agent_envs.adapters.verl.config.checks import find_row_loss, needs_steps, tree_obstacle
from agent_envs.adapters.verl.config.settings import Settings, read_settings
from agent_envs.checks import choice, integer, number
from agent_envs.errors import ConfigError


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
    settings: Settings = field(default_factory=Settings)
    """What the run sets under ``agentr1``."""

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
    """Return the objective of a run from verl's configuration, every reference resolved."""
    algorithm, actor, settings = config.algorithm, config.actor_rollout_ref.actor, read_settings(config)
    choice("algorithm.kl_penalty", algorithm.kl_penalty, KL_KINDS)
    choice("actor_rollout_ref.actor.kl_loss_type", actor.kl_loss_type, KL_KINDS)
    n = integer("actor_rollout_ref.rollout.n", config.actor_rollout_ref.rollout.n, minimum=1)
    options = EstimatorOptions(
        gamma=float(number("algorithm.gamma", algorithm.gamma)),
        lam=float(number("algorithm.lam", algorithm.lam)),
        norm_by_std=bool(algorithm.get("norm_adv_by_std_in_grpo", True)),
        group_size=None if settings.branch else n,
        **settings.options,
    )
    kl = None
    if algorithm.use_kl_in_reward:
        ctrl = algorithm.kl_ctrl
        coef, target, horizon = (number(f"algorithm.kl_ctrl.{k}", ctrl[k]) for k in ("kl_coef", "target_kl", "horizon"))
        kl = kl_controller(ctrl.type, coef, target=target, horizon=horizon)
    row_loss = find_row_loss(config.actor_rollout_ref)
    for name in ("teacher", "branch"):
        if getattr(settings, name) and row_loss is not None:
            raise ConfigError(
                f"a policy loss for verl's rows weighs them itself: leave out agentr1.{name}, or choose another"
            )
    scale = settings.scale_rewards
    estimator = get_estimator(str(algorithm.adv_estimator))
    changing = {f"agentr1.{name}": getattr(settings, name) for name in ("process_rewards", "scale_rewards")}
    for name, value in {"algorithm.use_kl_in_reward": algorithm.use_kl_in_reward, **changing}.items():
        if value and estimator.name == "gdpo":
            raise ConfigError(f"the estimator gdpo compares the reward's components unscaled: leave out {name}")
    correction = algorithm.get("rollout_correction", None)
    if correction is not None and correction.get("bypass_mode", False):
        for name in ("rollout_is", "rollout_rs"):
            if correction.get(name) is not None:
                raise ConfigError(
                    f"algorithm.rollout_correction.{name} corrects the actor's old log-probabilities, but with "
                    "bypass_mode they are the sampler's own: add algorithm.rollout_correction.bypass_mode=False, or "
                    f"algorithm.rollout_correction.{name}=null"
                )
        correction = None
    weights = {str(name): float(weight) for name, weight in (settings.process_rewards or {}).items()}
    return Objective(
        estimator=estimator,
        options=options,
        settings=settings,
        weighting=settings.weighting,
        process=ProcessRewards(weights, settings.normalize_process_rewards, float(settings.process_reward_weight)),
        scale=None if scale is None else RewardScale(str(scale), gamma=options.gamma),
        kl=kl,
        kl_kind=str(algorithm.kl_penalty),
        correction=correction,
        row_loss=row_loss,
    )


def choose_layout(config: Any) -> str:
    """Return ``agentr1.layout``; where none is set, trees on a CPU if the model takes them, and merged rows otherwise.

    On a CPU trees are never slower (benchmarks/merging.py); there is no such measurement of GPUs, of LoRA, nor of modes
    that play ahead.
    """
    settings, model = read_settings(config), config.actor_rollout_ref.model
    if settings.layout is not None:
        return settings.layout
    if needs_steps(config):
        return "steps"
    adapter = model.get("lora_rank", 0) or model.get("lora_adapter_path")
    if config.trainer.device != "cpu" or settings.ahead or adapter or tree_obstacle(config):
        return "merged"
    from transformers import AutoConfig

    from agent_envs.adapters.trees.attention import check_model

    try:
        for path in {model.path, config.critic.model.path} if config.critic.enable else {model.path}:
            check_model(AutoConfig.from_pretrained(path, trust_remote_code=False))
    except (ConfigError, OSError, ValueError):  # verl itself says what is wrong with a model
        return "merged"
    return "tree"
