"""Pictures on their way through verl: to the generation server, and into the rows that its workers train on.

verl's own agent loops give pictures to a processor together with a row's decoded text
(experimental/agent_loop/agent_loop.py:868). Here a row's tokens are those of the prompts it was sampled from, and a row
whose image tokens are not the features of its pictures is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_envs.episodes.record import Episode, episode_pictures
from agent_envs.pictures.folder import PictureFolder
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import needs_pillow
from agent_envs.prompts.pictures import PictureTokens, fitted, load_picture_tokens

__all__ = ["MISSING", "POSITIONS", "KeptPictures", "image_tokens", "keep_pictures", "row_inputs", "server_pictures"]

MISSING = "missing_pictures"
"""Stop reason of a request with a digest whose picture the server does not have any more: it needs the picture."""

POSITIONS = "position_ids"
"""The key of a row's positions among its inputs, until they are a column of their own."""

# verl makes one agent loop per episode, so a process shares these.
_tokens: dict[tuple[str, int], PictureTokens | None] = {}


def image_tokens(model: str, tokenizer: Any) -> PictureTokens | None:
    """Return the image tokens of the model in a folder or of that name, read once; None if it takes text alone."""
    key = model, id(tokenizer)
    if key not in _tokens:
        _tokens[key] = load_picture_tokens(model, tokenizer)
    return _tokens[key]


def server_pictures(
    engine: str, tokens: PictureTokens, prompt_ids: Sequence[int], pictures: Sequence[Picture], sent: set[str]
) -> dict[str, Any]:
    """Return the arguments of a request with pictures to a generation server.

    Args:
        engine: ``agentr1_cpu``, which takes the tokens as they are, and the digest of a picture that it has; any other
            as vLLM, which itself makes one image token as many as a picture takes.
        tokens: The model's image tokens.
        prompt_ids: The prompt, shape [prompt tokens].
        pictures: Its pictures, in the order of their tokens.
        sent: Digests of the pictures that the server has got; those that this request brings are added.
    """
    if engine == "agentr1_cpu":
        given: list[Picture | str] = []
        for picture in pictures:
            given.append(picture.digest if picture.digest in sent else picture)
            sent.add(picture.digest)
        return {"prompt_ids": prompt_ids, **({"image_data": given} if given else {})}
    images = [needs_pillow().fromarray(fitted(picture)) for picture in pictures]
    return {"prompt_ids": tokens.collapsed(prompt_ids, pictures), **({"image_data": images} if images else {})}


class KeptPictures:
    """The pictures that a server has got, by digest: an episode whose prompts show one again sends it once.

    Args:
        most_bytes: Most memory for pixels; the picture that was not shown for longest goes first.
    """

    def __init__(self, most_bytes: int = 1 << 28) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[str, Picture] = OrderedDict()
        self._bytes = 0

    def take(self, given: Sequence[Picture | str]) -> list[Picture] | None:
        """Return pictures, each given itself or by its digest; None if one of these is not here."""
        named = {picture.digest: picture for picture in given if isinstance(picture, Picture)}
        digests = [each if isinstance(each, str) else each.digest for each in given]
        found = [named.get(digest) or self._kept.get(digest) for digest in digests]
        for digest, picture in zip(digests, found, strict=True):
            if picture is not None:
                self._bytes += picture.array.nbytes if digest not in self._kept else 0
                self._kept[digest] = picture
                self._kept.move_to_end(digest)
        while self._bytes > self.most_bytes:
            self._bytes -= self._kept.popitem(last=False)[1].array.nbytes
        known = [picture for picture in found if picture is not None]
        return known if len(known) == len(found) else None


def row_inputs(tokens: PictureTokens, ids: Sequence[int], pictures: Sequence[Picture]) -> dict[str, torch.Tensor]:
    """Return verl's inputs of a row of a vision-language model beside its tokens (``multi_modal_inputs``).

    `POSITIONS` has the place of each token within the row and then along time, height and width, int64, shape
    [4, tokens]. A row without pictures has nothing else.

    Raises:
        DataError: The row has more or fewer image tokens than its pictures give features.
    """
    places = np.concatenate([np.arange(len(ids))[None], tokens.positions(ids, pictures)])
    found = {POSITIONS: torch.from_numpy(places)}
    if pictures:
        found |= {name: torch.from_numpy(values) for name, values in tokens.inputs(pictures)._asdict().items()}
        grid = found["image_grid_thw"]
        found["images_seqlens"] = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])  # verl counts work by it
    return found


def keep_pictures(folder: str, episode: Episode) -> None:
    """Write an episode's pictures to ``pictures`` in the folder of files of episodes, before the line that names them.

    Raises:
        OSError: A file cannot be written.
    """
    _folder(folder).add(episode_pictures(episode))


@lru_cache(maxsize=8)
def _folder(folder: str) -> PictureFolder:
    return PictureFolder(Path(folder) / "episodes.jsonl")
