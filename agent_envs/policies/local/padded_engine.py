"""One batch after the other with Transformers' own ``generate``, for models that `engine.BatchEngine` cannot run.

`BatchEngine` computes plain full attention over its own cache. It takes no pictures, and fails on, or gives other
probabilities than, models with sliding windows (Mistral, Gemma 2), recurrent states (Mamba), learned positions (GPT-2),
or rotary embeddings that change with the longest sequence of a batch: `test_padded_batches_run_what_slots_cannot` shows
it for each. Here Transformers chooses and keeps the cache, so that such models compute what they compute alone; only
the next token is chosen here, so that each row has its own settings and random numbers.

Prompts are padded on the left. A batch runs until its last response has ended; what came meanwhile is the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agent_envs.errors import needs_extra
from agent_envs.policies.local.features import generate_arguments
from agent_envs.policies.local.requests import Engine, Request
from agent_envs.policies.local.sampling import sample
from agent_envs.prompts.pictures import PictureTokens

with needs_extra("hf"):
    import torch
    from transformers import (
        GenerationConfig,
        LogitsProcessor,
        LogitsProcessorList,
        StoppingCriteria,
        StoppingCriteriaList,
    )

__all__ = ["PaddedEngine"]


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
        settings = GenerationConfig(
            max_new_tokens=max(len(request.uniforms) for request in batch),
            do_sample=False,  # the logits processor chooses
            pad_token_id=self.pad_token_id,
            eos_token_id=None,
            use_cache=True,
        )
        tokens = torch.from_numpy(ids).to(self._device)
        seen = {}
        if self.pictures is not None:
            for request in batch:
                self.pictures.check(request.prompt_ids, request.pictures)
            seen = generate_arguments(self.pictures, tokens, [p for request in batch for p in request.pictures])
        state = _Batch(batch, self.stop_token_ids, () if self.pictures is None else self.pictures.reserved)
        self.model.generate(
            input_ids=tokens,
            attention_mask=torch.from_numpy(mask).to(self._device),
            generation_config=settings,
            logits_processor=LogitsProcessorList([_Choose(state)]),
            stopping_criteria=StoppingCriteriaList([_Done(state)]),
            **seen,
        )
        for request in batch:
            request.versions = (self.version, self.version)  # between two batches alone they are replaced
            request.finish("completed")


class _Batch:
    """The requests of a running batch, and which of them continue."""

    def __init__(self, requests: list[Request], stop_token_ids: frozenset[int], reserved: Sequence[int]) -> None:
        self.requests, self.stop_token_ids, self.reserved = requests, stop_token_ids, list(reserved)
        self.open = list(range(len(requests)))

    def take(self, logits: torch.Tensor) -> torch.Tensor:
        """Sample for the rows that continue; return every row's next token (0 for the others), shape [rows]."""
        chosen = torch.zeros(len(self.requests), dtype=torch.int64, device=logits.device)
        if not self.open:
            return chosen
        logits[:, self.reserved] = -torch.inf
        requests = [self.requests[row] for row in self.open]
        uniforms = np.array([request.uniforms[len(request.token_ids)] for request in requests])
        tokens, log_probs = sample(logits[self.open], [request.params for request in requests], uniforms)
        chosen[self.open] = torch.tensor(tokens, device=logits.device)
        for request, token, log_prob in zip(requests, tokens, log_probs, strict=True):
            request.token_ids.append(token)
            request.log_probs.append(log_prob)
        self.open = [row for row in self.open if not self.requests[row].ends(self.stop_token_ids)]
        return chosen


class _Choose(LogitsProcessor):
    """Leaves each row only its sampled token, which ``generate`` then takes."""

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        only = torch.full_like(scores, -torch.inf)
        return only.scatter_(1, self.batch.take(scores)[:, None], 0.0)


class _Done(StoppingCriteria):
    """Ends the batch with its last response."""

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        done = torch.ones(len(input_ids), dtype=torch.bool, device=input_ids.device)
        done[self.batch.open] = False
        return done
