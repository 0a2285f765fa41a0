"""What the sessions of a server share: room for environments, descriptions of them, the signature of snapshots."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pickle
import secrets
import threading
from collections.abc import Mapping
from typing import Any

from agent_envs.errors import BackendBusyError, ConfigError
from agent_envs.serving.protocol import encode
from agent_envs.serving.served_env import ServedEnv, describe

__all__ = ["FullError", "ServerState", "Signer"]

_MAX_DESCRIPTIONS = 256


class FullError(BackendBusyError):
    """The server has no room for another environment."""


class ServerState:
    """What all sessions of a server share. Methods may be called from several threads."""

    def __init__(self, max_episodes: int, max_message: int) -> None:
        self.max_episodes = max_episodes
        self.max_message = max_message
        self.episodes = 0
        """Environments at the moment."""
        self.signer = Signer()
        self._lock = threading.Lock()
        self._describing = threading.Lock()
        self._descriptions: dict[str, dict[str, Any]] = {}

    def acquire(self) -> None:
        """Make room for one environment; a FullError if there is none."""
        with self._lock:
            if self.episodes >= self.max_episodes:
                raise FullError(f"the server already runs {self.max_episodes} episodes, its maximum; try again later")
            self.episodes += 1

    def release(self) -> None:
        """Give back the room of one environment."""
        with self._lock:
            self.episodes -= 1

    def describe(self, served_env: ServedEnv, client_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return `describe` of an environment; cached."""
        name = encode([served_env.name, sorted(client_kwargs.items())])
        with self._describing:
            description = self._descriptions.get(name)
            if description is None:
                description = {**describe(served_env, client_kwargs), "max_message": self.max_message}
                if len(self._descriptions) < _MAX_DESCRIPTIONS:
                    self._descriptions[name] = description
            return description


class Signer:
    """Turns snapshots into texts that a client keeps, and back if this process has made the text.

    Restoring a snapshot means unpickling it, so a text is read only if it carries the right signature for the
    environment it was taken of, made with a secret of this process.

    >>> signer = Signer()
    >>> signer.unpack(signer.pack("game", ["a state"]), "game")
    ['a state']
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def pack(self, name: str, value: Any) -> str:
        """Return anything that pickle takes as a signed text that belongs to `name`."""
        data = pickle.dumps(value)
        return base64.b64encode(self._sign(name, data) + data).decode()

    def unpack(self, text: object, name: str) -> Any:
        """Return the value in a text of `pack`; a ConfigError if this process has not made it for this environment."""
        try:
            packed = base64.b64decode(text if isinstance(text, str) else "", validate=True)
        except ValueError:
            packed = b""
        data = packed[32:]
        if not hmac.compare_digest(packed[:32], self._sign(name, data)):
            why = "snapshots are lost when the server restarts"
            raise ConfigError(f"not a snapshot of this environment on this server; {why}")
        return pickle.loads(data)

    def _sign(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, json.dumps(name).encode() + b"\0" + data, hashlib.sha256)
