"""What training over steps cannot do, said before anything starts: one table of settings and sentences."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from agent_envs.adapters.estimators import Estimator
from agent_envs.errors import ConfigError

__all__ = ["check_trainer"]


def check_trainer(config: Any, estimator: Estimator) -> None:
    """Check that the trainer of a run does what the run asks for; verl's own trainers are left to verl.

    Args:
        config: verl's configuration, every reference resolved.
        estimator: The run's.

    Raises:
        ConfigError: Something that it cannot do.
    """

    def get(name: str) -> Any:
        return OmegaConf.select(config, name)

    if config.trainer.use_v1 and not str(get("trainer.v1.trainer_mode")).startswith("agentr1_"):
        return
    rollout, train_batch_size = config.actor_rollout_ref.rollout, config.data.train_batch_size
    ahead = (get("agentr1.mode") or "sync") != "sync"
    separate = get("agentr1.mode") == "separate"
    filters, lora = get("algorithm.filter_groups.enable"), get("actor_rollout_ref.model.lora_rank")
    shared_judge = get("reward.reward_model.enable") and not get("reward.reward_model.enable_resource_pool")
    chunk = get("data.gen_batch_size") or train_batch_size
    updates = get("trainer.v1.separate_async.parameter_sync_step")
    estimator.check_group(rollout.n, "actor_rollout_ref.rollout.n")
    table = (
        (not config.trainer.use_v1, "trainer.use_v1 must be True: steps are trained over verl's v1 trainers alone"),
        (
            estimator.needs_critic and config.critic.enable is not True,
            f"the estimator {estimator.name!r} needs a critic: critic.enable must be True, got {config.critic.enable}",
        ),
        (
            config.actor_rollout_ref.actor.shuffle or (estimator.needs_critic and config.critic.shuffle),
            "actor_rollout_ref.actor.shuffle and critic.shuffle must be False: mini-batches hold whole groups",
        ),
        (
            get("distillation.enabled"),
            "training over steps does not support distillation: distillation.enabled must be False, or "
            "trainer.v1.trainer_mode=sync for verl's own trainer",
        ),
        (
            not (ahead or filters) and train_batch_size % chunk,
            f"data.gen_batch_size={chunk} does not divide data.train_batch_size={train_batch_size}",
        ),
        (
            filters and not get("algorithm.filter_groups.metric"),
            "algorithm.filter_groups.enable=True needs algorithm.filter_groups.metric, such as reward",
        ),
        (
            (filters or separate) and shared_judge,
            "reward.reward_model.enable_resource_pool must be True: its rewards are needed while episodes are played",
        ),
        (ahead and filters, "algorithm.filter_groups replaces groups, which needs agentr1.mode=sync"),
        (
            ahead and get("trainer.v1.sampler.custom_sampler.path"),
            "trainer.v1.sampler.custom_sampler is verl's own trainers'; batches here are in order",
        ),
        (
            # workers/engine_workers.py:764 would send the base model's weights alone
            separate and lora and not get("actor_rollout_ref.model.lora.merge"),
            "agentr1.mode=separate sends whole weights: a LoRA needs actor_rollout_ref.model.lora.merge=True",
        ),
        (
            separate and get("trainer.v1.separate_async.hybrid_rollout.enable_switch"),
            "trainer.v1.separate_async.hybrid_rollout.enable_switch waits for whatever ends first; batches here are in "
            "order",
        ),
        (
            separate and updates * config.actor_rollout_ref.actor.ppo_mini_batch_size != train_batch_size,
            f"trainer.v1.separate_async.parameter_sync_step={updates} times actor_rollout_ref.actor."
            f"ppo_mini_batch_size must be data.train_batch_size={train_batch_size}",
        ),
        (
            separate and not (rollout.nnodes > 0 and rollout.n_gpus_per_node > 0),
            "agentr1.mode=separate needs devices to play on: actor_rollout_ref.rollout.nnodes and n_gpus_per_node",
        ),
        (
            separate and rollout.checkpoint_engine.backend == "naive",
            "agentr1.mode=separate needs actor_rollout_ref.rollout.checkpoint_engine.backend, such as nccl",
        ),
        (
            rollout.name == "agentr1_cpu" and rollout.tensor_model_parallel_size != 1,
            "actor_rollout_ref.rollout.name=agentr1_cpu is one process: tensor_model_parallel_size must be 1, got "
            f"{rollout.tensor_model_parallel_size}",
        ),
    )
    for wrong, sentence in table:
        if wrong:
            raise ConfigError(sentence)
