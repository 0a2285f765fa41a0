"""Observations as the whole next prompt: a list of chat messages, for chat templates and for wrappers that choose."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.messages import (
    Content,
    Message,
    ToolSpec,
    content_text,
    copied,
    cut_content,
    observation_messages,
    pictures_of,
    without_pictures,
)
from agent_envs.parsers.parser import Parser
from agent_envs.parsers.reasoning import strip_reasoning
from agent_envs.spaces import ImageText, MessagesSpace, kept_action
from agent_envs.text import clean_text
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown

_LEAST_ROOM = 400  # characters of JSON; with less left the prompt is full


class ChatMessages(ObservationWrapper):
    """Make each observation the complete next prompt: a list of messages that grows by two or more with every step.

    The instructions are the system message, and ``instructions`` is empty, so that nothing is shown twice. The first
    observation has the role ``user``, actions the role ``assistant``, tool results the role ``tool`` and other
    observations the role ``user``. An observation that is a whole prompt (``info["rebuilt"]``) starts a new list. Every
    observation is a copy.

    Args:
        reasoning: ``"keep"`` shows actions in full, so that prompts grow and sampled tokens stay; ``"strip"`` removes
            their reasoning (`agent_envs.parsers.reasoning`), so that every prompt is rendered from scratch.
        tools: ``"template"`` leaves the tools to the chat template (``env.tools``); ``"text"`` describes them in the
            system message and gives results the role ``user``, for models whose template has no tools.
        max_length: Maximum length of the list in characters of JSON. A message that would take more than half of the
            remaining room is cut, with a note; with no room left, the episode is truncated.
        max_images: Maximum number of pictures in the list, where the environment shows pictures: a step beyond it is
            not shown, and truncates the episode.

    >>> import agent_envs
    >>> env = ChatMessages(gym.make("AgentR1/GSM8KTool-v0"))
    >>> [message["role"] for message in env.reset(seed=0)[0]]
    ['system', 'user']
    >>> messages, *_ = env.step(env.unwrapped.format_call("calculator", {"expression": "6*7"}))
    >>> messages[-1]
    {'role': 'tool', 'name': 'calculator', 'content': '42'}
    """

    place = Place.MESSAGES
    recorded_arguments = ("reasoning", "tools", "max_length", "max_images")
    harmless_arguments = ("max_images",)  # evaluations of text stay comparable with those made before
    instructions = ""
    """Empty: the system message has them."""

    def __init__(
        self,
        env: gym.Env[Any, str],
        reasoning: str = "keep",
        tools: str = "template",
        max_length: int = 1 << 21,
        max_images: int = 16,
    ) -> None:
        self.reasoning = checks.choice("reasoning", reasoning, ("keep", "strip"))
        self.tools_as = checks.choice("tools", tools, ("template", "text"))
        self.max_length = checks.integer("max_length", max_length, minimum=10_000)
        self.max_images = checks.integer("max_images", max_images, minimum=1)
        super().__init__(env, reasoning=reasoning, tools=tools, max_length=max_length, max_images=max_images)
        space = env.observation_space
        pictures = (self.max_images, space.max_side) if isinstance(space, ImageText) else ()
        self.observation_space = MessagesSpace(max_length, *pictures)
        self._messages: list[Message] = []
        self._room = self._images_left = 0

    @property
    def tools(self) -> list[ToolSpec]:
        """The tools for the chat template; none if the system message describes them."""
        return [] if self.tools_as == "text" else self.env.get_wrapper_attr("tools")

    @property
    def tool_instructions(self) -> str:
        """The tools in words; empty if the system message has them."""
        return "" if self.tools_as == "text" else self.env.get_wrapper_attr("tool_instructions")

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        if action is None or info.get("rebuilt", False):
            self._begin()
        else:
            text = clean_text(kept_action(action, self.env.action_space))
            text = strip_reasoning(text, action_parser(self.env)) if self.reasoning == "strip" else text
            self._add({"role": "assistant", "content": text})
        for message in observation_messages(observation, {} if self.tools_as == "text" else info):
            self._add(message)
        self._full = self._room < _LEAST_ROOM
        return copied(self._messages), info

    def _remembered(self, observation: Any, info: dict[str, Any]) -> Shown:
        self.last_observation = [*self._messages]  # which stay here
        return observation, info

    def _begin(self) -> None:
        self._messages, self._room = [], self.max_length - len("[]")
        self._images_left = self.max_images
        names = ("instructions", "tool_instructions") if self.tools_as == "text" else ("instructions",)
        system = "\n\n".join(filter(None, map(self.env.get_wrapper_attr, names)))
        if system:
            self._add({"role": "system", "content": system})

    def _add(self, message: Message) -> None:
        pictures = 0 if isinstance(message["content"], str) else len(pictures_of([message]))
        if pictures > self._images_left:
            self._room = 0
            return
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
        self._images_left -= pictures


def action_parser(env: gym.Env[Any, str]) -> Parser | None:
    """Return the parser of an environment's calls, None if its actions are commands."""
    return env.get_wrapper_attr("parser") if env.has_wrapper_attr("parser") else None


def _cost(message: Message) -> int:
    if not isinstance(message["content"], str):
        message = without_pictures([message])[0][0]  # type: ignore[assignment]
    return len(json.dumps(message, ensure_ascii=False)) + len(", ")


def _cut(message: Message, limit: int) -> Content:
    """Cut the content so that the message takes at most ``limit`` characters of JSON, with a note of its length."""
    content = message["content"]
    length = len(content_text(content))
    note = f"\n[cut: {length} characters]"
    left = min(length, limit)
    while (cost := _cost({**message, "content": cut_content(content, left, note)})) > limit and left:
        left = max(0, min(left * limit // cost, left - (cost - limit) // 6) - 1)
    return cut_content(content, left, note)
