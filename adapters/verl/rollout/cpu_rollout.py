"""verl's rollout on a CPU: generation engine, the Ray actor around it, its replica, and the sender of new weights."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from agent_envs.errors import BackendError
from agent_envs.pictures.picture import Picture
from agent_envs.policies.local.loading import check_pictures, load_model, make_engine, stop_token_ids
from agent_envs.policies.local.requests import Engine, SamplingParams
from agent_envs.policies.local.server import GenerateServer
from agent_envs.policies.tokens import load_tokenizer
from agent_envs.prompts.pictures import load_picture_tokens

ROLLOUT_NAME = "agentr1_cpu"
"""Name in ``actor_rollout_ref.rollout.name``."""
_CALLS = 100_000  # at once: those that wait for new weights must not keep out the one that brings them


def _actor_name(replica_rank: int) -> str:
    return f"{ROLLOUT_NAME}_server_{replica_rank}"


def load_engine(
    model_path: str, *, max_length: int, max_rows: int, seed: int = 0, trust: bool = False, dtype: str = "float32"
) -> Engine:
    """Return an engine for a Hugging Face model, a folder or a name: one that sees if the model does."""
    model = load_model(model_path, dtype=dtype, trust_remote_code=trust)
    tokenizer = load_tokenizer(model_path, trust_remote_code=trust)
    pictures = load_picture_tokens(model_path, tokenizer)
    check_pictures(model, pictures)
    return make_engine(
        model, max_length=max_length, max_rows=max_rows, stop_token_ids=stop_token_ids(model, tokenizer),
        pad_token_id=tokenizer.pad_token_id or 0, seed=seed, pictures=pictures,
    )  # fmt: skip


class CPURolloutServer:
    """The Ray actor, with the methods that verl calls on a server (verl/workers/rollout/vllm_rollout)."""

    def __init__(self, model_path: str, config: Any, replica_rank: int, trust_remote_code: bool) -> None:
        # generation shares the machine with the environments and verl's other processes; updates do not
        torch.set_num_threads(max(1, torch.get_num_threads() // 2))
        self.response_length = int(config.response_length)
        self.engine = load_engine(
            model_path,
            max_length=int(config.max_model_len or config.prompt_length + config.response_length),
            max_rows=int(config.max_num_seqs),
            seed=int(config.seed) + replica_rank,
            trust=trust_remote_code,
            dtype=config.dtype,
        )
        self.server = GenerateServer(self.engine)
        self.gate = asyncio.Event()  # set while responses are written
        self.gate.set()
        self.rejects = False

    async def get_address(self) -> str:
        """Return a name for the load balancer; there is no socket."""
        return f"{ROLLOUT_NAME}://{os.getpid()}"

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling_params: Mapping[str, Any],
        request_id: str,
        image_data: Sequence[Picture] | None = None,
        video_data: Any = None,
        audio_data: Any = None,
        mm_processor_kwargs: Any = None,
        priority: int = 0,
    ) -> TokenOutput:
        """Generate one response, with the log-probability of every token.

        ``image_data`` has the prompt's pictures in the order of their tokens.
        """
        if video_data or audio_data:
            raise BackendError("the CPU server takes text and pictures, no videos or audio")
        params = SamplingParams.from_dict(sampling_params, self.response_length)
        while not self.gate.is_set():
            if self.rejects:
                return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted", num_preempted=0)
            await self.gate.wait()
        done = await self.server.generate([int(token) for token in prompt_ids], params, list(image_data or ()))
        first, last = done.versions
        versions = {"global_steps": last, "min_global_steps": first, "max_global_steps": last}
        return TokenOutput(
            token_ids=done.token_ids,
            log_probs=done.log_probs,
            stop_reason=done.stop_reason,
            num_preempted=0,
            extra_fields={**versions, "num_cached_tokens": done.cached_tokens},
        )

    async def load_weights(self, weights: Mapping[str, torch.Tensor], global_steps: int | None) -> None:
        """Replace the model's weights between two iterations."""
        await self.server.call(lambda: self.engine.load_weights(weights, global_steps))

    async def clear_kv_cache(self) -> None:
        await self.server.call(self.engine.clear_cache)

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """End all responses where they are; later requests wait for ``resume_generation``, or end at once."""
        self.rejects = reject_request
        self.gate.clear()
        await self.server.call(self.engine.abort)

    async def resume_generation(self) -> None:
        self.rejects = False
        self.gate.set()

    async def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """Memory is not shared with the trainer, and there is no profiler."""

    wake_up = sleep = release_kv_cache = resume_kv_cache = start_profile = stop_profile = _nothing


class CPUReplica(RolloutReplica):
    """One server beside the trainer's workers."""

    async def launch_servers(self) -> None:
        """Start the Ray actor."""
        if self.world_size != 1:
            raise BackendError(f"a CPU server is one process, but the parallel size is {self.world_size}")
        remote_code = bool(self.model_config.get("trust_remote_code", False))
        name = _actor_name(self.replica_rank)
        actor = ray.remote(CPURolloutServer).options(name=name, num_cpus=0, max_concurrency=_CALLS)
        server = actor.remote(self.model_config.path, self.config, self.replica_rank, remote_code)
        self.servers, self._server_handle = [server], server
        self._server_address = await server.get_address.remote()

    def rollout_worker_use_gpu(self) -> bool:
        return False


class OnlyServer:
    """Answers verl's clients as the load balancer of one server would (verl/workers/rollout/router.py)."""

    def __init__(self, address: str, handle: Any) -> None:
        async def nothing(**asked: Any) -> list[str]:
            return []

        async def server(**asked: Any) -> tuple[str, Any]:
            return address, handle

        self.require_acquire_fields = self.require_release_fields = SimpleNamespace(remote=nothing)
        self.acquire_server = SimpleNamespace(remote=server)
        self.release_server = SimpleNamespace(remote=lambda **asked: None)


class CPURollout(BaseRollout):
    """Lives in the training worker and sends its weights to the server through Ray's object store."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **kwargs: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        self.replica_rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self._server: Any = None

    async def resume(self, *tags: Any) -> None:
        """Do nothing, like ``release``: memory is not shared with the trainer."""

    release = resume

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **kwargs: Any
    ) -> None:
        """Send all weights, in the type that the server has."""
        from verl.utils.torch_dtypes import PrecisionType
        from verl.workers.rollout.utils import ensure_async_iterator

        if wire_format != "named_tensors":
            raise BackendError(f"the CPU server takes whole weights, not the wire format {wire_format!r}")
        named = {}
        async for name, tensor in ensure_async_iterator(weights):
            named[name] = tensor.detach().to("cpu", PrecisionType.to_dtype(self.config.dtype), copy=True)
        if self._server is None:
            self._server = await asyncio.to_thread(ray.get_actor, _actor_name(self.replica_rank))
        await self._server.load_weights.remote(named, global_steps)
