"""An environment behind its wrappers: the walk over the stack, and the hooks that some environments lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym

from agent_envs.messages import ToolSpec

__all__ = ["available_actions", "layers", "offered_tools", "prompt_state"]


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Yield the wrappers of an environment from the outermost in, then the environment itself.

    >>> [type(layer).__name__ for layer in layers(gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 5))][::2]
    ['TimeLimit', 'OrderEnforcing', 'CartPoleEnv']
    """
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def available_actions(env: gym.Env[Any, Any]) -> list[str] | None:
    """Return `TextEnv.available_actions` of an environment; None if it does not have this hook.

    A wrapper that changes the form of actions has `format_command`, which writes each of them in that form.
    """
    return env.get_wrapper_attr("available_actions")() if env.has_wrapper_attr("available_actions") else None


def prompt_state(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """Return `TextEnv.prompt_state` of an environment; an empty dict if it does not have this hook."""
    return env.get_wrapper_attr("prompt_state")() if env.has_wrapper_attr("prompt_state") else {}


def offered_tools(env: gym.Env[Any, Any]) -> list[ToolSpec]:
    """Return the tools that a policy may call, even if an outer wrapper hides them and describes them in words."""
    for layer in layers(env):
        if layer.has_wrapper_attr("tools") and (tools := layer.get_wrapper_attr("tools")):
            return list(tools)
    return []
