"""Snapshots of an environment with its wrappers, to branch an episode exactly.

``env.unwrapped.snapshot()`` has the state of the task alone. ``snapshot(env)`` also has the state of wrappers, such as
step counts and reward totals.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from agent_envs.errors import ConfigError
from agent_envs.registration import layers
from agent_envs.text_env import Snapshot, TextEnv

# Arguments and caches of Gymnasium's Wrapper and RecordConstructorArgs; and `_shared`, where a wrapper keeps what it
# shares with others, such as a tokenizer.
_NOT_STATE = frozenset(
    {"env", "_saved_kwargs", "_action_space", "_observation_space", "_metadata", "_cached_spec", "spec", "_shared"}
)


@dataclass(frozen=True, slots=True)
class EnvSnapshot:
    """A point in an episode, including its wrappers."""

    wrappers: tuple[tuple[str, dict[str, Any]], ...]
    """Class name and state of each wrapper, outermost first."""
    env: Snapshot
    """The environment's own snapshot."""


@runtime_checkable
class Forgetful(Protocol):
    """A wrapper whose records outlive a snapshot, for example in a file."""

    def forget(self) -> None:
        """Record nothing until the next reset, or until an earlier snapshot is restored."""


def snapshot(env: gym.Env[Any, str]) -> EnvSnapshot:
    """Return this point of the episode: the state of the environment and of every wrapper.

    Raises:
        ConfigError: The innermost environment is not a ``TextEnv``.
        gymnasium.error.ResetNeeded: ``reset`` has not been called yet.

    >>> import agent_envs
    >>> env = gym.make("AgentR1/GSM8KTool-v0")
    >>> _ = env.reset(seed=0)
    >>> point = snapshot(env)
    >>> first = env.step("#### 1")
    >>> _ = restore(env, point)
    >>> env.step("#### 1") == first
    True
    """
    base, wrappers = _chain(env)
    states = [{name: value for name, value in vars(w).items() if name not in _NOT_STATE} for w in wrappers]
    names = [type(w).__name__ for w in wrappers]
    return EnvSnapshot(tuple(zip(names, map(copy.deepcopy, states), strict=True)), base.snapshot())


def restore(env: gym.Env[Any, str], point: EnvSnapshot) -> tuple[Any, dict[str, Any]]:
    """Return to a snapshot of this environment, or of another one with the same arguments and wrappers.

    Returns:
        The observation at that point, and info as after a reset of the innermost environment. The observation is as the
        policy saw it if wrappers that change observations keep it as `last_observation`, as all of this package do.

    Raises:
        ConfigError: The snapshot is of an environment with other wrappers.
    """
    base, wrappers = _chain(env)
    names = [type(w).__name__ for w in wrappers]
    expected = [name for name, _ in point.wrappers]
    if names != expected:
        raise ConfigError(f"the snapshot is of an environment with the wrappers {expected}, this one has {names}")
    for wrapper, (_, state) in zip(wrappers, point.wrappers, strict=True):
        vars(wrapper).update(copy.deepcopy(state))
    observation, info = base.restore(point.env)
    shown = (state["last_observation"] for _, state in point.wrappers if "last_observation" in state)
    return copy.deepcopy(next(shown, observation)), info


@contextmanager
def tried(env: gym.Env[Any, str]) -> Iterator[None]:
    """Try actions inside this context: at its end the environment is as before, and no wrapper has recorded them.

    Raises:
        ConfigError: The innermost environment is not a ``TextEnv``.
    """
    point = snapshot(env)
    for wrapper in _chain(env)[1]:
        if isinstance(wrapper, Forgetful):
            wrapper.forget()
    try:
        yield
    finally:
        restore(env, point)


def _chain(env: gym.Env[Any, str]) -> tuple[TextEnv, list[gym.Wrapper[Any, Any, Any, Any]]]:
    *wrappers, base = layers(env)
    if not isinstance(base, TextEnv):
        raise ConfigError(f"only a TextEnv can be branched, got {type(base).__name__}")
    return base, wrappers  # type: ignore[return-value]
