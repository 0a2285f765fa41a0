"""How a vision-language model of transformers gets its pictures, and the positions of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_envs.errors import MissingExtraError
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.pictures import PictureTokens

try:
    import torch
except ImportError as e:
    raise MissingExtraError("torch", extra="hf") from e

__all__ = ["forward_arguments", "generate_arguments"]


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
    model: Any, tokens: PictureTokens, input_ids: torch.Tensor, pictures: Sequence[Picture]
) -> dict[str, torch.Tensor]:
    """Return what a model takes beside the tokens of whole rows: pictures, and the positions of tokens.

    A token has three positions, along time, height and width of its picture, of shape [3, rows, tokens]; those of words
    are equal.

    Args:
        model: A vision-language model with multimodal rotary embeddings.
        tokens: Its image tokens.
        input_ids: Rows padded on the right, shape [rows, tokens].
        pictures: The pictures of all rows, in order.
    """
    seen = generate_arguments(tokens, input_ids, pictures)
    if not seen:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        return {"position_ids": positions.expand(3, *input_ids.shape)}
    kinds = seen.pop("mm_token_type_ids")
    positions, _ = model.model.get_rope_index(input_ids, mm_token_type_ids=kinds, image_grid_thw=seen["image_grid_thw"])
    return {**seen, "position_ids": positions}
