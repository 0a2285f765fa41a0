"""Episodes as chat, played by an environment's own expert or recorded, for warm starts and `agentr1 demos`.

The conversation is the one that a policy sees in the rollout: instructions, first observation, the demonstrator's text,
the environment's answer, and so on. A prompt that is rebuilt starts another conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from agent_envs.episodes.record import Episode
from agent_envs.messages import Message, Observation, ToolSpec
from agent_envs.policies.policy import Policy
from agent_envs.prompts.conversation import Conversation


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
    env_id: str = ""
    """The environment, where there may be several."""

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
    """Play the task of an index with the environment's expert.

    Args:
        policy: The expert, sometimes mistaken or not, whose actors act at once.
        mark_mistakes: Whether to ask before each action what the expert would do.

    Returns:
        One demonstration of the whole episode, or several in order if the prompt was rebuilt.

    Raises:
        PolicyError: The environment has no expert for this task.
    """
    observation, info = env.reset(options={"index": index})
    tools = tuple(env.get_wrapper_attr("tools"))
    words = env.get_wrapper_attr("tool_instructions") if tools else ""
    parts = _Parts(env.get_wrapper_attr("instructions"), tools, words, dict(info))
    actor: Any = policy.start(env)
    total, over = 0.0, False
    while not over:
        right = env.get_wrapper_attr("expert_action")() if mark_mistakes else None
        action = actor.act(observation, info)
        parts.add(observation, info, action, (action != right,) if mark_mistakes else ())
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return parts.all(bool(info["success"]), total)


def demonstrated(episode: Episode, tool_instructions: str = "", env_id: str = "") -> Sequence[Demonstration]:
    """Return a recorded episode as `demonstrate` returns one; replies that were not for training are left out."""
    parts, info = _Parts(episode.instructions, episode.tools, tool_instructions, episode.reset_info), episode.reset_info
    for step in episode.steps:
        if step.trained:
            parts.add(step.observation, info, step.action)
        info = step.info
    return [replace(part, env_id=env_id) for part in parts.all(episode.success, episode.reward)]


class _Parts:
    """The demonstrations of an episode, as it goes on."""

    def __init__(self, instructions: str, tools: Sequence[ToolSpec], words: str, info: dict[str, Any]) -> None:
        self._conversation = Conversation(instructions)
        self._begun = Demonstration(tuple(tools), (), (), (), success=False, info=info, tool_instructions=words)
        self._parts: list[Demonstration] = []

    def add(
        self, observation: Observation, info: Mapping[str, Any], action: str, mistaken: tuple[bool, ...] = ()
    ) -> None:
        new, fresh = self._conversation.observe(observation, info)
        if fresh:
            self._parts.append(replace(self._begun, opening=tuple(new), actions=(action,), mistaken=mistaken))
        else:
            part = self._parts[-1]
            self._parts[-1] = replace(
                part, answers=(*part.answers, tuple(new)), actions=(*part.actions, action),
                mistaken=(*part.mistaken, *mistaken),
            )  # fmt: skip
        self._conversation.respond(action)

    def all(self, success: bool, reward: float) -> list[Demonstration]:
        return [replace(part, success=success, reward=reward) for part in self._parts]


def without_nulls(value: Any) -> Any:
    """Return `value` without the None entries that a parquet column adds for keys that only other rows have.

    >>> without_nulls([{"role": "user", "name": None}])
    [{'role': 'user'}]
    """
    if isinstance(value, dict):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    return [without_nulls(entry) for entry in value] if isinstance(value, list) else value
