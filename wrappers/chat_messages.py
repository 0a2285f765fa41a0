"""The whole next prompt as a list of chat messages, for models behind a chat template and for wrappers that choose."""

from __future__ import annotations

import json
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError
from agent_envs.messages import Message, ToolSpec, observation_messages
from agent_envs.parsers import get_parser
from agent_envs.parsers.base import Parser
from agent_envs.parsers.reasoning import strip_reasoning
from agent_envs.spaces import MessagesSpace
from agent_envs.text import clean_text
from agent_envs.wrapping.order import check_order

__all__ = ["ChatMessages", "action_parser"]

_LEAST_ROOM = 400  # characters of JSON; less than this and the prompt is full


class ChatMessages(gym.Wrapper[Any, str, Any, str], RecordConstructorArgs):
    """Observations are the full next prompt: a list of messages, to which every step adds two or more.

    The instructions are the system message, and ``instructions`` is empty, so that nothing is said twice. The first
    observation is the user's; the policy's texts are the assistant's, as given; tool results have the role ``tool``,
    other observations the role ``user``. Where the environment says that an observation is all there is to know
    (``info["rebuilt"]``), the prompt begins anew with it. Every observation is a copy of its own.

    Args:
        env: An environment over text.
        reasoning: ``"keep"`` shows the policy's texts whole, so that prompts grow and sampled tokens stay; ``"strip"``
            shows them without their reasoning (`agent_envs.parsers.reasoning`), so that each prompt is rendered anew.
        tools: ``"template"`` leaves the tools to the chat template (``env.tools``), ``"text"`` tells them in the system
            message and shows results as the user's words, for models whose template knows no tools.
        max_length: Characters of the longest list, as JSON. A message that would take more than half of the room left
            is cut, and says so; where there is no room left, the episode is truncated.

    >>> import agent_envs
    >>> env = ChatMessages(gym.make("AgentR1/GSM8KTool-v0"))
    >>> [message["role"] for message in env.reset(seed=0)[0]]
    ['system', 'user']
    >>> messages, *_ = env.step(env.unwrapped.format_call("calculator", {"expression": "6*7"}))
    >>> messages[-1]
    {'role': 'tool', 'name': 'calculator', 'content': '42'}
    """

    instructions = ""
    """Empty: they are the system message."""

    def __init__(
        self,
        env: gym.Env[str, str],
        reasoning: str = "keep",
        tools: str = "template",
        max_length: int = 1 << 21,
    ) -> None:
        for name, value, known in (("reasoning", reasoning, ("keep", "strip")), ("tools", tools, ("template", "text"))):
            if value not in known:
                raise ConfigError(f"ChatMessages: {name} must be {' or '.join(map(repr, known))}, got {value!r}")
        if type(max_length) is not int or max_length < 10_000:
            raise ConfigError(f"ChatMessages: max_length must be an integer of at least 10000, got {max_length!r}")
        check_order(env, "ChatMessages")
        RecordConstructorArgs.__init__(self, reasoning=reasoning, tools=tools, max_length=max_length)
        super().__init__(env)
        self.observation_space = MessagesSpace(max_length)
        self.max_length = max_length
        self.reasoning = reasoning
        self.tools_as = tools
        self.last_observation: list[Message] = []
        self._messages: list[Message] = []
        self._room = 0

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools for the chat template; none where the system message tells them."""
        return [] if self.tools_as == "text" else self.env.get_wrapper_attr("tools")

    @property
    def tool_instructions(self) -> str:
        """The tools in words; empty where the system message has them."""
        return "" if self.tools_as == "text" else self.env.get_wrapper_attr("tool_instructions")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Reset: the instructions and the first observation."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._begin()
        self._add_observation(observation, info)
        return self._shown(), info

    def step(self, action: str) -> tuple[list[Message], SupportsFloat, bool, bool, dict[str, Any]]:
        """Step: the policy's text and what the environment said to it are new."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info.get("rebuilt", False):
            self._begin()
        else:
            said = clean_text(action)
            said = strip_reasoning(said, action_parser(self.env)) if self.reasoning == "strip" else said
            self._add({"role": "assistant", "content": said})
        self._add_observation(observation, info)
        return self._shown(), reward, terminated, truncated or (self._room < _LEAST_ROOM and not terminated), info

    def _begin(self) -> None:
        self._messages, self._room = [], self.max_length - len("[]")
        told = [self.env.get_wrapper_attr("instructions")]
        if self.tools_as == "text":
            told.append(self.env.get_wrapper_attr("tool_instructions"))
        system = "\n\n".join(filter(None, told))
        if system:
            self._add({"role": "system", "content": system})

    def _add_observation(self, observation: str, info: dict[str, Any]) -> None:
        shown = {} if self.tools_as == "text" else info
        for message in observation_messages(observation, shown):
            self._add(message)

    def _add(self, message: Message) -> None:
        limit = self._room // 2
        cost = _cost(message)
        if cost > limit:
            if limit < _LEAST_ROOM:
                self._room = 0
                return
            message = {**message, "content": _cut(message, limit)}
            cost = _cost(message)
        self._messages.append(message)
        self._room -= cost

    def _shown(self) -> list[Message]:
        self.last_observation = [*self._messages]  # stays here: snapshots copy it
        return [message.copy() for message in self._messages]


def action_parser(env: gym.Env[Any, str]) -> Parser | None:
    """The wire format in which an environment reads calls, None where actions are commands."""
    try:
        parser = env.get_wrapper_attr("parser")
    except AttributeError:
        return None
    return get_parser(parser) if isinstance(parser, str) else parser


def _cost(message: Message) -> int:
    return len(json.dumps(message, ensure_ascii=False)) + len(", ")


def _cut(message: Message, limit: int) -> str:
    """The content cut so that the message takes at most ``limit`` characters of JSON, with a note of its length."""
    content = message["content"]
    note = f"\n[cut: {len(content)} characters]"
    kept = min(len(content), limit)
    while (cost := _cost({**message, "content": content[:kept] + note})) > limit and kept:
        kept = max(0, min(kept * limit // cost, kept - (cost - limit) // 6) - 1)
    return content[:kept] + note
