"""A policy that runs a Hugging Face model in this process, on a CPU or a GPU."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from agent_envs.checks import integer
from agent_envs.errors import ConfigError, needs_extra
from agent_envs.pictures.picture import Picture
from agent_envs.policies.named import model_path
from agent_envs.policies.tokens import Sampled, TokenPolicy, load_tokenizer
from agent_envs.prompts.pictures import PictureTokens, load_picture_tokens

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_LONGEST_CONTEXT = 16_384


class TransformersPolicy(TokenPolicy):
    """Samples every action from a causal language model with ``transformers``; one of Qwen's that sees, with pictures.

    One thread generates for all episodes, in batches. For models with plain full attention (Qwen, Llama and most
    others), requests join and leave at any token, and only the new part of a growing prompt is computed; other models
    run one padded batch after the other. Log-probabilities are those of the distribution that was sampled from: after
    the temperature, ``top_k`` and ``top_p``, as in `VLLMPolicy` (at temperature 0: of the logits themselves).

    The n-th episode of a task draws the same random numbers in every run with the same ``seed``, whatever runs beside
    it. The size of a batch can change the last bits of the logits: in float32 that changes a token only if two are
    equally likely, in bfloat16 now and then.

    Args:
        model: A folder, a name on the Hugging Face hub, or a loaded model; a loaded one needs its ``tokenizer`` and is
            put into evaluation mode.
        tokenizer: The tokenizer; by default the one beside the model.
        pictures: The image tokens of a loaded vision-language model; by default those of the folder.
        device: Such as ``"cpu"`` or ``"cuda:1"``; by default a GPU if there is one. A loaded model stays on its
            device.
        dtype: Type of the weights, such as ``"bfloat16"``; by default float32 on a CPU, else as stored.
        temperature: Logits are divided by it; 0 takes the most likely token.
        top_p: Sample from the fewest tokens whose total probability reaches it.
        top_k: Sample from this many of the most likely tokens; -1 for all.
        max_tokens: Most tokens of one response.
        context_length: Most tokens of prompt and response; by default what the model was made for, but no more than
            16,384, because every running episode needs memory for that many.
        concurrency: Most episodes that generate at once; fewer if their memory would not fit.
        seed: Makes the responses reproducible.
        tool_mode: ``"native"``: the chat template shows the tools. ``"text"``: the system message describes
            them and how to call them. None: native if the template shows tools at all.
        template_kwargs: More arguments for the chat template, such as ``{"enable_thinking": False}``.
        trust_remote_code: Whether code that comes with the model may run.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ConfigError: There is no such model or tokenizer, or a setting is out of range.
        PromptError: The tokenizer has no chat template.

    A response ends with the model's end tokens or the chat template's end of a turn. A prompt without room for a
    response ends the episode with ``StopReason.CONTEXT_LENGTH``; a response cut off by a limit is played as sampled.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | PreTrainedModel,
        *,
        tokenizer: PreTrainedTokenizerBase | None = None,
        pictures: PictureTokens | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        max_tokens: int = 1024,
        context_length: int | None = None,
        concurrency: int = 64,
        seed: int = 0,
        tool_mode: Literal["native", "text"] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        with needs_extra("hf"):
            import torch
            import transformers  # noqa: F401
        from agent_envs.policies.local import loading
        from agent_envs.policies.local.requests import SamplingParams
        from agent_envs.policies.local.server import GenerateServer

        integer("concurrency", concurrency, minimum=1)
        settings = {"temperature": temperature, "top_p": top_p, "top_k": top_k}
        self._params = SamplingParams.from_dict(settings, max_tokens)  # checks the ranges before anything is loaded
        loaded: Any = model
        if isinstance(model, (str, os.PathLike)):
            name = model_path(os.fspath(model))
            if tokenizer is None:
                tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
            device = device or ("cuda" if torch.cuda.is_available() else "cpu")
            dtype = dtype or ("float32" if torch.device(device).type == "cpu" else "auto")
            pictures = pictures or load_picture_tokens(name, tokenizer)
            loaded = loading.load_model(name, dtype=dtype, device=device, trust_remote_code=trust_remote_code)
        elif tokenizer is None:
            raise ConfigError("a loaded model needs its tokenizer: pass tokenizer=")
        loading.check_pictures(loaded, pictures)
        if context_length is None:
            context_length = min(loading.context_length(loaded) or _LONGEST_CONTEXT, _LONGEST_CONTEXT)
        super().__init__(
            tokenizer,
            max_tokens=max_tokens,
            context_length=context_length,
            seed=seed,
            stop_token_ids=loading.stop_token_ids(loaded, tokenizer),
            tool_mode=tool_mode,
            template_kwargs=template_kwargs,
            pictures=pictures,
        )
        self.model = loaded
        self._engine = loading.make_engine(
            loaded,
            max_length=context_length,
            max_rows=concurrency,
            stop_token_ids=self.stop_token_ids,
            pad_token_id=0 if tokenizer.pad_token_id is None else tokenizer.pad_token_id,
            pictures=pictures,
        )
        self._server = GenerateServer(self._engine)
        self._finalizer = weakref.finalize(self, self._server.close, wait=False)

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        params = replace(self._params, seed=seed, max_tokens=max_tokens)
        done = await self._server.generate(prompt_ids, params, pictures)
        return Sampled(done.token_ids, done.log_probs)

    def close(self) -> None:
        """Stop generating; also done when the policy is garbage-collected, and at exit."""
        self._finalizer.detach()
        self._server.close()
