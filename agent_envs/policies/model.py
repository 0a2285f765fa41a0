"""What a policy of a model is to an episode: something to ask with messages, and the actor that asks once per step."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from agent_envs.errors import PolicyError
from agent_envs.messages import Message, Observation, ToolSpec
from agent_envs.per_process import PerProcess
from agent_envs.policies.policy import Actor, Policy, PolicyLike, Response, check_policy
from agent_envs.prompts.conversation import Conversation


class EpisodeModel(Protocol):
    """A model in one episode, with the past of its calls: sampled text keeps its tokens in later prompts."""

    def fork(self, number: int) -> EpisodeModel:
        """Return the model with the same past; those with different numbers sample differently."""

    def count(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Return the number of tokens of a prompt, as far as known."""

    async def ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), *, task_id: str = "", limit: int = 0,
        ordered: bool = True,
    ) -> Response:  # fmt: skip
        """Return the model's response to a prompt.

        Args:
            messages: The whole prompt.
            tools: What the model may call.
            task_id: Seeds the episode with its first call.
            limit: Most tokens of the response, if that is fewer than the policy's; 0 for the policy's.
            ordered: Whether the episode's calls come in the same order in every run, and are seeded by their numbers;
                otherwise by their prompts.

        Raises:
            EpisodeStop: A limit of the policy, such as ``ContextLengthExceeded``.
            BackendError: The model's server or engine failed.
        """


@runtime_checkable
class ModelPolicy(Protocol):
    """A policy that asks a model, as an agent needs it: `TransformersPolicy`, `VLLMPolicy`, `OpenAIPolicy`."""

    def open(self, env: gym.Env[Any, str]) -> EpisodeModel:
        """Return the model in an episode of an environment."""


class ModelActor:
    """Plays one episode: one call of the model per step, in one conversation."""

    def __init__(self, model: Any, env: gym.Env[Any, str]) -> None:
        self.model = model
        self.conversation = Conversation(env.get_wrapper_attr("instructions"))
        self.tools = env.get_wrapper_attr("tools")

    @property
    def untimed(self) -> bool:
        """Whether time-outs leave out the model's part."""
        return bool(self.model.policy.untimed)

    async def act(self, observation: Observation, info: dict[str, Any]) -> Response:
        self.conversation.observe(observation, info)
        response = await self.model.ask(self.conversation.messages, self.tools, task_id=str(info.get("task_id", "")))
        self.conversation.respond(response.text)
        return response


_made: PerProcess[PolicyLike | Sequence[PolicyLike]] = PerProcess()


class MadePolicy:
    """Stands for a policy that is made in the process where it first plays, and is then kept there.

    It pickles as the function that makes it. So a model or a server's client is not sent to the workers of a cluster:
    `run_episodes(env, MadePolicy(lambda: TransformersPolicy("Qwen/Qwen3-0.6B")), 100, engine="ray")`.

    Args:
        make: Returns a policy (or a function that is one), or a list of policies that share what they need.
        number: Which of a list.
    """

    def __init__(self, make: Callable[[], PolicyLike | Sequence[PolicyLike]], number: int | None = None) -> None:
        self._make, self._number = make, number
        self._key = uuid.uuid4().hex

    def with_number(self, number: int) -> MadePolicy:
        """Return another one of the list, which is made once for all of them."""
        other = MadePolicy(self._make, number)
        other._key = self._key
        return other

    def start(self, env: gym.Env[str, str]) -> Actor:
        return self._policy().start(env)

    def open(self, env: gym.Env[str, str]) -> EpisodeModel:
        """Return its model in an episode; a PolicyError if it has none."""
        policy = self._policy()
        if not isinstance(policy, ModelPolicy):
            raise PolicyError(f"an agent needs a model to ask; {type(policy).__name__} is none")
        return policy.open(env)

    def _policy(self) -> Policy:
        made = _made.get(self._key, self._make)
        return check_policy(made if self._number is None else made[self._number])  # type: ignore[index]
