"""The policy of an episode inside verl: asks a generation server for every response, and notes how it answered.

What is asked of every server, and what verl's own loops leave out:

- the tokens that end a turn go along: a base model's end of text is not its template's end of turn
- a seed for each episode and step, where the server takes one
- an answer that was cut off by an abort, or without the log-probabilities asked for, breaks the episode
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import gymnasium as gym

from agent_envs.adapters.verl.rollout.pictures import MISSING, server_pictures
from agent_envs.adapters.verl.rollout.resuming import token_versions
from agent_envs.errors import BackendAbortedError, BackendReplyError, ContextLengthExceeded, EmptyGeneration
from agent_envs.messages import Observation
from agent_envs.pictures.picture import Picture
from agent_envs.policies.policy import Response
from agent_envs.policies.tokens import response_text
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import TokenConversation
from agent_envs.prompts.pictures import PictureTokens
from agent_envs.spaces import refuse_pictures

__all__ = ["ServerActor", "ServerPolicy"]

_ABORTED = ("abort", "aborted")  # SGLang's word, and that of the others


class ServerActor:
    """Plays one episode with verl's generation server."""

    def __init__(self, policy: ServerPolicy, builder: PromptBuilder, instructions: str) -> None:
        self.policy = policy
        self.conversation = TokenConversation(builder, instructions)
        self.prompts = 0
        self.versions: list[list[int]] = []  # per step, version of the weights that sampled each token
        self.cached_tokens = 0  # of all prompts, those that the server had computed before
        self.generate_seconds: list[float] = []  # per step, waiting for the server
        self.env_seconds: list[float] = []  # per step, in the environment
        self.returned_at = 0.0
        self.sent: set[str] = set()  # digests of the pictures that the server has got
        self.untimed = policy.untimed

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        """Sample one response.

        Raises:
            ContextLengthExceeded: The prompt is too long, or leaves no room for a response.
            EmptyGeneration: The server returned no token.
            BackendAbortedError: The server was told to stop before the response had ended.
            BackendReplyError: Log-probabilities are missing.
        """
        self.note_env_time()
        prompt_ids = self.conversation.observe(observation, info)
        step, self.prompts = self.prompts, self.prompts + 1
        policy = self.policy
        room = policy.max_model_len - len(prompt_ids)
        if len(prompt_ids) > policy.prompt_length or room < 1:
            raise ContextLengthExceeded(
                f"the prompt of step {step} has {len(prompt_ids)} tokens; data.max_prompt_length is "
                f"{policy.prompt_length} and the context {policy.max_model_len}"
            )
        params = {**policy.sampling_params, "max_tokens": min(policy.response_length, room)}
        params["stop_token_ids"] = sorted(self.conversation.builder.ends)
        if policy.seed is not None:
            params["seed"] = zlib.crc32(f"{policy.seed}/{step}".encode())
        start = time.monotonic()
        pictures = self.conversation.pictures
        out = await self._generate(prompt_ids, params, pictures)
        if out.stop_reason == MISSING:
            self.sent.clear()
            out = await self._generate(prompt_ids, params, pictures)
        self.returned_at = time.monotonic()
        self.generate_seconds.append(self.returned_at - start)
        self.versions.append(token_versions(out))
        self.cached_tokens += out.extra_fields.get("num_cached_tokens") or 0
        response_ids = [int(token) for token in out.token_ids]
        if out.stop_reason in _ABORTED:
            raise BackendAbortedError(f"the response of step {step} was cut off after {len(response_ids)} tokens")
        if not response_ids:
            raise EmptyGeneration(f"the server returned no token at step {step}")
        log_probs = _log_probs(out.log_probs, len(response_ids), step) if params.get("logprobs") else None
        text = response_text(policy.tokenizer, response_ids, self.conversation.builder.ends)
        self.conversation.respond(text, response_ids)
        return Response(text, tuple(prompt_ids), tuple(response_ids), log_probs, pictures=pictures)

    async def _generate(self, prompt_ids: list[int], params: Mapping[str, Any], pictures: Sequence[Picture]) -> Any:
        policy, request, params = self.policy, {"prompt_ids": prompt_ids}, dict(params)
        if policy.pictures is not None:
            request = server_pictures(policy.engine, policy.pictures, prompt_ids, pictures, self.sent)
            if policy.engine != "agentr1_cpu":  # which leaves them out itself
                params["logit_bias"] = dict.fromkeys(policy.pictures.reserved, -100.0)
        # one id per episode: verl routes it to the server that has its prefix cached
        return await policy.server.generate(policy.request_id, sampling_params=params, **request)

    def note_env_time(self) -> None:
        """Record an environment step: the time from a response to the next request or to the episode's end."""
        if len(self.env_seconds) < len(self.generate_seconds):
            self.env_seconds.append(time.monotonic() - self.returned_at)


@dataclass(eq=False)
class ServerPolicy:
    """The policy of one episode.

    Args:
        server: verl's ``LLMServerClient``, or anything with its ``generate``.
        tokenizer: The model's tokenizer.
        sampling_params: As verl passes them.
        prompt_length: Maximum tokens of a prompt.
        response_length: Maximum tokens of a response.
        max_model_len: Maximum tokens of both together.
        seed: Makes the episode's samples reproducible; None leaves seeding to the server.
        template_kwargs: Further arguments of the chat template.
        untimed: Whether time-outs leave out the generation, which waits for new weights now and then.
        pictures: The image tokens of a vision-language model; None for a model of text.
        engine: Name of the server's engine, in ``actor_rollout_ref.rollout.name``.
    """

    server: Any
    tokenizer: Any
    sampling_params: Mapping[str, Any]
    prompt_length: int
    response_length: int
    max_model_len: int
    seed: str | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    untimed: bool = False
    pictures: PictureTokens | None = None
    engine: str = "agentr1_cpu"
    request_id: str = field(init=False, default_factory=lambda: uuid4().hex)
    actor: ServerActor | None = field(init=False, default=None)

    def start(self, env: gym.Env[Any, str]) -> ServerActor:
        """Return the actor of this episode.

        Raises:
            ConfigError: The environment shows pictures, and the model takes text alone.
        """
        if self.pictures is None:
            refuse_pictures(env.observation_space, "training with verl with a model of text")
        builder = PromptBuilder.of_env(
            env,
            self.tokenizer,
            template_kwargs=self.template_kwargs,
            pictures=self.pictures,
            stop_token_ids=[self.tokenizer.pad_token_id],
        )
        self.actor = ServerActor(self, builder, env.get_wrapper_attr("instructions"))
        return self.actor


def _log_probs(given: Any, tokens: int, step: int) -> tuple[float, ...]:
    """Return the log-probabilities of a response; one that is missing must not be trained on as a 0."""
    out = tuple(float(x) for x in given or ())
    if len(out) != tokens or not all(math.isfinite(x) for x in out):
        known = sum(math.isfinite(x) for x in out)
        raise BackendReplyError(
            f"the server returned {tokens} tokens at step {step}, but the log-probabilities of {known}; it was asked "
            "for all of them (actor_rollout_ref.rollout.calculate_log_probs)"
        )
    return out
