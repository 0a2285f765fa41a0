"""Sampling from a model's logits: the settings of a response, and one token for each row of a batch.

A token's log-probability is the one with which it was sampled: under the softmax of the logits divided by the
temperature, among the tokens that ``top_k`` and ``top_p`` leave (at temperature 0: of the logits themselves). Without
these two it is the one that a trainer computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agent_envs.errors import BackendError, ConfigError, did_you_mean, needs_extra

with needs_extra("hf"):
    import torch

# Settings of vLLM's SamplingParams that are accepted only with a value that changes nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1, None), "presence_penalty": (0, None), "frequency_penalty": (0, None),
    "min_p": (0, None), "min_tokens": (0, None), "n": (1, None),
    "stop": (None, [], ()), "logit_bias": (None, {}), "bad_words": (None, [], ()),
    "detokenize": (True, False, None), "skip_special_tokens": (True, False, None),
}  # fmt: skip

_GREEDY = 1e-5  # lower temperatures take the most likely token, as in vLLM; dividing logits by them would overflow


@dataclass(frozen=True)
class SamplingParams:
    """How to sample one response."""

    max_tokens: int
    """Most tokens of the response."""
    temperature: float = 1.0
    """Logits are divided by it; 0 takes the most likely token."""
    top_k: int = -1
    """Sample from the k most likely tokens; -1 or 0 for all."""
    top_p: float = 1.0
    """Sample from the fewest tokens whose total probability reaches p."""
    seed: int | None = None
    """Seed of this response; None makes one from the engine's seed and the prompt."""
    used_draws: int = 0
    """Random numbers of that seed to leave out: tokens at the end of the prompt that were sampled with them."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the response, besides the engine's."""
    ignore_eos: bool = False
    """Ignore stop tokens and sample up to the length limit."""

    @classmethod
    def from_dict(cls, params: Mapping[str, Any], default_max_tokens: int) -> SamplingParams:
        """Read a dictionary with vLLM's names; a ConfigError if a setting is unknown, unsupported or out of range."""
        values = {k: v for k, v in params.items() if v is not None}
        limit = [values.pop(k) for k in ("max_tokens", "max_new_tokens") if k in values]
        values.pop("logprobs", None)
        for name, neutral in _NEUTRAL.items():
            if name in values and values.pop(name) not in neutral:
                raise ConfigError(
                    f"this engine does not support {name}={params[name]!r}; leave it out (neutral: {neutral[0]!r}) "
                    "or use another rollout engine"
                )
        known = cls.__dataclass_fields__
        if unknown := [name for name in values if name not in known]:
            raise ConfigError(f"unknown sampling setting {unknown[0]!r}.{did_you_mean(unknown[0], known)}")
        values["stop_token_ids"] = tuple(values.get("stop_token_ids", ()))
        out = cls(max_tokens=int(min(limit, default=default_max_tokens)), **values)
        if not out.temperature >= 0 or not 0 < out.top_p <= 1 or out.max_tokens < 1 or out.top_k < -1:
            raise ConfigError(
                "expected temperature >= 0, 0 < top_p <= 1, top_k >= -1 and max_tokens >= 1, got "
                f"{out.temperature}, {out.top_p}, {out.top_k} and {out.max_tokens}"
            )
        if out.used_draws < 0 or (out.used_draws and out.seed is None):
            raise ConfigError(f"expected used_draws >= 0, above 0 only with a seed, got {out.used_draws}")
        return out if out.temperature >= _GREEDY else replace(out, temperature=0.0)


def sample(
    logits: torch.Tensor, params: Sequence[SamplingParams], uniforms: np.ndarray
) -> tuple[list[int], list[float]]:
    """Sample one token per row by inverting the cumulative distribution at a given number.

    Args:
        logits: Shape [rows, vocabulary]; a BackendError if one is NaN or +inf, or all of a row are -inf.
        params: One per row.
        uniforms: Numbers in [0, 1), shape [rows].

    Returns:
        Tokens and their log-probabilities, one per row.
    """
    temperatures = torch.tensor([p.temperature or 1.0 for p in params], device=logits.device)[:, None]
    log_probs = torch.log_softmax(logits.float() / temperatures, dim=-1)
    if broken := log_probs.isnan().any(dim=-1).nonzero().squeeze(1).tolist():
        raise BackendError(
            f"the model's logits are NaN or infinite in {len(broken)} of {len(params)} sampled rows: its weights are "
            "broken, by a diverged update (lower the learning rate) or a damaged checkpoint"
        )
    weights = log_probs.double().exp()
    truncated = [row for row, p in enumerate(params) if p.temperature and (p.top_k > 0 or p.top_p < 1)]
    for row in truncated:
        weights[row] = _truncate(weights[row], params[row])
    cumulative = weights.cumsum(dim=-1)
    target = torch.from_numpy(uniforms).to(logits.device)[:, None] * cumulative[:, -1:]
    # the first token whose cumulative weight exceeds the target: tokens of weight 0 are never chosen
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)
    if greedy := [row for row, p in enumerate(params) if not p.temperature]:
        tokens[greedy] = logits[greedy].argmax(dim=-1)
    chosen = log_probs.gather(1, tokens[:, None]).squeeze(1)
    for row in truncated:
        chosen[row] = (weights[row, tokens[row]] / cumulative[row, -1]).log()
    return tokens.tolist(), chosen.tolist()


def _truncate(weights: torch.Tensor, p: SamplingParams) -> torch.Tensor:
    """Return ``weights`` [vocabulary] with 0 outside the top k, and outside the nucleus of mass ``top_p`` in these."""
    ordered, order = weights.sort(descending=True)
    if p.top_k > 0:
        ordered[p.top_k :] = 0
    ordered = ordered / ordered.sum()
    before = ordered.cumsum(0) - ordered
    ordered[before >= p.top_p] = 0
    return torch.zeros_like(weights).scatter_(0, order, ordered)
