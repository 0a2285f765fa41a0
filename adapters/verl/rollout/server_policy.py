"""The policy of an episode inside verl: asks a generation server for every response, and notes how it answered.

What is asked of every server, and what verl's own loops leave out:

- the tokens that end a turn go along: a base model's end of text is not its template's end of turn
- a seed for each episode and step, where the server takes one
- an answer that was cut off by an abort, or without the log-probabilities asked for, breaks the episode
- a row's pictures are those of the prompts it was sampled from, where verl gives them to a processor with the decoded
  text (experimental/agent_loop/agent_loop.py:868); one whose image tokens are not their features is refused
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import uuid4

import gymnasium as gym
import numpy as np
import torch

from agent_envs.adapters.verl.rollout.resuming import token_versions
from agent_envs.errors import BackendAbortedError, BackendReplyError, ContextLengthExceeded
from agent_envs.pictures.folder import PictureFolder
from agent_envs.pictures.picture import Picture
from agent_envs.pictures.png import needs_pillow
from agent_envs.policies.tokens import Sampled, TokenModel, TokenPolicy
from agent_envs.prompts.pictures import PictureTokens, fitted, load_picture_tokens

POSITIONS = "position_ids"
"""The key of a row's positions among its inputs, until they are a column of their own."""


def row_inputs(tokens: PictureTokens, ids: Sequence[int], pictures: Sequence[Picture]) -> dict[str, torch.Tensor]:
    """Return verl's inputs of a row of a vision-language model beside its tokens (``multi_modal_inputs``).

    `POSITIONS` has the place of each token within the row and then along time, height and width, int64, shape
    [4, tokens]. A row without pictures has nothing else.
    """
    places = np.concatenate([np.arange(len(ids))[None], tokens.positions(ids, pictures)])
    row = {POSITIONS: torch.from_numpy(places)}
    if pictures:
        row |= {name: torch.from_numpy(values) for name, values in tokens.inputs(pictures)._asdict().items()}
        grid = row["image_grid_thw"]
        row["images_seqlens"] = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])  # verl counts work by it
    return row


image_tokens = lru_cache(maxsize=8)(load_picture_tokens)  # verl makes one agent loop per episode
"""The image tokens of a model, read once; None if it takes text alone."""
picture_folder = lru_cache(maxsize=8)(PictureFolder)
"""The pictures of episodes beside a file, which are written before the line that names them."""


_ABORTED = ("abort", "aborted")  # SGLang's word, and that of the others


class ServerPolicy(TokenPolicy):
    """The policy of one episode, which asks verl's ``LLMServerClient`` or anything with its ``generate``.

    ``seed`` makes the episode's samples reproducible, None leaves seeding to the server. With ``untimed`` time-outs
    leave out the generation, which waits for new weights now and then. ``engine`` is the server's name in
    ``actor_rollout_ref.rollout.name``; ``pictures`` are the image tokens of a vision-language model.
    """

    def __init__(
        self, server: Any, tokenizer: Any, sampling_params: Mapping[str, Any], prompt_length: int, response_length: int,
        max_model_len: int, seed: str | None = None, template_kwargs: Mapping[str, Any] | None = None,
        untimed: bool = False, pictures: PictureTokens | None = None, engine: str = "agentr1_cpu",
    ) -> None:  # fmt: skip
        super().__init__(
            tokenizer,
            max_tokens=response_length,
            context_length=max_model_len,
            stop_token_ids=[] if tokenizer.pad_token_id is None else [tokenizer.pad_token_id],
            template_kwargs=template_kwargs,
            pictures=pictures,
        )
        self.server, self.sampling_params, self.prompt_length = server, sampling_params, prompt_length
        self.name, self.untimed, self.engine = seed, untimed, engine
        self.request_id = uuid4().hex
        self.model: TokenModel | None = None  # of the last episode that began
        self.versions: list[list[int]] = []  # per step, version of the weights that sampled each token
        self.cached_tokens = 0  # of all prompts, those that the server had computed before
        self.generate_seconds: list[float] = []  # per step, waiting for the server
        self.env_seconds: list[float] = []  # per step, in the environment
        self._returned_at = 0.0

    def open(self, env: gym.Env[Any, str]) -> TokenModel:
        self.model = super().open(env)
        self.stop_token_ids |= self.model.builder.ends
        return self.model

    def episode_seed(self, task_id: str) -> str:
        return str(self.name)

    async def sample(
        self, prompt_ids: list[int], max_tokens: int, seed: int, pictures: Sequence[Picture] = ()
    ) -> Sampled:
        """Sample one response."""
        self.note_env_time()
        step = len(self.generate_seconds)
        if len(prompt_ids) > self.prompt_length:
            raise ContextLengthExceeded(
                f"the prompt of step {step} has {len(prompt_ids)} tokens; data.max_prompt_length is "
                f"{self.prompt_length} and the context {self.context_length}"
            )
        params = {**self.sampling_params, "max_tokens": max_tokens, "stop_token_ids": sorted(self.stop_token_ids)}
        if self.name is not None:
            params["seed"] = seed
        start = time.monotonic()
        request: dict[str, Any] = {"prompt_ids": prompt_ids}
        if self.pictures is not None:
            images: list[Any] = list(pictures)
            if self.engine != "agentr1_cpu":  # vLLM itself makes one image token as many as a picture takes
                request["prompt_ids"] = self.pictures.collapsed(prompt_ids, pictures)
                params["logit_bias"] = dict.fromkeys(self.pictures.reserved, -100.0)  # or it would sample them
                images = [needs_pillow().fromarray(fitted(picture)) for picture in pictures]
            if images:
                request["image_data"] = images
        # one id per episode: verl routes it to the server that has its prefix cached
        out = await self.server.generate(self.request_id, sampling_params=params, **request)
        self._returned_at = time.monotonic()
        self.generate_seconds.append(self._returned_at - start)
        self.versions.append(token_versions(out))
        self.cached_tokens += out.extra_fields.get("num_cached_tokens") or 0
        response_ids = [int(token) for token in out.token_ids]
        if out.stop_reason in _ABORTED:
            raise BackendAbortedError(f"the response of step {step} was cut off after {len(response_ids)} tokens")
        if not response_ids or not params.get("logprobs"):
            return Sampled(response_ids, None)
        log_probs = tuple(float(x) for x in out.log_probs or ())
        known = sum(map(math.isfinite, log_probs))
        if not len(log_probs) == known == len(response_ids):  # one that is missing must not be trained on as a 0
            raise BackendReplyError(
                f"the server returned {len(response_ids)} tokens at step {step}, but the log-probabilities of {known}; "
                "it was asked for all of them (actor_rollout_ref.rollout.calculate_log_probs)"
            )
        return Sampled(response_ids, log_probs)

    def note_env_time(self) -> None:
        """Record an environment step: the time from a response to the next request or to the episode's end."""
        if len(self.env_seconds) < len(self.generate_seconds):
            self.env_seconds.append(time.monotonic() - self._returned_at)
