"""What verl's vision-language models need changed: Qwen2-VL, Qwen2.5-VL and Qwen3-VL with Transformers 5.

``plugin`` calls each function with a module of verl as soon as it is imported.
"""

from __future__ import annotations

from typing import Any

import torch

from agent_envs.policies.local.padded_engine import without_tokens
from agent_envs.prompts.pictures import ARCHITECTURES


def patch_forward(module: Any) -> None:
    """Leave out the tokens that stand for pictures, which no server samples, from what models say of the next token.

    models/transformers/monkey_patch.py:262 prepares every model that an engine has loaded.
    """
    original = module.apply_monkey_patch

    def apply_monkey_patch(model: Any, *args: Any, **kwargs: Any) -> None:
        original(model, *args, **kwargs)
        head = model.get_output_embeddings()
        if model.config.model_type in ARCHITECTURES and head is not None:
            reserved = [model.config.image_token_id, model.config.video_token_id]
            head.register_forward_hook(lambda layer, given, logits: without_tokens(logits, reserved))

    module.apply_monkey_patch = apply_monkey_patch


def patch_qwen2_vl(module: Any) -> None:
    """Compute rows without pictures, and attention without FlashAttention.

    models/transformers/qwen2_vl.py:313 takes the output of the vision tower for a tensor, where a micro-batch has no
    picture; the tower is computed all the same, since ranks that share its weights wait for each other.
    models/transformers/qwen2_vl.py:203 calls FlashAttention where rows are packed, whatever the configuration says.
    """
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLAttention
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLAttention

    embed, flash = module._get_input_embeds, module.qwen2_vl_attn_forward
    plain = {kind: kind.forward for kind in (Qwen2VLAttention, Qwen2_5_VLAttention)}

    def _get_input_embeds(
        model: Any, input_ids: torch.Tensor, mask: Any = None, pixel_values: Any = None, videos: Any = None, *rest: Any
    ) -> tuple[torch.Tensor, Any]:
        if pixel_values is not None or videos is not None:
            return embed(model, input_ids, mask, pixel_values, videos, *rest)
        config, words = model.config.vision_config, model.get_input_embeddings()(input_ids)
        side = 2 * config.spatial_merge_size
        patches = words.new_zeros(side * side, config.in_channels * config.temporal_patch_size * config.patch_size**2)
        grid = torch.tensor([[1, side, side]], device=words.device)
        features, _ = module.unpack_visual_output(model.visual(patches, grid_thw=grid))
        return words + 0.0 * features.mean(), mask

    def qwen2_vl_attn_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.config._attn_implementation == "flash_attention_2":
            return flash(self, *args, **kwargs)
        return plain[type(self)](self, *args, **kwargs)

    module._get_input_embeds = _get_input_embeds
    module.qwen2_vl_attn_forward = qwen2_vl_attn_forward
