"""The arithmetic of memory is that of real models; docs/gpu.md has what it says of GPUs, and a run on a CPU says it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from composing import ENV, changed, composed
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from agent_envs.adapters.batches import token_bytes
from agent_envs.adapters.tiny import model as tiny_model
from agent_envs.adapters.verl.config.models import cpu_memory, training_memory
from agent_envs.cli.main import main
from agent_envs.errors import ConfigError


def shape(kind: type, hidden: int, inner: int, layers: int, heads: int, pairs: int, **others: Any) -> PretrainedConfig:
    return kind(  # type: ignore[no-any-return]
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=pairs, **{"vocab_size": 151936, "tie_word_embeddings": True, **others},
    )  # fmt: skip


# The models' own config.json, and how many billion parameters their cards say.
MODELS = {
    "Qwen2.5-0.5B": (shape(Qwen2Config, 896, 4864, 24, 14, 2), 0.49),
    "Qwen2.5-1.5B": (shape(Qwen2Config, 1536, 8960, 28, 12, 2), 1.54),
    "Qwen2.5-3B": (shape(Qwen2Config, 2048, 11008, 36, 16, 2), 3.09),
    "Qwen3-4B": (shape(Qwen3Config, 2560, 9728, 36, 32, 8, head_dim=128), 4.0),
    "Qwen2.5-7B": (
        shape(Qwen2Config, 3584, 18944, 28, 28, 4, vocab_size=152064, tie_word_embeddings=False), 7.61
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_the_page_has_what_the_arithmetic_says(name: str, root: Path) -> None:
    config, billions = MODELS[name]
    one = training_memory(config, gpus=1, tokens=32768)
    assert round(one.parameters / 1e9, 2) == pytest.approx(billions, abs=0.025)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * width  # a token's, in bfloat16
    states = [one.state / gpus for gpus in (1, 4, 8, 16)]
    cells = [one.parameters, *states, one.activations, one.logits, 2 * one.parameters, 1e6 * cache]
    row = f"| {name} | {' | '.join(f'{x / 1e9:.1f}' for x in cells)} |"
    assert row in (root / "docs" / "gpu.md").read_text(encoding="utf-8").splitlines(), row


def small(layers: int) -> PretrainedConfig:
    return shape(Qwen2Config, 256, 1024, layers, 4, 2, vocab_size=512, attn_implementation="sdpa")


def kept(layers: int, *, checkpoints: bool) -> int:
    """Bytes that the forward pass of 512 tokens keeps for the backward one, weights apart."""
    model = AutoModelForCausalLM.from_config(small(layers)).to(torch.bfloat16).train()
    if checkpoints:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    weights, seen = {p.untyped_storage().data_ptr() for p in model.parameters()}, dict[int, int]()

    def keep(x: Any) -> Any:
        storage = x.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        out = model(torch.zeros(1, 512, dtype=torch.int64), use_cache=False)
    del out
    return sum(seen.values())


def test_activations_are_those_that_a_model_keeps() -> None:
    two, five = (training_memory(small(layers), gpus=1, tokens=512).activations for layers in (2, 5))
    inputs = kept(5, checkpoints=True) - kept(2, checkpoints=True)
    assert inputs == pytest.approx(five - two, rel=0.1)
    each = [512 * token_bytes(small(layers), 2, recomputed=True) for layers in (2, 5)]
    assert inputs == pytest.approx(each[1] - each[0], rel=0.1)
    layer = (kept(5, checkpoints=False) - kept(2, checkpoints=False)) / 3
    assert layer == pytest.approx(two - 2 * (five - two) / 3, rel=0.15)


def test_weights_and_moments_are_those_of_a_model() -> None:
    model, found = AutoModelForCausalLM.from_config(small(3)), training_memory(small(3), gpus=1, tokens=64)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters())
    out = model(torch.zeros(1, 64, dtype=torch.int64), use_cache=False)
    out.logits.sum().backward()
    optimizer.step()
    tensors = [*model.parameters(), *(p.grad for p in model.parameters())]
    tensors += [x for state in optimizer.state.values() for name, x in state.items() if name != "step"]
    assert found.state == sum(x.nbytes for x in tensors)
    assert found.logits == 2 * 2 * out.logits.numel()


def test_gpus_share_what_is_sharded() -> None:
    one, many = (training_memory(small(3), gpus=n, tokens=64, split=n) for n in (1, 4))
    for name in ("state", "activations", "logits"):
        assert getattr(one, name) == 4 * getattr(many, name), name
    adapter = training_memory(small(3), gpus=1, tokens=64, adapter=True)
    assert adapter.state == 4 * one.parameters == one.state // 4
    padded = training_memory(small(3), gpus=1, tokens=64, packed=False)
    assert padded.logits == 2 * one.logits and padded.updating > one.updating


@pytest.mark.parametrize(("preset", "kept"), [("any", "weights, gradients and Adam"), ("any+lora", "weights")])
def test_a_dry_run_says_what_an_update_needs(preset: str, kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(Path(tiny_model.__file__).parent / "base")
    words = ["train", "--preset", f"{preset}/gsm8k/grpo", "--model", model, "--data", "generated", "--dry-run"]
    assert main(words) == 0
    needed = rf"# an update of the actor needs about \d+\.\d GB of each GPU: \d+\.\d {kept}, .* of 32,768 tokens"
    assert re.search(needed, capsys.readouterr().out)


def test_on_a_cpu_all_processes_count() -> None:
    """SmolLM2-135M with the preset cpu-llm, of whose processes the sum was measured, and what changes it."""
    smol = shape(LlamaConfig, 576, 1536, 30, 9, 3, vocab_size=49152)
    run = composed("actor_rollout_ref.rollout.dtype=bfloat16", preset="cpu-llm", env=ENV, model="m").verl()

    def gigabytes(*settings: str) -> float:
        return cpu_memory(changed(run, *settings), smol) / 1e9

    usual, billions = gigabytes(), 0.1345
    assert 8 < usual < 9
    assert gigabytes("critic.enable=True") - usual == pytest.approx(16 * billions, rel=0.01)
    assert gigabytes("actor_rollout_ref.rollout.max_num_seqs=128") - usual == pytest.approx(64 * 384 * 23040 / 1e9)
    tokens = gigabytes("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192") - usual
    assert tokens == pytest.approx(4096 * token_bytes(smol, 2, recomputed=True) / 1e9)
    kept = gigabytes("actor_rollout_ref.model.enable_gradient_checkpointing=False") - usual
    assert kept > 2 * tokens
    assert cpu_memory(composed().verl(), GPT2Config()) > 0  # whose configuration has other names
    actor = "actor_rollout_ref.actor"
    for wrong in (
        [f"{actor}.ppo_max_token_len_per_gpu=null"],
        [f"{actor}.use_dynamic_bsz=false", f"{actor}.ppo_micro_batch_size_per_gpu=null"],
    ):
        name = wrong[-1].partition("=")[0]
        with pytest.raises(ConfigError, match=f"{name} must be an integer of at least 1, got None"):
            gigabytes(*wrong)
