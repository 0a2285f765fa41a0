"""Episodes of an environment's own expert as chat: what a warm start and `agentr1 demos` learn from and write.

The conversation is the one a policy sees in the rollout: instructions and first observation, the demonstrator's text,
what the environment said, and so on. Where a prompt is built anew, another conversation begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agent_envs.messages import Message, ToolSpec
from agent_envs.policies import ExpertPolicy
from agent_envs.prompts.builder import PromptBuilder
from agent_envs.prompts.conversation import Conversation

__all__ = ["Demonstration", "demonstrate", "encode_conversation", "without_nulls"]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One demonstrated episode as chat, or one step of it where prompts are rebuilt."""

    tools: tuple[ToolSpec, ...]
    """The tools on offer."""
    opening: tuple[Message, ...]
    """What comes before the first action: instructions and first observation."""
    actions: tuple[str, ...]
    """The demonstrator's texts."""
    answers: tuple[tuple[Message, ...], ...]
    """What the environment said after each action but the last."""
    success: bool
    """Whether the episode solved its task."""
    reward: float = 0.0
    """The return of the episode."""
    info: dict[str, Any] = field(default_factory=dict)
    """What `reset` told about the task."""

    @property
    def messages(self) -> list[Message]:
        """The whole conversation, which ends with the last action.

        >>> opening = ({"role": "user", "content": "2 + 2?"},)
        >>> [message["role"] for message in Demonstration((), opening, ("4",), (), True).messages]
        ['user', 'assistant']
        """
        messages = list(self.opening)
        for position, action in enumerate(self.actions):
            messages.append({"role": "assistant", "content": action})
            if position < len(self.answers):
                messages += self.answers[position]
        return messages


def demonstrate(env: gym.Env[Any, str], policy: ExpertPolicy, index: int) -> Sequence[Demonstration]:
    """Play one task with the environment's expert.

    Args:
        env: The environment in its wrappers.
        policy: The expert, with its noise.
        index: The task's row in the split.

    Returns:
        One demonstration of the whole episode; several, one after another, where the prompt was built anew.

    Raises:
        PolicyError: The environment has no expert for this task.
    """
    observation, info = env.reset(options={"index": index})
    told = dict(info)
    conversation = Conversation(env.get_wrapper_attr("instructions"))
    tools = tuple(env.get_wrapper_attr("tools"))
    actor = policy.start(env)
    openings: list[tuple[Message, ...]] = []
    actions: list[list[str]] = []
    answers: list[list[tuple[Message, ...]]] = []
    total, terminated, truncated = 0.0, False, False
    while not (terminated or truncated):
        new, fresh = conversation.observe(observation, info)
        if fresh:
            openings.append(tuple(new))
            actions.append([])
            answers.append([])
        else:
            answers[-1].append(tuple(new))
        action = actor.act(observation, info)
        conversation.respond(action)
        actions[-1].append(action)
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
    success = bool(info["success"])
    return [
        Demonstration(tools, opening, tuple(acted), tuple(answered), success, total, told)
        for opening, acted, answered in zip(openings, actions, answers, strict=True)
    ]


def encode_conversation(
    messages: Sequence[Message], builder: PromptBuilder, opening: int | None = None
) -> tuple[list[int], list[tuple[int, int]]]:
    """The tokens of a conversation as the rollout would make them, and where its responses are.

    A response is the assistant's text and the tokenizer's end token, as a sampled one is.

    Args:
        messages: The conversation, which ends with the assistant.
        builder: Renders messages with the model's chat template.
        opening: How many messages come before the first response; None for all before the first of the assistant.

    Returns:
        Token ids, shape [tokens], and first token and end of every response within them.

    Raises:
        PromptError: The chat template refuses the messages.
    """
    tokenizer = builder.tokenizer
    if opening is None:
        opening = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    ids, spans = builder.start(messages[:opening]), []
    response: list[int] = []
    new: list[Message] = []
    for message in messages[opening:]:
        if message["role"] != "assistant":
            new.append(message)
            continue
        if new:
            ids, new = builder.extend(ids[: len(ids) - len(response)], response, new), []
        response = [*tokenizer.encode(message["content"], add_special_tokens=False), tokenizer.eos_token_id]
        spans.append((len(ids), len(ids) + len(response)))
        ids = [*ids, *response]
    return ids, spans


def without_nulls(value: Any) -> Any:
    """`value` without the entries that a parquet column fills in where a dictionary lacks a key of another.

    >>> without_nulls([{"role": "user", "name": None}])
    [{'role': 'user'}]
    """
    if isinstance(value, dict):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [without_nulls(entry) for entry in value] if isinstance(value, list) else value
