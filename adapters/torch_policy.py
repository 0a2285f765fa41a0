"""A policy that samples from a model in this process, many episodes at once."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym

from agent_envs.adapters.torch_settings import LoopConfig
from agent_envs.adapters.verl.cpu_engine import BatchEngine
from agent_envs.adapters.verl.cpu_server import GenerateServer
from agent_envs.adapters.verl.sampling import SamplingParams
from agent_envs.conversation import TokenConversation
from agent_envs.errors import ContextLengthExceeded
from agent_envs.policies.base import Response
from agent_envs.prompt import PromptBuilder

__all__ = ["LocalActor", "LocalPolicy"]


class LocalPolicy:
    """Samples from a copy of a model."""

    def __init__(
        self, model: Any, tokenizer: Any, config: LoopConfig, *, seed: int, temperature: float | None = None
    ) -> None:
        stop = model.generation_config.eos_token_id or tokenizer.eos_token_id
        self.model, self.tokenizer, self.max_tokens = model, tokenizer, config.max_tokens
        temperature = config.temperature if temperature is None else temperature
        self.params = SamplingParams(max_tokens=config.max_response_tokens, temperature=temperature)
        stops = [stop] if isinstance(stop, int) else stop
        engine = BatchEngine(
            copy.deepcopy(model),
            max_length=config.max_tokens,
            max_rows=config.concurrency,
            stop_token_ids=stops,
            seed=seed,
        )
        self.server = GenerateServer(engine)

    def start(self, env: gym.Env[Any, str]) -> LocalActor:
        """The actor of an episode."""
        builder = PromptBuilder(self.tokenizer, env.get_wrapper_attr("tools"))
        return LocalActor(self, TokenConversation(builder, env.get_wrapper_attr("instructions")))


class LocalActor:
    """Plays one episode."""

    def __init__(self, policy: LocalPolicy, conversation: TokenConversation) -> None:
        self.policy, self.conversation = policy, conversation

    async def act(self, observation: Any, info: dict[str, Any]) -> Response:
        """Sample one response."""
        prompt_ids = self.conversation.observe(observation, info)
        if len(prompt_ids) >= self.policy.max_tokens:
            raise ContextLengthExceeded(
                f"a prompt of {len(prompt_ids)} tokens; the context has {self.policy.max_tokens}"
            )
        done = await self.policy.server.generate(list(prompt_ids), self.policy.params)
        text = self.policy.tokenizer.decode(
            done.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        self.conversation.respond(text, done.token_ids)
        return Response(text, tuple(prompt_ids), tuple(done.token_ids), tuple(done.log_probs))
