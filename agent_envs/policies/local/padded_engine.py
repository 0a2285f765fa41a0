"""One batch after the other with Transformers' own ``generate``, for models that `engine.BatchEngine` cannot run.

`BatchEngine` computes plain full attention over its own cache. It takes no pictures, and fails on, or gives other
probabilities than, models with sliding windows (Mistral, Gemma 2), recurrent states (Mamba), learned positions (GPT-2),
or rotary embeddings that change with the longest sequence of a batch: `test_padded_batches_run_what_slots_cannot` shows
it for each. Here Transformers chooses and keeps the cache, so that such models compute what they compute alone; only
the next token is chosen here, so that each row has its own settings and random numbers.

Prompts are padded on the left. A batch runs until its last response has ended; what came meanwhile is the next batch.
At the end: how a vision-language model gets its pictures, and the positions of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agent_envs.errors import needs_extra
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.requests import Engine
from agent_envs.prompts.pictures import PictureTokens

with needs_extra("hf"):
    import torch
    from transformers import GenerationConfig


class PaddedEngine(Engine):
    """Generates for any number of requests, `max_rows` at a time; shorter prompts are filled with `pad_token_id`."""

    linger = 0.005

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        max_length: int,
        max_rows: int,
        stop_token_ids: Iterable[int],
        pad_token_id: int = 0,
        seed: int = 0,
        pictures: PictureTokens | None = None,
    ) -> None:
        super().__init__(model, max_length=max_length, stop_token_ids=stop_token_ids, seed=seed)
        self.max_rows, self.pad_token_id = max_rows, pad_token_id
        self.pictures, self.sees = pictures, pictures is not None

    @torch.inference_mode()
    def step(self) -> None:
        """Run the next batch to its end."""
        batch = [self._waiting.popleft() for _ in range(min(self.max_rows, len(self._waiting)))]
        if not batch:
            return
        longest = max(len(request.prompt_ids) for request in batch)
        ids = np.full((len(batch), longest), self.pad_token_id, dtype=np.int64)  # [rows, tokens]
        mask = np.zeros_like(ids)
        for row, request in enumerate(batch):
            ids[row, longest - len(request.prompt_ids) :] = request.prompt_ids
            mask[row, longest - len(request.prompt_ids) :] = 1
        tokens = torch.from_numpy(ids).to(self._device)
        seen: dict[str, torch.Tensor] = {}
        reserved: list[int] = []  # tokens that stand for pictures, which no response has
        if self.pictures is not None:
            for request in batch:
                self.pictures.check(request.prompt_ids, request.pictures)
            seen = generate_arguments(self.pictures, tokens, [p for request in batch for p in request.pictures])
            reserved = list(self.pictures.reserved)
        running = list(range(len(batch)))

        def choose(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            """Leave each row only its sampled token, which `generate` then takes; 0 for those that have ended."""
            scores[:, reserved] = -torch.inf
            chosen = torch.zeros(len(batch), 1, dtype=torch.int64, device=scores.device)
            sampled = self._sample([batch[row] for row in running], scores[running])
            chosen[running, 0] = torch.tensor(sampled, device=scores.device)
            running[:] = [row for row in running if not batch[row].ends(self.stop_token_ids)]
            return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0.0)

        def ended(input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            return torch.tensor([row not in running for row in range(len(batch))], device=input_ids.device)

        own, self.model.generation_config = self.model.generation_config, GenerationConfig()  # which adds nothing
        try:
            self.model.generate(
                input_ids=tokens,
                attention_mask=torch.from_numpy(mask).to(self._device),
                generation_config=GenerationConfig(
                    max_new_tokens=max(len(request.uniforms) for request in batch),
                    do_sample=False,  # `choose` does
                    pad_token_id=self.pad_token_id,
                ),
                logits_processor=[choose],
                stopping_criteria=[ended],
                **seen,
            )
        finally:
            self.model.generation_config = own
        for request in batch:
            request.finish("completed")


_NEVER = -1e9  # a logit whose probability is 0, and whose product with it is no NaN


def generate_arguments(
    tokens: PictureTokens, input_ids: torch.Tensor, pictures: Sequence[Picture]
) -> dict[str, torch.Tensor]:
    """Return what ``model.generate`` takes with padded rows of shape [rows, tokens]; nothing if none has a picture."""
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
