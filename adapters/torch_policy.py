"""A policy that samples from a model in this process, many episodes at once."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from agent_envs.conversation import TokenConversation
from agent_envs.errors import ContextLengthExceeded
from agent_envs.generation import loading
from agent_envs.generation.sampling import SamplingParams
from agent_envs.generation.server import GenerateServer
from agent_envs.policies.base import Response
from agent_envs.prompt import PromptBuilder

__all__ = ["LocalActor", "LocalPolicy"]


class LocalPolicy:
    """Samples from a loaded model, whose weights stay as they are meanwhile."""

    def __init__(self, model: Any, *, tokenizer: Any, temperature: float, max_tokens: int, context_length: int,
                 concurrency: int, seed: int) -> None:  # fmt: skip
        self.tokenizer, self.context_length = tokenizer, context_length
        self.params = SamplingParams(max_tokens=max_tokens, temperature=temperature)
        self.stops = loading.stop_token_ids(model, lambda: tokenizer)
        engine = loading.make_engine(
            model, max_length=context_length, max_rows=concurrency, stop_token_ids=self.stops, seed=seed
        )
        self.server = GenerateServer(engine)

    def start(self, env: gym.Env[Any, str]) -> LocalActor:
        """The actor of an episode."""
        builder = PromptBuilder(self.tokenizer, env.get_wrapper_attr("tools"))
        return LocalActor(self, TokenConversation(builder, env.get_wrapper_attr("instructions")))

    def close(self) -> None:
        """Stop the thread that generates."""
        self.server.close()


class LocalActor:
    """Plays one episode."""

    def __init__(self, policy: LocalPolicy, conversation: TokenConversation) -> None:
        self.policy, self.conversation = policy, conversation

    async def act(self, observation: Any, info: dict[str, Any]) -> Response:
        """Sample one response."""
        prompt_ids = self.conversation.observe(observation, info)
        if len(prompt_ids) >= self.policy.context_length:
            raise ContextLengthExceeded(
                f"a prompt of {len(prompt_ids)} tokens; the context has {self.policy.context_length}"
            )
        done = await self.policy.server.generate(list(prompt_ids), self.policy.params)
        text = self.policy.tokenizer.decode(
            done.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        self.conversation.respond(text, done.token_ids)
        return Response(text, tuple(prompt_ids), tuple(done.token_ids), tuple(done.log_probs))
