"""How a vision-language model of transformers gets its pictures, and the positions of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_envs.errors import needs_extra
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.pictures import PictureTokens

with needs_extra("hf"):
    import torch

_NEVER = -1e9  # a logit whose probability is 0, and whose product with it is no NaN


def generate_arguments(
    tokens: PictureTokens, input_ids: torch.Tensor, pictures: Sequence[Picture]
) -> dict[str, torch.Tensor]:
    """Return what ``model.generate`` takes beside its tokens; nothing if no row has a picture.

    Args:
        tokens: The model's image tokens.
        input_ids: Padded rows, shape [rows, tokens].
        pictures: The pictures of all rows, in order.
    """
    if not pictures:
        return {}
    inputs = tokens.inputs(pictures)
    return {
        "pixel_values": torch.from_numpy(inputs.pixel_values).to(input_ids.device),
        "image_grid_thw": torch.from_numpy(inputs.image_grid_thw).to(input_ids.device),
        "mm_token_type_ids": (input_ids == tokens.token_id).int(),
    }


def forward_arguments(
    tokens: PictureTokens, input_ids: torch.Tensor, rows: Sequence[Sequence[Picture]]
) -> dict[str, torch.Tensor]:
    """Return what a model takes beside the tokens of whole rows: pictures, and the positions of tokens.

    A token has three positions, along time, height and width of its picture, of shape [3, rows, tokens]; those of words
    are equal.

    Args:
        tokens: The image tokens of a vision-language model with multimodal rotary embeddings.
        input_ids: Rows padded on the right, shape [rows, tokens].
        rows: The pictures of each row, in order.
    """
    seen = generate_arguments(tokens, input_ids, [picture for row in rows for picture in row])
    if not seen:
        return {"position_ids": torch.arange(input_ids.shape[1], device=input_ids.device).expand(3, *input_ids.shape)}
    del seen["mm_token_type_ids"]
    places = [tokens.positions(ids, row) for ids, row in zip(input_ids.tolist(), rows, strict=True)]
    return {**seen, "position_ids": torch.from_numpy(np.stack(places, axis=1)).to(input_ids.device)}


def without_tokens(logits: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Return logits, shape [..., vocabulary], in which some tokens have no probability."""
    left_out = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    left_out[list(ids)] = True
    return logits.masked_fill(left_out, max(_NEVER, torch.finfo(logits.dtype).min))
