"""The environments that a server offers, what a client may choose about them, and their descriptions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agent_envs._version import __version__
from agent_envs.errors import ConfigError
from agent_envs.registration import make_env
from agent_envs.serving.protocol import PROTOCOL
from agent_envs.spaces import ImageText, MessagesSpace, UnicodeText
from agent_envs.wrapping.recorded import recorded_env
from agent_envs.wrapping.specs import apply_wrappers, takes_argument

_NOTHING = object()
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class ServedEnv:
    """An environment that a server offers.

    >>> ServedEnv("AgentR1/GSM8K-v0").make({"split": "test"}).unwrapped.split
    'test'
    """

    env_id: str
    """What `gymnasium.make` takes: "Id" or "module:Id". Clients use the id without the module."""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments."""
    wrappers: Sequence[str] = ()
    """Wrapper specs, innermost first."""
    allow: Sequence[str] | None = None
    """Arguments that a client may choose; by default the split, unless `env_kwargs` sets it."""

    def __post_init__(self) -> None:
        fixed = sorted(set(self.allow or ()) & set(self.env_kwargs))
        if fixed:
            raise ConfigError(f"{self.name}: clients cannot choose what the server sets: {', '.join(fixed)}")
        for name in self.allow or ():
            if not takes_argument(self.env_id, name):
                raise ConfigError(f"{self.name} has no argument {name!r} that clients could choose")

    @property
    def name(self) -> str:
        """The id without a module."""
        return self.env_id.rpartition(":")[2]

    @property
    def choices(self) -> tuple[str, ...]:
        """The arguments that a client may choose."""
        default = () if "split" in self.env_kwargs else ("split",)
        return default if self.allow is None else tuple(self.allow)

    def make(self, client_kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
        """Make the environment in its wrappers, with the arguments that a client chose.

        It is a ConfigError if the client may not choose them, or the environment does not take them.
        """
        chosen = {key: value for key, value in client_kwargs.items() if self.env_kwargs.get(key, _NOTHING) != value}
        refused = sorted(str(key) for key in chosen if key not in self.choices)
        if refused:
            allowed = ", ".join(self.choices) or "nothing"
            raise ConfigError(f"a client of {self.name} may choose {allowed}, got {', '.join(refused)!s:.200}")
        split = chosen.get("split", "train")
        if not isinstance(split, str) or not _NAME.fullmatch(split):
            raise ConfigError(f"split must be a name such as 'train', got {split!r:.200}")
        recorded_env({"env_kwargs": chosen}, "the client", env_id=self.env_id)
        # Gymnasium's passive checker runs in the client's own `gymnasium.make`.
        env = make_env(self.env_id, disable_env_checker=True, **{**self.env_kwargs, **chosen})
        return apply_wrappers(env, self.wrappers)


def describe(served_env: ServedEnv, client_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client needs to know before its first episode; makes an environment for a moment.

    It is a ConfigError if that cannot be made with these arguments, or is not a text environment.
    """
    with contextlib.closing(served_env.make(client_kwargs)) as env:
        observations, actions = env.observation_space, env.action_space
        if not isinstance(observations, (UnicodeText, ImageText, MessagesSpace)) or not isinstance(
            actions, UnicodeText
        ):
            raise ConfigError(
                f"{served_env.name} is not a text environment: its spaces are {observations} and {actions}"
            )
        try:
            num_tasks = env.get_wrapper_attr("num_tasks")
        except AttributeError:
            num_tasks = 0
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "env": served_env.name,
            "split": getattr(env.unwrapped, "split", ""),
            "num_tasks": num_tasks,
            "messages": isinstance(observations, MessagesSpace),
            "pictures": observations.picture_limits,
            "observation_length": observations.max_length,
            "action_length": actions.max_length,
            "parser": getattr(getattr(env.unwrapped, "parser", None), "name", None),
            **prompt_parts(env),
        }


def prompt_parts(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return the instructions and tools of an environment."""
    return {name: env.get_wrapper_attr(name) for name in ("instructions", "tools", "tool_instructions")}
