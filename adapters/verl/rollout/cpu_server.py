"""The generation server of verl's CPU rollout: an engine whose weights the trainer replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from agent_envs.policies.local.engine import BatchEngine
from agent_envs.policies.local.loading import load_model, stop_token_ids
from agent_envs.policies.local.server import GenerateServer

__all__ = ["CPUServer", "load_engine"]


def load_engine(
    model_path: str, *, max_length: int, max_rows: int, seed: int = 0, trust_remote_code: bool = False
) -> BatchEngine:
    """Return an engine in float32 for a Hugging Face model: a folder or a name."""
    from transformers import AutoTokenizer

    model = load_model(model_path, dtype=torch.float32, trust_remote_code=trust_remote_code)
    options = {"trust_remote_code": trust_remote_code}
    stops = stop_token_ids(model, lambda: AutoTokenizer.from_pretrained(model_path, **options))
    return BatchEngine(model, max_length=max_length, max_rows=max_rows, stop_token_ids=stops, seed=seed)


class CPUServer(GenerateServer):
    """A generation server whose weights can be replaced."""

    def __init__(self, engine: BatchEngine) -> None:
        super().__init__(engine)
        self._batch_engine = engine

    async def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace the model's weights between two iterations.

        Raises:
            BackendError: The weights do not fit.
        """
        await self._run(lambda: self._batch_engine.load_weights(weights, version))

    async def clear_cache(self) -> None:
        await self._run(self._batch_engine.clear_cache)

    async def abort(self) -> None:
        """End every request with the tokens it has."""
        await self._run(self._batch_engine.abort)

    async def _run(self, action: Callable[[], object]) -> None:
        await self.call(lambda done: done(action()))
