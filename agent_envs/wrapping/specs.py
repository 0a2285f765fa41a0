"""Wrappers by their text form, ``Name(key=value)``, as the command line and ``run_episodes`` take them."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.registration import make_env
from agent_envs.wrapping.order import check_stock

__all__ = ["WRAPPERS", "WrapperSpec", "apply_wrappers", "env_maker", "make_text_env", "parse_wrapper"]

WRAPPERS: dict[str, str] = {
    "AsTool": "agent_envs.wrappers.as_tool:AsTool",
    "Augment": "agent_envs.wrappers.augment:Augment",
    "ChatMessages": "agent_envs.wrappers.chat_messages:ChatMessages",
    "FormatReward": "agent_envs.wrappers.format_reward:FormatReward",
    "InvalidActionPenalty": "agent_envs.wrappers.step_rewards:InvalidActionPenalty",
    "MalformedCalls": "agent_envs.wrappers.malformed_calls:MalformedCalls",
    "PrependInstructions": "agent_envs.wrappers.prepend_instructions:PrependInstructions",
    "RebuildPrompt": "agent_envs.wrappers.rebuild_prompt:RebuildPrompt",
    "RecordEpisodes": "agent_envs.wrappers.record_episodes:RecordEpisodes",
    "RewardNormalisation": "agent_envs.wrappers.reward_normalisation:RewardNormalisation",
    "SlidingWindow": "agent_envs.wrappers.sliding_window:SlidingWindow",
    "StepPenalty": "agent_envs.wrappers.step_rewards:StepPenalty",
    "StripReasoning": "agent_envs.wrappers.strip_reasoning:StripReasoning",
    "Summarize": "agent_envs.wrappers.summarize:Summarize",
    "TextGame": "agent_envs.wrappers.text_game:TextGame",
    "TokenBudget": "agent_envs.wrappers.token_budget:TokenBudget",
    "ToolCallReward": "agent_envs.wrappers.step_rewards:ToolCallReward",
}
"""Entry points of the wrappers that a spec can name without a module."""

WrapperSpec = str | Callable[[gym.Env[Any, str]], gym.Env[Any, str]]
"""A text ``"Name(key=value)"`` or ``"package.module:Name(key=value)"``, or a function from env to env."""

_SPEC = re.compile(r"(?:(?P<module>[A-Za-z_][\w.]*):)?(?P<call>.*)", re.DOTALL)


def parse_wrapper(spec: str) -> tuple[Callable[..., gym.Env[Any, str]], dict[str, Any]]:
    """The wrapper and the keyword arguments that a spec names. Values are Python literals; nothing is evaluated.

    Raises:
        ConfigError: The spec has another form, or names a wrapper that does not exist.

    >>> parse_wrapper("FormatReward(weight=0.2)")[1]
    {'weight': 0.2}
    """
    expected = f"a wrapper is written Name, Name(key=value, ...) or module:Name(...), got {spec!r}"
    match = _SPEC.fullmatch(spec.strip())
    try:
        node = ast.parse(match["call"] if match else "", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise ConfigError(expected) from e
    keywords: list[ast.keyword] = []
    if isinstance(node, ast.Call) and not node.args:
        keywords = node.keywords
        node = node.func
    if not isinstance(node, ast.Name):
        raise ConfigError(expected)
    arguments: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg is None:
            raise ConfigError(expected)
        try:
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError as e:
            message = f"wrapper {node.id}: {keyword.arg} must be a literal (a number, a string, a list)"
            raise ConfigError(message) from e
    return _load(match["module"] if match else None, node.id), arguments


def _load(module: str | None, name: str) -> Callable[..., gym.Env[Any, str]]:
    if module is None:
        if name not in WRAPPERS:
            raise ConfigError(f"unknown wrapper {name!r}.{did_you_mean(name, WRAPPERS)} Others are named module:Name.")
        module, _, name = WRAPPERS[name].partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise ConfigError(f"there is no wrapper {module}:{name}: {e}") from e


def apply_wrappers(env: gym.Env[Any, str], specs: Iterable[WrapperSpec]) -> gym.Env[Any, str]:
    """``env`` in wrappers, the first spec innermost.

    Raises:
        ConfigError: A spec cannot be read, its wrapper refuses the arguments or the place, or a wrapper of Gymnasium's
            does harm to text.
    """
    check_stock(env)
    for spec in specs:
        if callable(spec):
            env = spec(env)
            check_stock(env)
            continue
        wrapper, arguments = parse_wrapper(spec)
        try:
            env = wrapper(env, **arguments)
        except (AssertionError, ConfigError, TypeError, ValueError) as e:
            raise ConfigError(f"wrapper {spec!r}: {e}") from e
        check_stock(env)
    return env


def env_maker(
    env_id: str | EnvSpec | Callable[..., gym.Env[Any, str]],
    env_kwargs: Mapping[str, Any],
    wrappers: Sequence[WrapperSpec],
) -> Callable[[], gym.Env[Any, str]]:
    """A function that makes an environment in its wrappers, as often as it is called.

    Args:
        env_id: What ``gymnasium.make`` takes, or a function that makes the environment.
        env_kwargs: Its keyword arguments.
        wrappers: Applied in order, the last one outermost.

    Raises:
        ConfigError: An argument is of another kind.
    """
    if isinstance(wrappers, str) or callable(wrappers):
        raise ConfigError(f"wrappers is a list of specs or functions, got {wrappers!r}; write [{wrappers!r}]")
    if not isinstance(env_id, (str, EnvSpec)) and not callable(env_id):
        raise ConfigError(f"env_id is an id, an EnvSpec or a function that makes an env, got {env_id!r}")

    def make() -> gym.Env[Any, str]:
        env = make_env(env_id, **env_kwargs) if isinstance(env_id, (str, EnvSpec)) else env_id(**env_kwargs)
        return apply_wrappers(env, wrappers)

    return make


def make_text_env(env_id: str, env_kwargs: Mapping[str, Any], wrappers: Iterable[WrapperSpec]) -> gym.Env[Any, Any]:
    """Make a text environment in its wrappers, as commands and trainers name it.

    Args:
        env_id: What `gymnasium.make` takes: "Id" or "module:Id".
        env_kwargs: Its keyword arguments.
        wrappers: Applied in order, the last one outermost.

    Raises:
        ConfigError: There is no such environment, it does not take these arguments, or it is not a text environment.
    """
    env = apply_wrappers(make_env(env_id, **env_kwargs), wrappers)
    if not (env.has_wrapper_attr("instructions") and env.has_wrapper_attr("tools")):
        env.close()
        raise ConfigError(
            f"{env_id} is not a text environment: it has no instructions and tools. The wrapper TextGame turns an "
            "environment with discrete actions into one"
        )
    return env
