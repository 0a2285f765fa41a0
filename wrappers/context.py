"""Wrappers that choose which messages a prompt shows: their base, the division into exchanges, a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import gymnasium as gym

from agent_envs import checks
from agent_envs.messages import Message, copied, joined_content
from agent_envs.wrapping.order import ObservationWrapper, Place, Shown


def split_exchanges(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """Split a prompt into its opening (instructions and task) and its exchanges: an action and the answers to it.

    >>> roles = ["system", "user", "assistant", "tool", "tool", "assistant", "user"]
    >>> opening, exchanges = split_exchanges([{"role": role, "content": ""} for role in roles])
    >>> len(opening), [len(exchange) for exchange in exchanges]
    (2, [3, 2])
    """
    opening: list[Message] = []
    exchanges: list[list[Message]] = []
    for message in messages:
        if message["role"] == "assistant":
            exchanges.append([message])
        elif exchanges:
            exchanges[-1].append(message)
        else:
            opening.append(message)
    return opening, exchanges


def add_to_task(opening: list[Message], note: str) -> list[Message]:
    """Return an opening with a note at the end of the task, so that roles still take turns."""
    if not opening or opening[-1]["role"] != "user":
        return [*opening, {"role": "user", "content": note.lstrip()}]
    return [*opening[:-1], {**opening[-1], "content": joined_content([opening[-1]["content"], note], "")}]


class ContextWrapper(ObservationWrapper):
    """Base of the wrappers that choose which messages of a prompt are shown, by `_choose`."""

    place = Place.CONTEXT
    _action = ""  # the last one

    def _begin(self) -> None:
        """Forget the last episode."""

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        """Return the messages to show, and info keys about the choice."""
        raise NotImplementedError

    def _observed(self, observation: Any, info: dict[str, Any], action: str | None, over: bool) -> Shown:
        self._action = action or ""
        if action is None:
            self._begin()
        chosen, about = self._choose(observation, info)
        return copied(chosen), {**info, **about}


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
