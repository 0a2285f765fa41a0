"""A policy that plays given actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from agent_envs.errors import ConfigError, PolicyError
from agent_envs.messages import Observation, observation_text
from agent_envs.policies.policy import Action

Script = Sequence[Action] | Callable[[Any, dict[str, Any]], Action]


class ScriptedPolicy:
    """Play the same actions in every episode, or those that a function returns.

    Args:
        actions: The actions in order, each a string or a ``Response``; or a function ``(observation, info) -> action``,
            which is called from many threads at once if episodes run concurrently.

    An episode that needs more actions raises ``PolicyError``, which a rollout records as ``StopReason.ERROR``.
    """

    def __init__(self, actions: Script) -> None:
        if isinstance(actions, str):
            raise ConfigError(f"actions must be a list or a function, got a string; write [{actions!r:.80}]")
        self._actions: Script = actions if callable(actions) else tuple(actions)

    def start(self, env: gym.Env[Any, str]) -> _ScriptedActor:
        return _ScriptedActor(self._actions)


class _ScriptedActor:
    def __init__(self, actions: Script) -> None:
        self._actions = actions
        self._step = 0

    def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        if callable(self._actions):
            return self._actions(observation, info)
        if self._step == len(self._actions):
            raise PolicyError(
                f"the script has {len(self._actions)} actions, but task {info['task_id']!r} continues with "
                f"{observation_text(observation)[:200]!r}"
            )
        self._step += 1
        return self._actions[self._step - 1]
