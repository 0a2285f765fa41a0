"""Pictures on their way through verl: to the generation server, and into the rows that its workers train on.

verl's own agent loops give pictures to a processor together with a row's decoded text
(experimental/agent_loop/agent_loop.py:868). Here a row's tokens are those of the prompts it was sampled from, and a row
whose image tokens are not the features of its pictures is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from agent_envs.pictures.folder import PictureFolder
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import needs_pillow
from agent_envs.prompts.pictures import PictureTokens, fitted, load_picture_tokens

POSITIONS = "position_ids"
"""The key of a row's positions among its inputs, until they are a column of their own."""


def server_pictures(
    engine: str, tokens: PictureTokens, prompt_ids: Sequence[int], pictures: Sequence[Picture]
) -> dict[str, Any]:
    """Return what a generation server is asked with: a prompt, and its pictures in the order of their tokens.

    ``agentr1_cpu`` takes the tokens unchanged; any other engine as vLLM, which itself makes one image token as many
    as a picture takes.
    """
    if engine == "agentr1_cpu":
        return {"prompt_ids": prompt_ids, **({"image_data": list(pictures)} if pictures else {})}
    images = [needs_pillow().fromarray(fitted(picture)) for picture in pictures]
    return {"prompt_ids": tokens.collapsed(prompt_ids, pictures), **({"image_data": images} if images else {})}


def row_inputs(tokens: PictureTokens, ids: Sequence[int], pictures: Sequence[Picture]) -> dict[str, torch.Tensor]:
    """Return verl's inputs of a row of a vision-language model beside its tokens (``multi_modal_inputs``).

    `POSITIONS` has the place of each token within the row and then along time, height and width, int64, shape
    [4, tokens]. A row without pictures has nothing else.
    """
    places = np.concatenate([np.arange(len(ids))[None], tokens.positions(ids, pictures)])
    row = {POSITIONS: torch.from_numpy(places)}
    if pictures:
        row |= {name: torch.from_numpy(values) for name, values in tokens.inputs(pictures)._asdict().items()}
        grid = row["image_grid_thw"]
        row["images_seqlens"] = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])  # verl counts work by it
    return row


image_tokens = lru_cache(maxsize=8)(load_picture_tokens)  # verl makes one agent loop per episode
"""The image tokens of a model, read once; None if it takes text alone."""
picture_folder = lru_cache(maxsize=8)(PictureFolder)
"""The pictures of episodes beside a file, which are written before the line that names them."""
