"""What the PyTorch loop reads from a model's outputs: log-probabilities, entropies and values of tokens."""

from __future__ import annotations

from typing import NamedTuple

import torch

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
    log_p, ids = torch.log_softmax(outputs.all / config.temperature, dim=-1), ids.to(outputs.all.device)
    p = log_p if config.entropy_coef else log_p.detach()  # the gradient of the entropy doubles the memory
    entropy = -(p.exp() * p).sum(1)
    if outputs.at is None:
        return log_p.gather(1, ids[:, None]).squeeze(1).cpu(), entropy.cpu()
    return log_p[outputs.at, ids].cpu(), entropy[outputs.at].cpu()


def token_values(outputs: Outputs) -> torch.Tensor:
    """Return a critic's value before each token, shape [tokens]."""
    values = outputs.all.squeeze(1)
    return (values if outputs.at is None else values[outputs.at]).cpu()


def token_squares(outputs: Outputs, config: LoopConfig) -> torch.Tensor:
    """Return the sum of the squared probabilities that each token was drawn from, shape [tokens]."""
    squares = torch.softmax(outputs.all / config.temperature, dim=-1).square().sum(1)
    return (squares if outputs.at is None else squares[outputs.at]).cpu()
