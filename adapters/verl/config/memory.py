"""What training needs of a GPU's memory, by arithmetic from a model's configuration.

FSDP as verl 0.9.1 sets it: weights, gradients and Adam's two moments in float32, sharded over all GPUs; weights are
gathered, and everything between them is computed, in bfloat16; gradient checkpointing keeps the input of each layer.
While an update runs, vLLM sleeps. What is not counted: PyTorch's own half gigabyte, fragments, buffers of the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TrainingMemory", "memory_notice", "training_memory"]

_WEIGHT = 4  # bytes of a parameter in float32; a gradient and each moment take as many
_HALF = 2  # bytes of a number in bfloat16


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
    sampler: int
    """vLLM's weights."""
    cache_token: int
    """vLLM's keys and values of one token."""

    @property
    def updating(self) -> int:
        """What an update needs."""
        return self.state + self.activations + self.logits


def training_memory(
    config: Any,
    *,
    gpus: int,
    tokens: int,
    split: int = 1,
    tensor_parallel: int = 1,
    packed: bool = True,
    adapter: bool = False,
) -> TrainingMemory:
    """Return what each GPU holds.

    Args:
        config: The model's configuration, of transformers.
        gpus: All that train, over which FSDP shards.
        tokens: Of a micro-batch (``ppo_max_token_len_per_gpu``), padding included.
        split: GPUs that share a sequence (``ulysses_sequence_parallel_size``).
        tensor_parallel: GPUs that share vLLM's weights (``rollout.tensor_model_parallel_size``).
        packed: Whether rows are packed; the logits of padded rows are copied once without the padding.
        adapter: Whether an adapter of low rank is trained, whose own parameters are few, in place of the model.
    """
    text = config.get_text_config()
    parameters, own = _parameters(config), -(-tokens // split)
    heads = text.num_key_value_heads or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    layer = 12 * text.hidden_size + 4 * text.intermediate_size
    return TrainingMemory(
        parameters=parameters,
        state=(1 if adapter else 4) * _WEIGHT * parameters // gpus,
        activations=_HALF * own * (text.num_hidden_layers * text.hidden_size + layer),
        logits=_HALF * own * text.vocab_size * (2 if packed else 4),
        sampler=_HALF * parameters // tensor_parallel,
        cache_token=2 * _HALF * text.num_hidden_layers * heads * width // tensor_parallel,
    )


def memory_notice(config: Any, model: Any) -> str:
    """Return what the actor needs of each GPU, in words; ``config`` is verl's, resolved, ``model`` the model's."""
    actor, policy = config.actor_rollout_ref.actor, config.actor_rollout_ref.model
    adapter = bool(policy.get("lora_rank") or policy.get("lora_adapter_path"))
    found = training_memory(
        model,
        gpus=config.trainer.n_gpus_per_node * config.trainer.nnodes,
        tokens=actor.ppo_max_token_len_per_gpu,
        split=actor.ulysses_sequence_parallel_size,
        tensor_parallel=config.actor_rollout_ref.rollout.tensor_model_parallel_size,
        packed=policy.use_remove_padding,
        adapter=adapter,
    )
    size = {name: f"{getattr(found, name) / 1e9:.1f}" for name in ("updating", "state", "activations", "logits")}
    kept = "weights" if adapter else "weights, gradients and Adam"
    return (
        f"an update of the actor needs about {size['updating']} GB of each GPU: {size['state']} {kept}, "
        f"{size['activations']} activations and {size['logits']} logits of {actor.ppo_max_token_len_per_gpu:,} tokens"
    )


def _parameters(config: Any) -> int:
    """Return how many parameters a model has, without making it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    from agent_envs.policies.local.loading import takes_pictures

    with torch.device("meta"):
        model = (AutoModelForImageTextToText if takes_pictures(config) else AutoModelForCausalLM).from_config(config)
    return sum(p.numel() for p in model.parameters())  # tied weights count once
