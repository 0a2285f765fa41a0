"""Loads a Hugging Face model, and finds its stop tokens, its context length and the engine that fits it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from agent_envs.errors import BackendError, ConfigError, first_line, needs_extra
from agent_envs.policies.local.engine import BatchEngine
from agent_envs.policies.local.padded_engine import PaddedEngine
from agent_envs.policies.local.requests import SamplingParams
from agent_envs.policies.named import UNREADABLE, model_path
from agent_envs.prompts.pictures import ARCHITECTURES, PictureTokens

with needs_extra("hf"):
    import torch
    from safetensors import SafetensorError

_log = logging.getLogger(__name__)

_BATCH_LONG_ROPE = frozenset({"dynamic", "longrope"})
"""Rotary embeddings that change with the longest sequence of a batch, so that a row depends on the others."""


_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_STRETCHED = ("dynamic", "linear", "yarn")  # rotary embeddings whose factor is not in the number of positions


def context_positions(config: Mapping[str, Any]) -> int | None:
    """Return the tokens of the longest sequence a model was made for, or None if its `config.json` does not say.

    >>> context_positions({"max_position_embeddings": 4096})
    4096
    >>> rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    >>> context_positions({"max_position_embeddings": 32768, "rope_scaling": rope})
    131072
    """
    text = config.get("text_config")
    config = text if isinstance(text, Mapping) else config
    positions = next((n for n in map(config.get, _NAMES) if isinstance(n, int) and n > 0), None)
    rope = config.get("rope_scaling") or config.get("rope_parameters")
    if positions is None or not isinstance(rope, Mapping):
        return positions
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind not in _STRETCHED or not isinstance(factor, (int, float)):
        return positions
    return max(positions, int(rope.get("original_max_position_embeddings", positions) * factor))


def load_model(
    name: str, *, dtype: torch.dtype | str = "auto", device: torch.device | str = "cpu", trust_remote_code: bool = False
) -> torch.nn.Module:
    """Load a language model for inference, with its vision tower if it has one: from a folder or by name.

    The type "auto" is the one that the weights are stored in; on the device "meta" none are read. A ConfigError says
    that there is no such model.
    """
    from transformers import AutoConfig

    name = model_path(name)
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        if str(device) == "meta":
            return model_of(config)
        model = _kind_of(config).from_pretrained(name, dtype=dtype, trust_remote_code=trust_remote_code)
    except (SafetensorError, *UNREADABLE) as e:
        raise ConfigError(f"{name!r} is not a Hugging Face causal language model: {first_line(e)}") from e
    return model.to(device).eval()


def model_of(config: Any) -> torch.nn.Module:
    """Return the model of a configuration, without its weights."""
    with torch.device("meta"):
        return _kind_of(config).from_config(config)


def _kind_of(config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    sees = getattr(config, "vision_config", None) is not None and hasattr(config, "image_token_id")
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def check_pictures(model: Any, pictures: PictureTokens | None) -> None:
    """Raise a ConfigError if the model is of a kind that pictures are not shown to, or has other image tokens."""
    if pictures is None:
        return
    kind = model.config.model_type
    if kind not in ARCHITECTURES:
        raise ConfigError(f"pictures are shown to models of the kinds {', '.join(ARCHITECTURES)}, got a {kind}")
    if model.config.image_token_id != pictures.token_id:
        raise ConfigError(
            f"the model's image token is {model.config.image_token_id}, and its tokenizer's is {pictures.token_id}; "
            "take both from the same folder"
        )


def stop_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return the tokens that end a response, from the model's generation config, its config or its tokenizer."""
    sources = (each for each in (model.generation_config, model.config, tokenizer) if each is not None)
    stop = next((stop for each in sources if (stop := each.eos_token_id) is not None), None)
    return [] if stop is None else [stop] if isinstance(stop, int) else list(stop)


def context_length(model: Any) -> int | None:
    """Return the tokens of the longest sequence the model was made for, or None if its config does not say."""
    return context_positions(model.config.get_text_config().to_dict())


def make_engine(
    model: Any, *, max_length: int, max_rows: int, stop_token_ids: Iterable[int], pad_token_id: int = 0, seed: int = 0,
    pictures: PictureTokens | None = None,
) -> BatchEngine | PaddedEngine:  # fmt: skip
    """Return a `BatchEngine` if it computes what the model does (tried on a few tokens), else a `PaddedEngine`."""
    stops, reason = list(stop_token_ids), "" if pictures is None else "it takes pictures"
    if len({parameter.device for parameter in model.parameters()}) > 1:
        reason = "its layers are on several devices"
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}  # or one for each kind of layer
    kinds = {str(row.get("rope_type")) for row in (parameters, *parameters.values()) if isinstance(row, dict)}
    if rope := sorted(kinds & _BATCH_LONG_ROPE):
        reason, max_rows = f"its rotary embedding ({rope[0]}) depends on the longest sequence, so each runs alone", 1
    if not reason:
        try:
            engine = BatchEngine(model, max_length=max_length, max_rows=max_rows, stop_token_ids=stops, seed=seed)
            prompt = [token % model.config.vocab_size for token in (3, 5, 7, 11, 13)][: max(1, max_length - 3)]
            requests = [engine.submit(prompt[: n + 1], SamplingParams(1, temperature=0.0)) for n in range(len(prompt))]
            engine.run()
            engine.clear_cache()
            computed = sum(request.log_probs[0] for request in requests)
        except (AttributeError, BackendError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError) as e:
            reason = f"{type(e).__name__}: {e}"  # its configuration is another, or its layers are built differently
        else:
            with torch.inference_mode():
                ids = torch.tensor([prompt], device=next(model.parameters()).device)
                logits = model(input_ids=ids, use_cache=False).logits[0].float()
            expected = float(torch.log_softmax(logits, -1).max(-1).values.sum())  # of the likeliest token after each
            tolerance = 1e-3 if next(model.parameters()).dtype in (torch.float32, torch.float64) else 0.05
            if abs(computed - expected) <= tolerance * max(1.0, abs(expected)):
                return engine
            reason = f"log-probability {computed:.4f} instead of {expected:.4f}"
    _log.info("%s runs in padded batches: %s", type(model).__name__, reason)
    return PaddedEngine(
        model, max_length=max_length, max_rows=max_rows, stop_token_ids=stops, pad_token_id=pad_token_id, seed=seed,
        pictures=pictures,
    )  # fmt: skip
