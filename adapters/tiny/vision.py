"""Tiny vision-language models: tiny-base, which sees through a small vision tower.

Their architecture is Qwen2-VL at under a million parameters, with its image processor. `build_vision_model` gives
tiny-base a new tower that has to be taught: on text alone it computes exactly what tiny-base does, and one feature
stands for 64 x 64 pixels, so that a small board is one token, in which every part of the board has weights of its own.
`load_vision_base` loads tiny-vision, which has learned to read pages, with features of 32 x 32 pixels. Which of several
tokens is where, the rotary embedding alone tells.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from agent_envs.adapters.tiny.model import base_folder, check_files, load_base, vision_folder
from agent_envs.pictures.picture import Picture
from agent_envs.prompts.pictures import PictureTokens, load_picture_tokens

_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_PIXELS = 256 * 256  # a larger picture is shrunk
_READ = 256  # different pictures that set a tower's scale, at most
_LEAST_SPREAD = 0.02  # a direction in which features differ less, as a share of the largest, is noise

VISION_CHAT_TEMPLATE = (
    "{%- macro shown(content) -%}{%- if content is string -%}{{- content -}}{%- else -%}"
    "{%- for part in content or [] -%}"
    "{{- '<|vision_start|><|image_pad|><|vision_end|>' if part.type == 'image' else part.text -}}"
    "{%- endfor -%}{%- endif -%}{%- endmacro -%}\n"
    + re.sub(r"message(s\[0\])?\.content", r"shown(\g<0>)", (base_folder() / "chat_template.jinja").read_text("utf-8"))
)
"""The chat template of tiny-base, whose messages may be lists of parts, with pictures among them."""


class VisionModel(NamedTuple):
    """A vision-language model and what reads for it."""

    model: Any
    """A Qwen2-VL model; of tiny-base without a tower, its Qwen2 model."""
    tokenizer: PreTrainedTokenizerBase
    pictures: PictureTokens | None
    """How it reads pictures; None if it does not."""


def build_vision_model(*, patch: int = 32, width: int = 32, seed: int = 0) -> VisionModel:
    """Return tiny-base with a freshly initialised vision tower, the same for the same `seed`, in float32.

    The global random state of torch is not changed.

    Args:
        patch: Pixels of a patch's side; four patches are a feature.
        width: Numbers of a patch within the tower.
        seed: Draws the tower's weights.
    """
    base, tokenizer = load_base()
    words = len(tokenizer)
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=True) for t in _TOKENS], special_tokens=True)
    tokenizer.chat_template = VISION_CHAT_TEMPLATE
    text = base.config.to_dict()
    half = base.config.hidden_size // base.config.num_attention_heads // 2
    text |= {
        "vocab_size": len(tokenizer),
        # Fast frequencies for rows and columns: of Qwen2-VL's own thirds the columns' turn by 0.003 over eight tokens.
        # With two for rows, columns are learned half as fast. All words have one position in the three, so any sections
        # leave them unchanged.
        "rope_parameters": {**text["rope_parameters"], "mrope_section": [0, 1, half - 1]},
        "dtype": "float32",
    }
    unwanted = ("architectures", "model_type", "transformers_version", "_name_or_path")
    first = {name: tokenizer.convert_tokens_to_ids(token) for name, token in zip(
        ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"), _TOKENS, strict=True
    )}  # fmt: skip
    config = Qwen2VLConfig(
        text_config={key: value for key, value in text.items() if key not in unwanted},
        vision_config={
            "depth": 2, "embed_dim": width, "hidden_size": base.config.hidden_size, "num_heads": 2,
            "mlp_ratio": 2, "patch_size": patch, "spatial_merge_size": 2, "temporal_patch_size": 1, "in_channels": 3,
        },
        tie_word_embeddings=True, dtype="float32", attn_implementation="sdpa",
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **first,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2VLForConditionalGeneration(config)
        with torch.no_grad():
            for name, weight in model.model.visual.named_parameters():
                if name.endswith("bias"):
                    weight.zero_()
                elif weight.dim() > 1:
                    weight.normal_(std=1 / math.sqrt(weight[0].numel()))
            # features about as large as words
            size = base.model.embed_tokens.weight.std()
            model.model.visual.merger.mlp[-1].weight.mul_(size)
            known = base.model.state_dict()
            model.model.language_model.embed_tokens.weight.normal_(std=float(size))
            model.model.language_model.embed_tokens.weight[:words] = known.pop("embed_tokens.weight")[:words]
            model.model.language_model.load_state_dict(known, strict=False)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    processor = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, temporal_patch_size=1, size={"shortest_edge": 256, "longest_edge": _PIXELS}
    )
    return VisionModel(model.eval(), tokenizer, PictureTokens(processor, tokenizer))


def load_vision_base() -> VisionModel:
    """Return tiny-vision in float32, tiny-base with a tower that reads pages; a damaged file is a BackendError."""
    folder = vision_folder()
    check_files(folder, "tiny-vision")
    model = Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return VisionModel(model.eval(), tokenizer, load_picture_tokens(str(folder), tokenizer))


def spread_features(made: VisionModel, pictures: Iterable[Picture]) -> None:
    """Set the scale of a new tower by some pictures, so that its features differ as words do.

    The features of a tower with drawn weights are nearly one and the same vector: what tells the boards of a game apart
    is a tenth of it, and a model that is trained learns the rest by heart instead. The tower's last layer is changed so
    that the features of these pictures have the mean 0, the same variance in every direction in which they differ, and
    the length of a word's vector.

    Source:
        Weights that are set by data: Krähenbühl and others, arXiv 1511.06856, section 3.

    Args:
        made: A model with a tower, which is changed in place.
        pictures: Pictures of the task; the first 256 different ones are read. Without two the tower stays unchanged.
    """
    assert made.pictures is not None
    different = list(itertools.islice(dict.fromkeys(pictures), _READ))
    if len(different) < 2:
        return
    inputs = made.pictures.inputs(different)
    with torch.no_grad():
        pixels, grids = torch.from_numpy(inputs.pixel_values), torch.from_numpy(inputs.image_grid_thw)
        features = torch.cat(made.model.model.get_image_features(pixels, grids).pooler_output).double()
        mean = features.mean(0)
        _, sizes, directions = torch.linalg.svd(features - mean, full_matrices=False)
        if not sizes[0] > 0:
            return  # they have the same features
        large = sizes > _LEAST_SPREAD * sizes[0]
        spread = directions[large].T / sizes[large] @ directions[large]
        words = made.model.model.language_model.embed_tokens.weight.norm(dim=1).mean()
        spread *= words / ((features - mean) @ spread).norm(dim=1).mean()
        last = made.model.model.visual.merger.mlp[-1]
        last.weight.copy_(spread.T @ last.weight.double())
        last.bias.copy_((last.bias.double() - mean) @ spread)
