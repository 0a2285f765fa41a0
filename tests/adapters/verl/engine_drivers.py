"""One way to ask every rollout engine, for the tests that all of them pass (test_rollout_engines.py).

An engine runs on the GPU if there is one and on the CPU otherwise, in float32.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from agent_envs.errors import AgentEnvsError

CONTEXT = 2048
"""Tokens of prompt and response."""
_ROLLOUT = "actor_rollout_ref.rollout"
_FLOAT32 = {"dtype": "float32", "enforce_eager": True}


@dataclasses.dataclass(frozen=True)
class Answer:
    """One response."""

    tokens: list[int]
    """As sampled, the stop token included."""
    log_probs: list[float]
    """One for each token."""
    aborted: bool = False
    """Whether it was told to stop."""
    cached: int | None = None
    """Tokens of the prompt that the engine had computed before."""
    version: int | None = None
    """Of the weights that wrote it."""


class Driver:
    """An engine with the model of a folder."""

    errors: tuple[type[Exception], ...] = (AgentEnvsError,)
    """What it raises for a request that it cannot answer."""

    def ask(
        self, prompts: Sequence[Sequence[int]], *, seeds: Sequence[int | None] | None = None, **params: Any
    ) -> list[Answer]:
        """Answer all prompts at once; ``params`` are vLLM's names, ``temperature`` and ``max_tokens`` among them."""
        return self.run(self.ask_all(prompts, seeds or [None] * len(prompts), params))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)

    async def ask_all(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int | None], params: Mapping[str, Any]
    ) -> list[Answer]:
        pairs = zip(prompts, seeds, strict=True)
        return list(await asyncio.gather(*(self.answer(list(prompt), seed, params) for prompt, seed in pairs)))

    async def answer(self, prompt: list[int], seed: int | None, params: Mapping[str, Any]) -> Answer:
        raise NotImplementedError

    def close(self) -> None:
        pass


class _ServerDriver(Driver):
    """A server of verl's: it takes new weights, stops what it is writing, and counts what it had computed before."""

    pause = 0.3
    """Seconds after which it surely writes what it was asked for."""

    async def answer(self, prompt: list[int], seed: int | None, params: Mapping[str, Any]) -> Answer:
        settings = {"top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, **params, "logprobs": True}
        if seed is not None:
            settings["seed"] = seed
        out = await self.call("generate", prompt_ids=prompt, sampling_params=settings, request_id=uuid.uuid4().hex)
        fields = out.extra_fields
        return Answer(
            list(out.token_ids), list(out.log_probs or []), out.stop_reason == "aborted",
            fields.get("num_cached_tokens"), fields.get("global_steps"),
        )  # fmt: skip

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the server."""
        raise NotImplementedError

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Send new weights as the trainer does."""
        raise NotImplementedError


class CPURolloutDriver(_ServerDriver):
    """This package's own server (rollout.name=agentr1_cpu), without Ray's actor around it."""

    def __init__(self, folder: Path) -> None:
        from agent_envs.adapters.verl.rollout.cpu_rollout import CPURolloutServer

        config = SimpleNamespace(
            response_length=CONTEXT, max_model_len=CONTEXT, max_num_seqs=32, seed=0, dtype="float32"
        )
        self.server = CPURolloutServer(str(folder), config, 0, False)

    async def call(self, method: str, **arguments: Any) -> Any:
        return await getattr(self.server, method)(**arguments)

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        self.run(self.server.load_weights(weights, version))

    def close(self) -> None:
        self.server.server.close()


class VerlVLLMDriver(_ServerDriver):
    """verl's vLLM server in its Ray actor, with the sender of weights that verl's trainer uses."""

    pause = 1.0

    def __init__(self, folder: Path) -> None:
        gpu = torch.cuda.is_available()
        os.environ.update(_ray_variables(gpu))
        os.environ.update(RANK="0", RAY_LOCAL_WORLD_SIZE="1")
        import ray
        from verl.utils.config import omega_conf_to_dataclass
        from verl.workers.rollout.replica import RolloutMode
        from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
        from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

        config = _config(folder, gpu=gpu).actor_rollout_ref
        self.errors = (ray.exceptions.RayError,)
        self.loop = asyncio.new_event_loop()
        try:
            ray.init(
                "local", num_cpus=4, num_gpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False
            )
            self.server = (
                ray.remote(vLLMHttpServer)
                .options(name="vllm_server_0_0", num_cpus=0, max_concurrency=1000)
                .remote(
                    config=config.rollout, model_config=config.model, rollout_mode=RolloutMode.HYBRID, workers=[],
                    replica_rank=0, node_rank=0, gpus_per_node=1, nnodes=1, cuda_visible_devices="0",
                )
            )  # fmt: skip
            ray.get(self.server.launch_server.remote(*ray.get(self.server.get_master_address.remote())))
            self.adapter = ServerAdapter(omega_conf_to_dataclass(config.rollout), config.model, None)
        except BaseException:
            self.close()  # else the next try finds a Ray that is half there
            raise

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def call(self, method: str, **arguments: Any) -> Any:
        return await getattr(self.server, method).remote(**arguments)

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        moved = ((name, tensor.to(device)) for name, tensor in weights.items())
        self.run(self.adapter.update_weights(moved, global_steps=version))

    def sleep_and_wake(self) -> None:
        """Let the server sleep, and wake it up without sending weights."""
        self.run(self.call("sleep"))
        for tag in ("weights", "kv_cache"):
            self.run(self.adapter.resume(tags=[tag]))

    def close(self) -> None:
        import ray

        ray.shutdown()
        self.loop.close()


class TransformersDriver(Driver):
    """`TransformersPolicy`: its settings are the policy's, so each of them has a policy over the same model."""

    def __init__(self, folder: Path) -> None:
        from agent_envs.policies.local.loading import load_model
        from agent_envs.policies.tokens import load_tokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model: Any = load_model(str(folder), dtype=torch.float32, device=device)
        self.tokenizer = load_tokenizer(str(folder))
        self.policies: dict[str, Any] = {}

    async def answer(self, prompt: list[int], seed: int | None, params: Mapping[str, Any]) -> Answer:
        settings = {name: params[name] for name in ("temperature", "top_p", "top_k") if name in params}
        policy = self._policy(settings, params.get("stop_token_ids", ()))
        out = await policy.sample(prompt, params["max_tokens"], seed or 0)
        return Answer(list(out.token_ids), list(out.log_probs))

    def _policy(self, settings: dict[str, Any], stops: Sequence[int]) -> Any:
        from agent_envs.policies import TransformersPolicy

        key = f"{settings} {stops}"
        if key not in self.policies:
            self.model.generation_config.eos_token_id = [self.tokenizer.eos_token_id, *stops]
            self.policies[key] = TransformersPolicy(
                self.model, tokenizer=self.tokenizer, max_tokens=CONTEXT, context_length=CONTEXT, **settings
            )
        return self.policies[key]

    def close(self) -> None:
        for policy in self.policies.values():
            policy.close()


class VLLMPolicyDriver(Driver):
    """`VLLMPolicy`: policies with other settings share its engine."""

    def __init__(self, folder: Path) -> None:
        from agent_envs.policies import VLLMPolicy

        memory = {"gpu_memory_utilization": 0.2} if torch.cuda.is_available() else {"kv_cache_memory_bytes": 1 << 26}
        self.policy = VLLMPolicy(folder, context_length=CONTEXT, max_tokens=CONTEXT, engine={**_FLOAT32, **memory})

    async def answer(self, prompt: list[int], seed: int | None, params: Mapping[str, Any]) -> Answer:
        policy = copy.copy(self.policy)
        names = ("temperature", "top_p", "top_k")
        policy._settings = {**policy._settings, **{name: params[name] for name in names if name in params}}
        policy.stop_token_ids = policy.stop_token_ids | set(params.get("stop_token_ids", ()))
        out = await policy.sample(prompt, params["max_tokens"], seed or 0)
        return Answer(list(out.token_ids), list(out.log_probs or []))

    def close(self) -> None:
        self.policy.close()


def _ray_variables(gpu: bool) -> dict[str, str]:
    from agent_envs.adapters.verl.run.process import process_environment

    return {**process_environment(cpu=not gpu), "RAY_USAGE_STATS_ENABLED": "0"}


def _config(folder: Path, *, gpu: bool) -> Any:
    """verl's configuration of a run with one server."""
    from agent_envs.adapters.verl.config.compose import compose_run

    settings = {"load_format": "auto", "max_model_len": CONTEXT, **_FLOAT32}
    settings |= {"gpu_memory_utilization": 0.2} if gpu else {"free_cache_engine": True}
    none = dict.fromkeys(("algo", "steps", "data", "env_kwargs", "out", "warm_start", "demo_noise"))
    composed = compose_run(
        **none, env="AgentR1/GSM8K-v0", preset="gpu-8" if gpu else "cpu-vllm", split="train", wrappers=[],
        model=str(folder), seed=0, val_fraction=0.1,
        overrides=[
            *(f"{_ROLLOUT}.{name}={value}" for name, value in settings.items()),
            f"data.max_prompt_length={CONTEXT // 2}", f"data.max_response_length={CONTEXT // 2}",
        ],
    )  # fmt: skip
    return composed.verl()
