"""What the PyTorch loop reads from a model's outputs: log-probabilities, entropies and values of tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch

from agent_envs.adapters.losses.distribution import entropies, log_probs_of, square_sums
from agent_envs.adapters.torch.settings import LoopConfig

__all__ = ["Outputs", "token_log_probs", "token_squares", "token_values"]


class Outputs(NamedTuple):
    """A model's outputs one position before some tokens, on the model's device."""

    all: torch.Tensor
    """Logits, or the values of a critic, shape [outputs, vocabulary] or [outputs, 1]."""
    at: torch.Tensor | None = None
    """Which of them is each token's, int64, shape [tokens]; None if there is one for each. Rows share outputs."""


def token_log_probs(outputs: Outputs, ids: torch.Tensor, config: LoopConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each token and the entropy of its distribution (nats), both of shape [tokens]."""
    ids = ids.to(outputs.all.device)
    # the gradient of the entropy costs another pass over the logits
    logits = outputs.all if config.entropy_coef else outputs.all.detach()
    entropy = entropies(logits, config.temperature)
    return (
        log_probs_of(outputs.all, ids, outputs.at, config.temperature).cpu(),
        (entropy if outputs.at is None else entropy[outputs.at]).cpu(),
    )


def token_values(outputs: Outputs) -> torch.Tensor:
    """Return a critic's value before each token, shape [tokens]."""
    values = outputs.all.squeeze(1)
    return (values if outputs.at is None else values[outputs.at]).cpu()


def token_squares(outputs: Outputs, config: LoopConfig) -> torch.Tensor:
    """Return the sum of the squared probabilities that each token was drawn from, shape [tokens]."""
    squares = square_sums(outputs.all, config.temperature)
    return (squares if outputs.at is None else squares[outputs.at]).cpu()
