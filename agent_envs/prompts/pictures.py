"""How a vision-language model reads pictures: how many tokens one takes, and the numbers that the model gets.

A prompt has as many image tokens for a picture as the vision tower gives features. Both follow from the picture's size
alone, so that a prompt can be built, counted and cut without running the model. The models are those with the image
processor of Qwen2-VL (Qwen2-VL, Qwen2.5-VL, Qwen3-VL); it runs on Pillow, and gives the same numbers on every machine.

Source: Wang and others, "Qwen2-VL", arXiv 2409.12191, section 2.1 (dynamic resolution).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent_envs.errors import ConfigError, DataError, PromptError, first_line, needs_extra
from agent_envs.pictures.picture import Picture

IMAGE_TOKEN = "<|image_pad|>"
IMAGE_PROCESSOR = "preprocessor_config.json"
"""The file in a model's folder that says how it reads pictures."""
_VIDEO_TOKEN = "<|video_pad|>"
ARCHITECTURES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Kinds of models that see pictures here, as their configurations name them: Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""
_FAMILY = ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil")
_NARROWEST = 200  # the processor takes no picture whose sides have a larger ratio
_CACHE_BYTES = 64 << 20
_log = logging.getLogger(__name__)


class PictureInputs(NamedTuple):
    """What a model gets for the pictures of a row."""

    pixel_values: np.ndarray
    """The patches of all pictures, float32, shape [patches, channels x time x height x width of a patch]."""
    image_grid_thw: np.ndarray
    """Patches of each picture along time, height and width, int64, shape [pictures, 3]."""


class PictureTokens:
    """The image tokens of a model.

    Args:
        image_processor: ``Qwen2VLImageProcessorPil`` of transformers, with the model's settings.
        tokenizer: The model's tokenizer.

    Raises:
        ConfigError: The image processor is of another kind, or the tokenizer has no image token.
    """

    def __init__(self, image_processor: Any, tokenizer: Any) -> None:
        if type(image_processor).__name__ not in _FAMILY:
            raise ConfigError(
                f"the image processor {type(image_processor).__name__} is not supported: expected that of Qwen2-VL, "
                "Qwen2.5-VL or Qwen3-VL (Qwen2VLImageProcessorPil)"
            )
        vocabulary = tokenizer.get_vocab()
        if IMAGE_TOKEN not in vocabulary:
            raise ConfigError(f"the tokenizer has no token {IMAGE_TOKEN}, which stands for pictures")
        self.image_processor = image_processor
        self.token_id: int = vocabulary[IMAGE_TOKEN]
        """The token of which a picture takes `count`."""
        self.reserved = tuple(vocabulary[name] for name in (IMAGE_TOKEN, _VIDEO_TOKEN) if name in vocabulary)
        """Tokens that stand for pictures and videos, which a model must not write: no features would belong to them."""
        self.names = tuple(name for name in (IMAGE_TOKEN, _VIDEO_TOKEN) if name in vocabulary)
        """Their text."""
        self._cached: OrderedDict[Picture, PictureInputs] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def count(self, picture: Picture) -> int:
        """Return how many tokens a picture takes, which is how many features the vision tower gives."""
        height, width = _sides(picture)
        processor = self.image_processor
        return int(processor.get_number_of_image_patches(height, width, {})) // processor.merge_size**2

    def expanded(self, ids: Sequence[int], pictures: Sequence[Picture]) -> list[int]:
        """Return tokens with one image token for each picture, in order, as the model reads them.

        Raises:
            PromptError: There are more or fewer image tokens than pictures.
        """
        shown = sum(token == self.token_id for token in ids)
        if shown != len(pictures):
            raise PromptError(
                f"the chat template shows {shown} of {len(pictures)} pictures; use one that shows the pictures of "
                "every message, such as Qwen3-VL's"
            )
        if not pictures:
            return list(ids)
        left, out = iter(pictures), list[int]()
        for token in ids:
            out += [token] * self.count(next(left)) if token == self.token_id else [token]
        return out

    def collapsed(self, ids: Sequence[int], pictures: Sequence[Picture]) -> list[int]:
        """Return tokens with one image token for each picture, as `expanded` takes them."""
        self.check(ids, pictures)
        left, out, position = iter(pictures), list[int](), 0
        while position < len(ids):
            out.append(ids[position])
            position += self.count(next(left)) if ids[position] == self.token_id else 1
        return out

    def check(self, ids: Iterable[int], pictures: Sequence[Picture]) -> None:
        """Check that a row has the image tokens of its pictures.

        Raises:
            DataError: It has more or fewer.
        """
        tokens, features = sum(token == self.token_id for token in ids), sum(map(self.count, pictures))
        if tokens != features:
            raise DataError(
                f"a row has {tokens} image tokens, and its {len(pictures)} pictures give {features} features; keep a "
                "prompt and its pictures together"
            )

    def positions(self, ids: Sequence[int], pictures: Sequence[Picture]) -> np.ndarray:
        """Return where the tokens of a row are along time, height and width, int64, shape [3, tokens].

        The three of a word are equal. A picture begins where the words before it end, is one moment of time, and the
        words behind it go on after its longer side (Qwen2-VL, section 2.1).

        Raises:
            DataError: The row has more or fewer image tokens than its pictures give features.
        """
        self.check(ids, pictures)
        at = np.flatnonzero(np.asarray(ids) == self.token_id)  # of the image tokens
        out = np.empty((3, len(ids)), np.int64)
        done = seen = place = 0
        for picture in pictures:
            height, width = self._inputs(picture).image_grid_thw[0, 1:] // self.image_processor.merge_size
            begin, end = int(at[seen]), int(at[seen]) + int(height * width)
            out[:, done:begin] = np.arange(place, place + begin - done)
            place += begin - done
            out[0, begin:end] = place
            out[1, begin:end] = place + np.repeat(np.arange(height), width)
            out[2, begin:end] = place + np.tile(np.arange(width), height)
            place += int(max(height, width))
            done, seen = end, seen + end - begin
        out[:, done:] = np.arange(place, place + len(ids) - done)
        return out

    def inputs(self, pictures: Sequence[Picture]) -> PictureInputs:
        """Return what the model gets for the pictures of a row, or of several rows after each other; at least one."""
        parts = [self._inputs(picture) for picture in pictures]
        return PictureInputs(
            np.concatenate([part.pixel_values for part in parts]),
            np.concatenate([part.image_grid_thw for part in parts]),
        )

    def _inputs(self, picture: Picture) -> PictureInputs:
        with self._lock:
            if picture in self._cached:
                self._cached.move_to_end(picture)
                return self._cached[picture]
        made = self.image_processor(images=[fitted(picture)], input_data_format="channels_last", return_tensors="np")
        inputs = PictureInputs(np.asarray(made["pixel_values"], np.float32), np.asarray(made["image_grid_thw"]))
        with self._lock:
            self._bytes += 0 if picture in self._cached else inputs.pixel_values.nbytes
            self._cached[picture] = inputs
            while self._bytes > _CACHE_BYTES:
                self._bytes -= self._cached.popitem(last=False)[1].pixel_values.nbytes
        return inputs


def load_picture_tokens(name: str, tokenizer: Any) -> PictureTokens | None:
    """Return the image tokens of the model in a Hugging Face folder or of that name; None if it takes text alone.

    One of another kind than `ARCHITECTURES`, or with another image processor than Qwen's, is taken for a model of text,
    which a warning in the log says.

    Raises:
        ConfigError: The image processor cannot be loaded.
        MissingExtraError: transformers or Pillow is not installed.
    """
    with needs_extra("hf"):
        from transformers import AutoConfig
        from transformers.image_processing_base import ImageProcessingMixin
    folder = Path(name).expanduser()
    source = str(folder) if folder.is_dir() else name
    try:
        if folder.is_dir() and not (folder / IMAGE_PROCESSOR).is_file():
            return None
        config = None  # of a folder that holds a tokenizer and an image processor alone
        if not folder.is_dir() or (folder / "config.json").is_file():
            config = AutoConfig.from_pretrained(source)
        if not folder.is_dir() and getattr(config, "vision_config", None) is None:
            return None  # asking the hub for a file that is not there takes long where there is no network
        settings, _ = ImageProcessingMixin.get_image_processor_dict(source)
    except (OSError, ValueError):
        return None  # it has none, or the model needs code of its own
    kind = str(settings.get("image_processor_type", settings.get("feature_extractor_type", "none")))
    model = "model" if config is None else str(config.model_type)
    if kind not in _FAMILY or (config is not None and model not in ARCHITECTURES):
        _log.warning(
            "%s reads text alone here: it is a %s with the image processor %s, and pictures are shown to Qwen2-VL, "
            "Qwen2.5-VL and Qwen3-VL (%s) with Qwen2VLImageProcessor", name, model, kind, ", ".join(ARCHITECTURES),
        )  # fmt: skip
        return None
    with needs_extra("games", "Pillow"):
        import PIL  # noqa: F401
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    try:
        processor = Qwen2VLImageProcessorPil.from_pretrained(source)
    except (OSError, ValueError, TypeError) as e:
        raise ConfigError(f"the image processor of {name!r} cannot be loaded: {first_line(e)}") from e
    return PictureTokens(processor, tokenizer)


def _sides(picture: Picture) -> tuple[int, int]:
    """Return height and width as the processor gets them: no side is shorter than a 200th of the other."""
    least = math.ceil(max(picture.height, picture.width) / _NARROWEST)
    return max(picture.height, least), max(picture.width, least)


def fitted(picture: Picture) -> np.ndarray:
    """Return the pixels that an image processor takes, uint8, shape [height, width, 3].

    A picture of which one side is more than 200 times the other repeats its last row or column.
    """
    height, width = _sides(picture)
    if (height, width) == (picture.height, picture.width):
        return picture.array
    return np.pad(picture.array, ((0, height - picture.height), (0, width - picture.width), (0, 0)), mode="edge")
