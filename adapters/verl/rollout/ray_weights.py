"""verl's transfer of weights to generation servers on other devices, without an accelerator: through a Ray actor.

The trainer's first rank puts all weights, whole and in float32, into Ray's object store; the servers' workers take them
from there. verl's own engines need a GPU's network (verl/checkpoint_engine/nccl_checkpoint_engine.py and others).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

BACKEND = "agentr1_ray"
"""Name in ``actor_rollout_ref.rollout.checkpoint_engine.backend``."""
_POLL_SECONDS = 0.02


class _Shelf:
    """The Ray actor that keeps the newest weights."""

    def __init__(self) -> None:
        self.version: int | None = None
        self.weights: Mapping[str, torch.Tensor] | None = None

    def put(self, version: int, weights: Mapping[str, torch.Tensor]) -> None:
        self.version, self.weights = version, weights

    def take(self, version: int) -> Mapping[str, torch.Tensor] | None:
        """Return the weights of a version; None if they have not come yet."""
        return self.weights if self.version == version else None


def _shelf() -> Any:
    return ray.remote(_Shelf).options(name=BACKEND, num_cpus=0, get_if_exists=True, lifetime="detached").remote()


@CheckpointEngineRegistry.register(BACKEND)
class RayWeights(CheckpointEngine):
    """Takes the part of verl's NCCL engine where there is no GPU."""

    def __init__(self, bucket_size: int = 0, is_master: bool = False, **options: Any) -> None:
        self.rank = -1

    def prepare(self) -> dict[str, Any]:
        """Return nothing: there are no addresses to exchange."""
        return {}

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, metadata: Any
    ) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Return each worker's rank: the trainer's own, and -1 for those that receive."""
        return {"rank": list(range(trainer_world_size))}, {"rank": [-1] * rollout_world_size}

    def init_process_group(self, rank: int = -1, **options: Any) -> None:
        self.rank = rank

    def finalize(self) -> None:
        """Do nothing: nothing was opened."""

    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Gather all weights, which every rank takes part in, and keep them on the first."""
        whole = {}
        async for name, tensor in ensure_async_iterator(weights):
            if self.rank == 0:
                whole[name] = tensor.detach().to("cpu", torch.float32, copy=True)
        if self.rank == 0:
            await _shelf().put.remote(global_steps, whole)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield the weights of a version as soon as they have been sent."""
        while (weights := await _shelf().take.remote(global_steps)) is None:
            await asyncio.sleep(_POLL_SECONDS)
        for named in weights.items():
            yield named
