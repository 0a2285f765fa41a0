"""What training over RayPPOTrainer lacks, said before anything starts (``trainer.use_v1=False``)."""

from __future__ import annotations

from typing import Any

from agent_envs.adapters.estimators import Estimator
from agent_envs.errors import ConfigError

__all__ = ["check_trainer"]

_LACKING = (
    "actor_rollout_ref.model.lora.rank",
    "actor_rollout_ref.model.lora_adapter_path",
    "actor_rollout_ref.model.lora_rank",
    "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
    "algorithm.filter_groups.enable",
    "data.gen_batch_size",
    "global_profiler.steps",
    "reward.reward_model.enable",
    "trainer.log_val_generations",
    "trainer.rollout_data_dir",
    "trainer.val_only",
    "trainer.validation_data_dir",
)
"""Settings that must be off: ``batch.ray_trainer`` does not do what they ask for."""


def check_trainer(config: Any, estimator: Estimator) -> None:
    """Check that the trainer that ``trainer.use_v1`` names does what a run asks for.

    Args:
        config: verl's configuration, every reference resolved.
        estimator: The run's.

    Raises:
        ConfigError: Something that only verl's v1 trainers do.
    """
    if config.trainer.use_v1:
        return
    from omegaconf import OmegaConf

    asked = [f"{name}={value}" for name in _LACKING if (value := OmegaConf.select(config, name))]
    if (mode := (config.get("agentr1") or {}).get("mode", "sync")) != "sync":
        asked.append(f"agentr1.mode={mode}")
    if estimator.needs_baseline or estimator.needs_score_norms:
        asked.append(f"the estimator {estimator.name}")
    if asked:
        raise ConfigError(
            f"trainer.use_v1=False trains over RayPPOTrainer, which cannot do {', '.join(asked)}: leave that out, or "
            "set trainer.use_v1=True"
        )
