"""A Qwen2 model of about 140 thousand parameters that learns on a CPU in minutes."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from agent_envs.errors import BackendError, first_line
from agent_envs.files import move_folder
from agent_envs.prompts.pictures import PictureTokens

__all__ = ["build_model", "save_model", "writing_weights"]


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


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    pictures: PictureTokens | None = None,
) -> None:
    """Write model and tokenizer to a Hugging Face folder, completely or not at all: `folder` appears by a rename.

    A vision-language model has its image processor beside it, from `pictures`. A BackendError says that it cannot be
    written.
    """
    folder = Path(folder)
    parts = folder.with_name(f".{folder.name}.{os.getpid()}.parts")
    with writing_weights(parts):
        model.save_pretrained(parts)
        tokenizer.save_pretrained(parts)
        if pictures is not None:
            pictures.image_processor.save_pretrained(parts)
    move_folder(parts, folder)


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
