"""The pictures of a batch's rows, as a vision-language model gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent_envs.adapters.batches import TokenBatch
from agent_envs.errors import ConfigError
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.features import forward_arguments, without_tokens
from agent_envs.prompts.pictures import PictureTokens

__all__ = ["RowPictures", "check_layout"]


def check_layout(layout: str, tokens: PictureTokens | None) -> None:
    """Raise a ConfigError if a layout cannot hold the pictures of a model that takes them."""
    if layout == "tree" and tokens is not None:
        raise ConfigError("the layout 'tree' cannot hold pictures; use 'merged', 'steps' or 'auto'")


@dataclass(frozen=True)
class RowPictures:
    """The pictures of each row, and the image tokens of the model that sees them."""

    tokens: PictureTokens
    rows: Sequence[Sequence[Picture]]

    @classmethod
    def of(cls, batch: TokenBatch, tokens: PictureTokens | None, layout: str) -> RowPictures | None:
        """Return the pictures of a batch, None for a model of text.

        Raises:
            ConfigError: The layout is ``tree``.
            DataError: A row has more or fewer image tokens than its pictures give features.
        """
        if tokens is None:
            return None
        check_layout(layout, tokens)
        rows = batch.pictures or ((),) * (len(batch.offsets) - 1)
        for ids, pictures in zip(np.split(batch.input_ids, batch.offsets[1:-1]), rows, strict=True):
            tokens.check(ids.tolist(), pictures)
        return cls(tokens, rows)

    def arguments(self, input_ids: torch.Tensor, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return what the model takes beside the tokens of some rows, padded on the right, shape [rows, tokens]."""
        return forward_arguments(self.tokens, input_ids, [self.rows[row] for row in rows])

    def without_reserved(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits, shape [tokens, vocabulary], in which the tokens that cannot be sampled have no probability."""
        return without_tokens(logits, self.tokens.reserved)
