"""The Hydra overrides and environment variables of every run of this adapter, and what a CPU machine adds."""

from __future__ import annotations

import os

__all__ = ["base_overrides", "cpu_overrides", "environment"]


def base_overrides() -> list[str]:
    """What every run needs, on any machine. Sizes, files and the algorithm are the caller's."""
    return [
        "trainer.use_v1=True",
        "trainer.v1.trainer_mode=agentr1_sync",
        "actor_rollout_ref.rollout.mode=async",
        "actor_rollout_ref.rollout.agent.default_agent_loop=agentr1_env",
        # the sampler's log-probabilities are the old ones: one forward pass less, and the true behaviour policy
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        "algorithm.rollout_correction.bypass_mode=True",
        # validation samples as training does; greedy success is another number
        "actor_rollout_ref.rollout.val_kwargs.do_sample=True",
        "actor_rollout_ref.rollout.val_kwargs.temperature=1.0",
        "actor_rollout_ref.rollout.val_kwargs.n=1",
        # micro-batches by tokens: step rows differ in length
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=True",
        "critic.use_dynamic_bsz=True",
        "data.return_raw_chat=True",
        "data.filter_overlong_prompts=False",
        "data.dataloader_num_workers=0",
        "reward.num_workers=1",
    ]


def cpu_overrides() -> list[str]:
    """What a machine without an accelerator needs besides: one process, float32, no FlashAttention, no compilation."""
    out = [
        "trainer.device=cpu",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        # Ray counts a GPU because verl's resource pools count nothing else, and more CPUs than there are: its actors
        # reserve one each and mostly wait
        "ray_kwargs.ray_init.num_cpus=16",
        "+ray_kwargs.ray_init.num_gpus=1",
        "+ray_kwargs.ray_init.include_dashboard=False",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "actor_rollout_ref.rollout.name=agentr1_cpu",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.free_cache_engine=False",
        "actor_rollout_ref.rollout.load_format=auto",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        # Without packing a micro-batch is as wide as its longest row, and attention over that width is what costs:
        # small micro-batches of rows of about the same length (the layout orders them) beat few large ones
        "actor_rollout_ref.actor.use_dynamic_bsz=False",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=False",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.ref.log_prob_use_dynamic_bsz=False",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16",
        "critic.use_dynamic_bsz=False",
        "critic.ppo_micro_batch_size_per_gpu=16",
        "critic.strategy=fsdp2",
        "critic.fsdp.strategy=fsdp2",
        "critic.fsdp.use_torch_compile=False",
        # TransferQueue refuses a column whose type changes, and the engines' default is bfloat16
        "+critic.fsdp.mixed_precision.param_dtype=fp32",
    ]
    for model in ("actor_rollout_ref.model", "critic.model"):
        out += [
            f"{model}.use_remove_padding=False",
            f"{model}.enable_gradient_checkpointing=False",
            f"+{model}.override_config.attn_implementation=sdpa",
        ]
    for role in ("actor", "ref"):
        out += [
            f"actor_rollout_ref.{role}.strategy=fsdp2",
            f"actor_rollout_ref.{role}.fsdp_config.strategy=fsdp2",
            f"actor_rollout_ref.{role}.fsdp_config.use_torch_compile=False",
            f"actor_rollout_ref.{role}.use_torch_compile=False",
            f"+actor_rollout_ref.{role}.fsdp_config.mixed_precision.param_dtype=fp32",
        ]
    return out


def environment(*, cpu: bool) -> dict[str, str]:
    """Variables that the starting process sets for itself, before verl is imported; Ray hands them on.

    On a CPU machine ``CUDA_VISIBLE_DEVICES`` must not be set at all.
    """
    out = {
        "VERL_USE_EXTERNAL_MODULES": "agent_envs.adapters.verl.run.plugin",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if cpu:
        out |= {
            "VERL_PLATFORM": "cpu",
            "VERL_ENGINE_DEVICE": "cuda",  # which of verl's engines: the CUDA one runs on any torch device
            # for the updates, which run alone; the generation server takes half of it (cpu_rollout)
            "OMP_NUM_THREADS": str(min(os.cpu_count() or 1, 8)),
        }
    return out
