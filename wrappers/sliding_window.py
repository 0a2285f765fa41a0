"""Prompts of bounded length: the task and the last steps."""

from __future__ import annotations

from itertools import chain
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.messages import Message
from agent_envs.wrappers.context import ContextWrapper, split_exchanges


class SlidingWindow(ContextWrapper):
    """Show the instructions, the first observation and the last ``k`` exchanges.

    An exchange is an action and all the answers to it, so that a call and its results are shown or left out together.
    ``info["dropped_exchanges"]`` counts those that are left out.

    Args:
        env: An environment over messages: ``ChatMessages`` beneath.
        k: Number of exchanges shown, at least 0.

    >>> import agent_envs
    >>> from agent_envs.wrappers import ChatMessages
    >>> env = SlidingWindow(ChatMessages(gym.make("AgentR1/GSM8KTool-v0")), k=1)
    >>> _ = env.reset(seed=0)
    >>> _ = env.step(env.unwrapped.format_call("calculator", {"expression": "1+1"}))
    >>> messages, *_, info = env.step(env.unwrapped.format_call("calculator", {"expression": "2+2"}))
    >>> [message["content"] for message in messages if message["role"] == "tool"], info["dropped_exchanges"]
    (['4'], 1)
    """

    selects_history = True
    recorded_arguments = ("k",)

    def __init__(self, env: gym.Env[list[Message], str], k: int = 4) -> None:
        self.k = checks.integer("k", k, minimum=0)
        super().__init__(env, k=k)

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        opening, exchanges = split_exchanges(messages)
        latest = exchanges[max(0, len(exchanges) - self.k) :]
        return [*opening, *chain.from_iterable(latest)], {"dropped_exchanges": len(exchanges) - len(latest)}
