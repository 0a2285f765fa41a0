"""What all sessions of a server share: places for environments, descriptions of them, the secret of snapshots."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from agent_envs._version import __version__
from agent_envs.errors import BackendBusyError, ConfigError
from agent_envs.serving.protocol import PROTOCOL, encode
from agent_envs.serving.served_env import ServedEnv, Signer
from agent_envs.spaces import MessagesSpace, UnicodeText

__all__ = ["FullError", "House", "describe", "surface"]

_MAX_DESCRIPTIONS = 256


class FullError(BackendBusyError):
    """There is no place for another environment."""


class House:
    """What all sessions of a server share: places for environments, descriptions, a secret. Used from many threads.

    Args:
        limit: How many environments there may be at once.
        max_message: Bytes of the longest message.
    """

    def __init__(self, limit: int, max_message: int) -> None:
        self.limit = limit
        self.max_message = max_message
        self.taken = 0
        self.signer = Signer()
        self._lock = threading.Lock()
        self._describing = threading.Lock()
        self._descriptions: dict[str, dict[str, Any]] = {}

    def take(self) -> None:
        """Take a place.

        Raises:
            BackendBusyError: There is none.
        """
        with self._lock:
            if self.taken >= self.limit:
                raise FullError(f"all {self.limit} places for episodes are taken; come again later")
            self.taken += 1

    def free(self) -> None:
        """Give a place back."""
        with self._lock:
            self.taken -= 1

    def describe(self, served: ServedEnv, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """What `describe` says, remembered."""
        name = encode([served.name, sorted(chosen.items())])
        with self._describing:
            known = self._descriptions.get(name)
            if known is None:
                known = {**describe(served, chosen), "max_message": self.max_message}
                if len(self._descriptions) < _MAX_DESCRIPTIONS:
                    self._descriptions[name] = known
            return known


def describe(served: ServedEnv, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a client has to know of an environment before its first episode; makes one for a moment.

    Raises:
        ConfigError: The environment cannot be made with these arguments, or is not one of text.
    """
    env = served.make(chosen)
    try:
        seen, acted = env.observation_space, env.action_space
        if not isinstance(seen, (UnicodeText, MessagesSpace)) or not isinstance(acted, UnicodeText):
            raise ConfigError(f"{served.name} is not an environment of text: its spaces are {seen} and {acted}")
        try:
            count = env.get_wrapper_attr("num_tasks")
        except AttributeError:
            count = 0
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "env": served.name,
            "description": (inspect.getdoc(type(env.unwrapped)) or served.name).partition("\n")[0],
            "split": getattr(env.unwrapped, "split", ""),
            "num_tasks": count,
            "messages": isinstance(seen, MessagesSpace),
            "observation_length": seen.max_length,
            "action_length": acted.max_length,
            "parser": getattr(getattr(env.unwrapped, "parser", None), "name", None),
            **surface(env),
        }
    finally:
        env.close()


def surface(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """How to act."""
    return {name: env.get_wrapper_attr(name) for name in ("instructions", "tools", "tool_instructions")}
