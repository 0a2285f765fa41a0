"""The generation server of verl's CPU rollout: an engine whose weights the trainer replaces."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from agent_envs.policies.local.engine import BatchEngine
from agent_envs.policies.local.loading import check_pictures, load_model, stop_token_ids, takes_pictures
from agent_envs.policies.local.padded_engine import PaddedEngine
from agent_envs.policies.local.server import GenerateServer
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.pictures import load_picture_tokens

__all__ = ["CPUServer", "load_engine"]


def load_engine(
    model_path: str, *, max_length: int, max_rows: int, seed: int = 0, trust_remote_code: bool = False
) -> BatchEngine | PaddedEngine:
    """Return an engine in float32 for a Hugging Face model, a folder or a name: one that sees if the model does."""
    model = load_model(model_path, dtype=torch.float32, trust_remote_code=trust_remote_code)
    if not takes_pictures(model.config):
        stops = stop_token_ids(model, lambda: load_tokenizer(model_path, trust_remote_code=trust_remote_code))
        return BatchEngine(model, max_length=max_length, max_rows=max_rows, stop_token_ids=stops, seed=seed)
    tokenizer = load_tokenizer(model_path, trust_remote_code=trust_remote_code)
    pictures = load_picture_tokens(model_path, tokenizer)
    check_pictures(model, pictures)
    return PaddedEngine(
        model, max_length=max_length, max_rows=max_rows, stop_token_ids=stop_token_ids(model, lambda: tokenizer),
        pad_token_id=tokenizer.pad_token_id or 0, seed=seed, pictures=pictures,
    )  # fmt: skip


class CPUServer(GenerateServer):
    """A generation server whose weights can be replaced."""

    async def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace the model's weights between two iterations.

        Raises:
            BackendError: The weights do not fit.
        """
        await self.call(lambda: self._engine.load_weights(weights, version))

    async def clear_cache(self) -> None:
        await self.call(self._engine.clear_cache)

    async def abort(self) -> None:
        """End every request with the tokens it has."""
        await self.call(self._engine.abort)
