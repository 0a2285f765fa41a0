"""Plays an environment's own expert and returns its episodes as chat, for warm starts and `agentr1 demos`.

The conversation is the one that a policy sees in the rollout: instructions, first observation, the demonstrator's text,
the environment's answer, and so on. A prompt that is rebuilt starts another conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from agent_envs.messages import Message, ToolSpec
from agent_envs.policies.policy import Policy
from agent_envs.prompts.conversation import Conversation

__all__ = ["Demonstration", "demonstrate", "without_nulls"]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A demonstrated episode as chat, or a part of it with its own prompt."""

    tools: tuple[ToolSpec, ...]
    opening: tuple[Message, ...]
    """The messages before the first action: instructions and first observation."""
    actions: tuple[str, ...]
    """The demonstrator's texts, one or more."""
    answers: tuple[tuple[Message, ...], ...]
    """The environment's messages after each action but the last."""
    success: bool
    mistaken: tuple[bool, ...] = ()
    """Whether each action is another than the expert's; empty where nobody asked."""
    reward: float = 0.0
    """The return of the episode."""
    info: dict[str, Any] = field(default_factory=dict)
    """The info of `reset`."""
    tool_instructions: str = ""
    """The tools in words."""

    @property
    def messages(self) -> list[Message]:
        """The whole conversation, which ends with the last action."""
        messages = list(self.opening)
        for action, answer in zip(self.actions, (*self.answers, ()), strict=True):
            messages += [{"role": "assistant", "content": action}, *answer]
        return messages


def demonstrate(
    env: gym.Env[Any, str], policy: Policy, index: int, *, mark_mistakes: bool = False
) -> Sequence[Demonstration]:
    """Play one task with the environment's expert.

    Args:
        env: The environment.
        policy: Its expert, sometimes mistaken or not, whose actors act at once.
        index: Index of the task.
        mark_mistakes: Whether to ask before each action what the expert would do.

    Returns:
        One demonstration of the whole episode, or several in order if the prompt was rebuilt.

    Raises:
        PolicyError: The environment has no expert for this task.
    """
    observation, info = env.reset(options={"index": index})
    reset_info = dict(info)
    conversation = Conversation(env.get_wrapper_attr("instructions"))
    tools = tuple(env.get_wrapper_attr("tools"))
    words = env.get_wrapper_attr("tool_instructions") if tools else ""
    actor: Any = policy.start(env)
    parts: list[Demonstration] = []
    total, over = 0.0, False
    while not over:
        new, fresh = conversation.observe(observation, info)
        if fresh:
            part = Demonstration(tools, tuple(new), (), (), success=False, info=reset_info, tool_instructions=words)
            parts.append(part)
        else:
            parts[-1] = replace(parts[-1], answers=(*parts[-1].answers, tuple(new)))
        right = env.get_wrapper_attr("expert_action")() if mark_mistakes else None
        action = actor.act(observation, info)
        mistaken = (*parts[-1].mistaken, action != right) if mark_mistakes else ()
        parts[-1] = replace(parts[-1], actions=(*parts[-1].actions, action), mistaken=mistaken)
        conversation.respond(action)
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return [replace(part, success=bool(info["success"]), reward=total) for part in parts]


def without_nulls(value: Any) -> Any:
    """Return `value` without the None entries that a parquet column adds for keys that only other rows have.

    >>> without_nulls([{"role": "user", "name": None}])
    [{'role': 'user'}]
    """
    if isinstance(value, dict):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [without_nulls(entry) for entry in value] if isinstance(value, list) else value
