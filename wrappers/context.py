"""What the wrappers over messages share: a prompt as its opening and exchanges, and which of them are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from agent_envs.errors import ConfigError
from agent_envs.messages import Message
from agent_envs.wrapping.order import check_order

__all__ = ["SUMMARY", "ContextWrapper", "check_count", "copied", "split_exchanges"]

SUMMARY = "\n\nSummary of the steps so far:\n"
"""What stands between the task and a summary of earlier exchanges."""


def split_exchanges(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """A prompt as its opening (instructions and task) and its exchanges: the policy's text and what came of it.

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


def copied(messages: Sequence[Message]) -> list[Message]:
    """Messages that may be changed without changing these."""
    return [message.copy() for message in messages]


def check_count(wrapper: str, name: str, value: Any, least: int) -> None:
    """Raise ConfigError unless ``value`` is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{wrapper}: {name} must be an integer of at least {least}, got {value!r}")


class ContextWrapper(gym.Wrapper[list[Message], str, list[Message], str], RecordConstructorArgs):
    """Base of the wrappers that choose which messages of a prompt are shown.

    A subclass calls this constructor with its arguments and says in ``_choose`` what is shown.
    """

    def __init__(self, env: gym.Env[list[Message], str], **arguments: Any) -> None:
        check_order(env, next(c.__name__ for c in type(self).__mro__ if ContextWrapper in c.__bases__))
        # not copied: a tokenizer or a client is shared
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **arguments)
        gym.Wrapper.__init__(self, env)
        self.last_observation: list[Message] = []
        self._said = ""
        self._over = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Reset, and show what is chosen of the prompt."""
        messages, info = self.env.reset(seed=seed, options=options)
        self._said, self._over = "", False
        self._begin()
        return self._shown(messages, info)

    def step(self, action: str) -> tuple[list[Message], SupportsFloat, bool, bool, dict[str, Any]]:
        """Step, and show what is chosen of the prompt."""
        messages, reward, terminated, truncated, info = self.env.step(action)
        self._said, self._over = action, terminated
        messages, info = self._shown(messages, info)
        return messages, reward, terminated, truncated, info

    def _begin(self) -> None:
        """Forget the last episode."""

    def _choose(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        """The messages to show, and info keys about it."""
        raise NotImplementedError

    def _shown(self, messages: list[Message], info: dict[str, Any]) -> tuple[list[Message], dict[str, Any]]:
        chosen, about = self._choose(messages, info)
        self.last_observation = copied(chosen)
        return copied(chosen), {**info, **about}
