"""Which environments a server offers, what their clients may choose, and the signed form of their snapshots."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pickle
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agent_envs.errors import ConfigError
from agent_envs.registration import make_env
from agent_envs.wrapping.specs import apply_wrappers

__all__ = ["ServedEnv", "Signer"]

_NOTHING = object()
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class ServedEnv:
    """An environment that a server offers.

    Raises:
        ConfigError: `allow` names an argument that is given already.

    >>> ServedEnv("AgentR1/GSM8K-v0").make({"split": "test"}).unwrapped.split
    'test'
    """

    env_id: str
    """What `gymnasium.make` takes: "Id" or "module:Id". Clients find it under this name, without the module."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments."""
    wrappers: Sequence[str] = ()
    """Specs of wrappers, innermost first."""
    allow: Sequence[str] | None = None
    """Arguments that a client may choose; by default its split, unless `env_kwargs` says which."""

    def __post_init__(self) -> None:
        fixed = sorted(set(self.allow or ()) & set(self.env_kwargs))
        if fixed:
            raise ConfigError(f"{self.name}: clients cannot choose what is given already: {', '.join(fixed)}")

    @property
    def name(self) -> str:
        """The id, without a module."""
        return self.env_id.rpartition(":")[2]

    @property
    def choices(self) -> tuple[str, ...]:
        """The arguments that a client may choose."""
        if self.allow is not None:
            return tuple(self.allow)
        return () if "split" in self.env_kwargs else ("split",)

    def make(self, chosen: Mapping[str, Any]) -> gym.Env[Any, Any]:
        """The environment in its wrappers.

        Args:
            chosen: A client's arguments.

        Raises:
            ConfigError: The client may not choose them, or the environment does not take them.
        """
        chosen = {key: value for key, value in chosen.items() if self.env_kwargs.get(key, _NOTHING) != value}
        refused = sorted(str(key) for key in chosen if key not in self.choices)
        if refused:
            may = ", ".join(self.choices) or "nothing"
            raise ConfigError(f"a client of {self.name} may choose {may}, got {', '.join(refused)!s:.200}")
        split = chosen.get("split", "train")
        if not isinstance(split, str) or not _NAME.fullmatch(split):
            raise ConfigError(f"a split is a name such as 'train', got {split!r:.200}")
        # Gymnasium's passive checker runs in the client's own `gymnasium.make`.
        env = make_env(self.env_id, disable_env_checker=True, **{**self.env_kwargs, **chosen})
        return apply_wrappers(env, self.wrappers)


class Signer:
    """Snapshots as texts that a client keeps and only this server can have made.

    A client gives a snapshot back to be restored, and reading it is unpickling: so it is read only if its signature,
    made with a secret of this process, is right, and for the environment that it was taken of.

    >>> signer = Signer()
    >>> signer.unpack(signer.pack("game", ["a state"]), "game")
    ['a state']
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def pack(self, name: str, value: Any) -> str:
        """A value as a text.

        Args:
            name: What it belongs to.
            value: Anything that pickle takes.
        """
        data = pickle.dumps(value)
        return base64.b64encode(self._sign(name, data) + data).decode()

    def unpack(self, text: object, name: str) -> Any:
        """The value in a text of `pack`.

        Raises:
            ConfigError: The text was not made by this process for this environment.
        """
        try:
            packed = base64.b64decode(text if isinstance(text, str) else "", validate=True)
        except ValueError:
            packed = b""
        data = packed[32:]
        if not hmac.compare_digest(packed[:32], self._sign(name, data)):
            raise ConfigError(
                "this is no snapshot of this environment on this server; a server that was started again has forgotten "
                "those it gave before"
            )
        return pickle.loads(data)

    def _sign(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, json.dumps(name).encode() + b"\0" + data, hashlib.sha256)
