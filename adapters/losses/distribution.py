"""What a model's logits say of tokens, computed in parts: beside the logits and their gradient, memory is bounded.

A softmax over a large vocabulary is the largest tensor of an update: 32,768 tokens x 151,936 entries in float32 are 20
GB, and `log_softmax` keeps another as large for the backward pass. Here a part of the rows is computed at a time, in
float32 at least, and the backward pass computes it again from the logits and their `logsumexp`.

All functions take logits of shape [outputs, vocabulary] in any floating type, divided by ``temperature`` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable

PART = 1 << 24
"""Logits that are computed at a time: 64 MB in float32."""
CPU_PART = 1 << 18
"""The same on a CPU, where what fits a cache is faster."""


def log_probs_of(
    logits: torch.Tensor, ids: torch.Tensor, at: torch.Tensor | None = None, temperature: float = 1.0
) -> torch.Tensor:
    """Return the log-probability of each token (nats), shape [tokens], in float32 or float64.

    Args:
        logits: [outputs, vocabulary].
        ids: The tokens, int64, shape [tokens].
        at: Which output each token is drawn from, int64, shape [tokens]; None if there is one for each, in order.
        temperature: What the logits are divided by.
    """
    return _LogProbs.apply(logits, ids, at, temperature)


def entropies(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Return the entropy of each output's distribution (nats), shape [outputs], in float32 or float64."""
    return _Entropies.apply(logits, temperature)


@torch.no_grad()
def square_sums(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Return the sum of each output's squared probabilities, shape [outputs], without a gradient."""
    return torch.cat([torch.softmax(x, 1).square_().sum(1) for _, x in _parts(logits, temperature)])


def _parts(logits: torch.Tensor, temperature: float) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the rows in parts, scaled, in a tensor of their own; one part at least."""
    kind = torch.promote_types(logits.dtype, torch.float32)
    rows = max(1, (CPU_PART if logits.device.type == "cpu" else PART) // logits.shape[1])
    for start in range(0, max(1, len(logits)), rows):
        part = slice(start, min(start + rows, len(logits)))
        yield part, logits[part].to(kind) / temperature


class _LogProbs(torch.autograd.Function):
    """d log p(id) / d logits = (1[id] - p) / temperature."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, ids: torch.Tensor, at: torch.Tensor | None, temperature: float
    ) -> torch.Tensor:
        sums = torch.cat([torch.logsumexp(x, 1) for _, x in _parts(logits, temperature)])
        rows = torch.arange(len(ids), device=logits.device) if at is None else at
        ctx.save_for_backward(logits, ids, rows, sums)
        ctx.temperature = temperature
        return logits[rows, ids].to(sums.dtype) / temperature - sums[rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, ids, rows, sums = ctx.saved_tensors
        grad = grad / ctx.temperature
        total = torch.zeros_like(sums).index_add_(0, rows, grad)
        out, order = torch.empty_like(logits), rows.argsort()
        ordered = rows[order]
        for part, x in _parts(logits, ctx.temperature):
            x.sub_(sums[part, None]).exp_().mul_(-total[part, None])
            begin, end = torch.searchsorted(ordered, ordered.new_tensor([part.start, part.stop])).tolist()
            own = order[begin:end]
            x.index_put_((rows[own] - part.start, ids[own]), grad[own], accumulate=True)
            out[part] = x
        return out, None, None, None


class _Entropies(torch.autograd.Function):
    """d H / d logits = -p (log p + H) / temperature."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        parts = []
        for _, x in _parts(logits, temperature):
            log_p = torch.log_softmax(x, 1)
            parts.append(-log_p.exp().mul_(log_p).sum(1))
        ctx.save_for_backward(logits, out := torch.cat(parts))
        ctx.temperature = temperature
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        logits, entropy = ctx.saved_tensors
        out = torch.empty_like(logits)
        for part, x in _parts(logits, ctx.temperature):
            log_p = torch.log_softmax(x, 1)
            out[part] = log_p.exp().mul_(log_p + entropy[part, None]).mul_(-grad[part, None] / ctx.temperature)
        return out, None
