"""A Qwen2 model of about 140 thousand parameters that learns on a CPU in minutes."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from agent_envs.errors import BackendError, first_line

__all__ = ["build_model", "save_model", "teach_to_copy", "writing_weights"]


def build_model(
    tokenizer: PreTrainedTokenizerBase,
    *,
    hidden_size: int = 64,
    layers: int = 2,
    heads: int = 2,
    intermediate_size: int = 192,
    context_length: int = 2048,
    rope_theta: float = 10_000.0,
    seed: int = 0,
) -> Qwen2ForCausalLM:
    """Return a freshly initialised model for `tokenizer`, the same for the same `seed`.

    The initialisation of transformers (std 0.02 everywhere) is meant for wide models; a 64-wide one would start almost
    at zero. Here every matrix keeps the scale of its input, and the two that write to the residual stream halve it.
    The global random state of torch is not changed.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context_length,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name.endswith("bias"):
                    weight.zero_()
                elif weight.dim() == 2:
                    writes = name.endswith(("o_proj.weight", "down_proj.weight"))
                    scale = (0.5 if writes else 1.0) / math.sqrt(weight.shape[1])
                    weight.normal_(std=0.05 if "embed_tokens" in name else scale)
    return model


def teach_to_copy(model: Qwen2ForCausalLM, seed: int = 0) -> None:
    """Initialise a head of each of the first two layers as an induction head, in place.

    The first attends to the token before and notes what it was; the second attends to where the present token was
    noted, and copies what followed there. A small model finds such a pair late, if at all; with it, it copies names out
    of a page from the start. The result is an ordinary Qwen2 model. The global random state of torch is not changed.

    Source: Olsson and others, "In-context Learning and Induction Heads", arXiv 2209.11895.
    """
    config = model.config
    size = config.hidden_size // config.num_attention_heads  # of a head
    half = size // 2  # rotary position embeddings rotate dimension i together with i + half
    slow = slice(half // 2, half), slice(half + half // 2, size)  # dimensions that hardly rotate: what, not where
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    previous, matching = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(half) / half)
    token, noted = draw(size // 2, config.hidden_size), draw(size // 2, config.hidden_size)
    read = draw(size, config.hidden_size)
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.o_proj, layer.mlp.down_proj):
                projection.weight *= _QUIET
        # Layer 0, head 0: constant queries and keys whose product is largest one token back.
        fast = torch.arange(half) < max(2, half // 4)
        for projection in (previous.q_proj, previous.k_proj):
            projection.weight[:size] = 0.0
            projection.bias[:size] = 0.0
        previous.q_proj.bias[:half][fast] = _SHARPNESS
        previous.k_proj.bias[:half][fast] = _SHARPNESS * torch.cos(frequencies[fast])
        previous.k_proj.bias[half:size][fast] = _SHARPNESS * torch.sin(frequencies[fast])
        previous.v_proj.weight[:size] = torch.cat([token, torch.zeros_like(token)])
        previous.o_proj.weight[:, :size] = _NOTE * torch.cat([noted, torch.zeros_like(noted)]).T
        # Layer 1, head 0: the query is the present token, the key what the first head noted.
        for projection, source in ((matching.q_proj, token), (matching.k_proj, noted)):
            projection.weight[:size] = 0.0
            projection.bias[:size] = 0.0
            for part, rows in zip(slow, source.chunk(2), strict=True):
                projection.weight[part] = _MATCH * rows[: part.stop - part.start]
        matching.v_proj.weight[:size] = read
        matching.o_proj.weight[:, :size] = _COPY * read.T


_SHARPNESS = 8.0  # of attention to the token before: 0.99 of it at the start
_MATCH = 3.0  # of attention to where the present token was noted
_QUIET = 0.03  # of what other heads and the MLPs add, which would drown what the tokens are
_NOTE = 0.08  # of the note, about as large as an embedding
_COPY = 1.0  # of what is copied


def save_model(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """Write model and tokenizer to a Hugging Face folder, completely or not at all: `folder` appears by a rename.

    A BackendError says that it cannot be written.
    """
    folder = Path(folder)
    parts = folder.with_name(f".{folder.name}.{os.getpid()}.parts")
    with writing_weights(parts):
        model.save_pretrained(parts)
        tokenizer.save_pretrained(parts)
    if folder.exists():
        shutil.rmtree(folder)
    parts.rename(folder)


@contextlib.contextmanager
def writing_weights(folder: Path) -> Iterator[None]:
    """Fill a new folder with weights; after an error it is removed.

    Raises:
        BackendError: A file cannot be written, as on a full disk, of which the libraries for weights make other errors.
    """
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        yield
    except Exception as e:
        shutil.rmtree(folder, ignore_errors=True)
        cause = e.__context__ if isinstance(e.__context__, OSError) else e
        raise BackendError(f"{folder.parent}: the weights cannot be written: {first_line(cause)}") from e
