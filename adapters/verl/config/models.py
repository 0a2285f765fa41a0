"""A model's own configuration: whether a run's context fits, what pictures go with, and what training needs of a GPU.

The memory is arithmetic. FSDP as verl 0.9.1 sets it: weights, gradients and Adam's two moments in float32, sharded over
all GPUs; weights are gathered, and everything between them is computed, in bfloat16; gradient checkpointing keeps the
input of each layer. While an update runs, vLLM sleeps. What is not counted: PyTorch's own half gigabyte, fragments,
buffers of the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.adapters.batches import cached_numbers, token_bytes
from agent_envs.adapters.verl.config.settings import read_settings
from agent_envs.checks import integer, json_object
from agent_envs.errors import ConfigError, first_line
from agent_envs.policies.local.loading import context_positions, model_of
from agent_envs.prompts.pictures import ARCHITECTURES

SEEDED = ("agentr1_cpu", "vllm")
"""The rollout engines that take a seed with each request, and pictures."""
_WEIGHT = 4  # bytes of a parameter in float32; a gradient and each moment take as many
_HALF = 2  # bytes of a number in bfloat16
_PROCESSES = 3.9e9  # bytes of verl's and Ray's processes without a model, measured with PSS on Linux


def check_context(model: str, config: Any) -> None:
    """Check that the longest prompt and response fit into the positions of a model, a folder or a name on the hub."""
    rollout, data = config.actor_rollout_ref.rollout, config.data
    length = rollout.get("max_model_len") or data.max_prompt_length + data.max_response_length
    engine = (rollout.get("engine_kwargs") or {}).get(rollout.name) or {}
    if engine.get("hf_overrides") or config.actor_rollout_ref.model.get("override_config", {}).get("rope_scaling"):
        return  # whoever changes the positions says how many there are
    positions = context_positions(read_config(model))
    if positions is not None and length > positions:
        raise ConfigError(
            f"prompts of {data.max_prompt_length} and responses of {data.max_response_length} tokens "
            f"(data.max_prompt_length, data.max_response_length, a context of {length}) do not fit into the "
            f"{positions} positions of {model}"
        )


def read_config(model: str) -> Mapping[str, Any]:
    """Return the configuration of a model, a Hugging Face folder or a name on the hub."""
    with suppress(OSError):
        return json_object(f"{model}/config.json", Path(model, "config.json").read_text("utf-8", errors="replace"))
    from transformers import AutoConfig

    try:
        return dict(AutoConfig.from_pretrained(model, trust_remote_code=False).to_dict())
    except (OSError, ValueError) as e:
        why = "the folder has no config.json" if Path(model).is_dir() else first_line(e)
        raise ConfigError(f"--model {model}: its configuration cannot be read: {why}") from e


def sees_pictures(model: str) -> bool:
    """Return whether pictures are shown to a model, a Hugging Face folder or a name on the hub.

    One whose configuration cannot be read, or of another kind than `ARCHITECTURES`, gets text alone.
    """
    try:
        return read_config(model).get("model_type") in ARCHITECTURES
    except ConfigError:
        return False


def check_vision(config: Any, *, needs_critic: bool) -> None:
    """Check that verl can train a vision-language model as a run asks for."""
    model, settings = config.actor_rollout_ref.model, read_settings(config)
    rollout = config.actor_rollout_ref.rollout.name
    refused = {
        f"the critic of algorithm.adv_estimator={config.algorithm.adv_estimator}": needs_critic,
        "agentr1.layout=tree": settings.layout == "tree",
        f"agentr1.mode={settings.mode}": settings.ahead,
        f"model_engine={config.model_engine}": config.model_engine != "dp",
        f"actor_rollout_ref.rollout.name={rollout}": rollout not in SEEDED,
        "actor_rollout_ref.model.lora_rank": bool(model.get("lora_rank") or model.get("lora_adapter_path")),
        "actor_rollout_ref.model.use_fused_kernels=True": bool(model.get("use_fused_kernels")),
    }
    if found := [name for name, asked in refused.items() if asked]:
        raise ConfigError(
            f"training a vision-language model with verl does not go with {', '.join(found)}: leave that out"
        )


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on each GPU."""

    parameters: int
    """Of the model; a number, no bytes."""
    state: int
    """Weights, gradients and Adam's moments; with an adapter weights alone."""
    activations: int
    """The input of every layer, and all of one layer while it is computed again."""
    logits: int
    """Logits and their gradient."""

    @property
    def updating(self) -> int:
        """What an update needs."""
        return self.state + self.activations + self.logits


def training_memory(
    config: Any, *, gpus: int, tokens: int, split: int = 1, packed: bool = True, adapter: bool = False
) -> TrainingMemory:
    """Return what each of ``gpus`` holds, over which FSDP shards, for a model's configuration of transformers.

    A micro-batch has ``tokens``, padding included; ``split`` GPUs share a sequence. The logits of rows that are not
    ``packed`` are copied once. An ``adapter`` of low rank has few parameters.
    """
    text, model = config.get_text_config(), model_of(config)
    parameters, own = sum(p.numel() for p in model.parameters()), -(-tokens // split)  # tied weights count once
    layer = 12 * text.hidden_size + 4 * getattr(text, "intermediate_size", 4 * text.hidden_size)
    return TrainingMemory(
        parameters=parameters,
        state=(1 if adapter else 4) * _WEIGHT * parameters // gpus,
        activations=_HALF * own * (text.num_hidden_layers * text.hidden_size + layer),
        logits=_HALF * own * text.vocab_size * (2 if packed else 4),
    )


def cpu_memory(config: Any, model: Any) -> float:
    """Return about how many bytes all processes of a run on a CPU take; ``config`` is verl's, ``model`` the model's.

    Rows are taken to be a quarter as long as they may be, as those of AgentR1/GSM8KTool-v0 are.
    """
    policy, found = config.actor_rollout_ref, training_memory(model, gpus=1, tokens=0)
    actor, rollout, length = policy.actor, policy.rollout, policy.rollout.max_model_len // 4
    size = _HALF if rollout.dtype == "bfloat16" else _WEIGHT
    name, unit = ("max_token_len", 1) if actor.use_dynamic_bsz else ("micro_batch_size", length)
    tokens = unit * integer(f"actor_rollout_ref.actor.ppo_{name}_per_gpu", actor[f"ppo_{name}_per_gpu"], minimum=1)
    sent = 3 * size * found.parameters  # the server's weights, and twice what is on its way to it
    cached = rollout.max_num_seqs * length * cached_numbers(model) * size
    each = token_bytes(model, size, recomputed=policy.model.enable_gradient_checkpointing)
    return _PROCESSES + found.state * (1 + bool(config.critic.enable)) + tokens * each + sent + cached


def memory_notice(config: Any, folder: str | None) -> str:
    """Return what a run on a CPU takes, or the actor of each GPU, in words; the model is tiny-base for None."""
    from transformers import AutoConfig

    from agent_envs.adapters.tiny.model import base_folder

    model = AutoConfig.from_pretrained(folder or base_folder(), trust_remote_code=False)
    if config.trainer.device == "cpu":
        return f"memory: about {cpu_memory(config, model) / 1e9:.1f} GB"
    actor, policy = config.actor_rollout_ref.actor, config.actor_rollout_ref.model
    adapter, packed = bool(policy.get("lora_rank") or policy.get("lora_adapter_path")), policy.use_remove_padding
    gpus, split = config.trainer.n_gpus_per_node * config.trainer.nnodes, actor.ulysses_sequence_parallel_size
    tokens = actor.ppo_max_token_len_per_gpu
    memory = training_memory(model, gpus=gpus, tokens=tokens, split=split, packed=packed, adapter=adapter)
    size = {name: f"{getattr(memory, name) / 1e9:.1f}" for name in ("updating", "state", "activations", "logits")}
    held = "weights" if adapter else "weights, gradients and Adam"
    return (
        f"an update of the actor needs about {size['updating']} GB of each GPU: {size['state']} {held}, "
        f"{size['activations']} activations and {size['logits']} logits of {tokens:,} tokens"
    )
