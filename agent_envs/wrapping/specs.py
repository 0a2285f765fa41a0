"""Wrappers written as text, ``Name(key=value)``, and environments made in their wrappers."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from agent_envs.checks import argument_names, load_function, naming_arguments, shown
from agent_envs.errors import ConfigError, did_you_mean
from agent_envs.registration import env_maker_of, make_env
from agent_envs.spaces import refuse_pictures
from agent_envs.wrapping.order import check_stock

_WRAPPERS = "agent_envs.wrappers"

WrapperSpec = str | Callable[[gym.Env[Any, str]], gym.Env[Any, str]]
"""A text ``"Name(key=value)"`` or ``"package.module:Name(key=value)"``, or a function from env to env."""


def wrapper_names() -> list[str]:
    """Return the names of `agent_envs.wrappers`, which a spec can give without a module."""
    return [name for name in importlib.import_module(_WRAPPERS).__all__ if name[0].isupper()]


def read_spec(spec: str) -> tuple[str, str, dict[str, Any]]:
    """Return a spec's module ("" if it has none), name and keyword arguments, which are literals, never evaluated.

    A malformed spec is a ConfigError.
    """
    expected = f"a wrapper is written Name, Name(key=value, ...) or module:Name(...), got {shown(spec)}"
    module, colon, _ = spec.strip().partition("(")[0].rpartition(":")
    try:
        node = ast.parse(spec.strip()[len(module) + len(colon) :], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise ConfigError(expected) from e
    if colon and not module:
        raise ConfigError(expected)
    keywords: list[ast.keyword] = []
    if isinstance(node, ast.Call) and not node.args:
        keywords, node = node.keywords, node.func
    if not isinstance(node, ast.Name) or any(keyword.arg is None for keyword in keywords):
        raise ConfigError(expected)
    arguments: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg in arguments:
            raise ConfigError(f"wrapper {node.id}: {keyword.arg} is given twice")
        try:
            arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError) as e:
            message = f"wrapper {node.id}: {keyword.arg} must be a literal (a number, a string, a list)"
            raise ConfigError(message) from e
    return module, node.id, arguments


def parse_wrapper(spec: str) -> tuple[Callable[..., gym.Env[Any, str]], dict[str, Any]]:
    """Return the wrapper that a spec names and its keyword arguments.

    Raises:
        ConfigError: The spec is malformed, or there is no such wrapper.

    >>> parse_wrapper("FormatReward(weight=0.2)")[1]
    {'weight': 0.2}
    """
    module, name, arguments = read_spec(spec)
    if not module and name not in wrapper_names():
        hint = did_you_mean(name, wrapper_names())
        raise ConfigError(f"unknown wrapper {name!r}.{hint} Write your own as module:Name.")
    return load_function(f"{module or _WRAPPERS}:{name}", what="wrapper"), arguments


def apply_wrappers(env: gym.Env[Any, str], specs: Iterable[WrapperSpec]) -> gym.Env[Any, str]:
    """Wrap ``env``, the first spec innermost.

    Raises:
        ConfigError: A spec is malformed, its wrapper rejects the arguments or does not go there, or one of Gymnasium's
            wrappers harms text.
    """
    check_stock(env)
    for spec in specs:
        if callable(spec):
            env = spec(env)
        else:
            wrapper, arguments = parse_wrapper(spec)
            try:
                with naming_arguments(spec.partition("(")[0].strip(), wrapper, arguments):
                    env = wrapper(env, **arguments)
            except (AssertionError, ConfigError, TypeError, ValueError) as e:
                about = "" if str(e).startswith(wrapper.__name__) else f"wrapper {spec!r}: "
                raise ConfigError(f"{about}{e}") from e
        check_stock(env)
    return env


def env_maker(
    env_id: str | EnvSpec | Callable[..., gym.Env[Any, str]],
    env_kwargs: Mapping[str, Any] | None,
    wrappers: Sequence[WrapperSpec],
) -> Callable[[], gym.Env[Any, str]]:
    """Return a function that makes an environment in its wrappers each time it is called.

    ``env_id`` is what ``gymnasium.make`` takes, or a function that makes it; the last wrapper is outermost. An
    argument of a wrong type is a ConfigError.
    """
    if isinstance(wrappers, str) or not isinstance(wrappers, Sequence):
        raise ConfigError(f"wrappers must be a list of specs or functions, got {wrappers!r}; write [{wrappers!r}]")
    if wrong := [wrapper for wrapper in wrappers if not (isinstance(wrapper, str) or callable(wrapper))]:
        raise ConfigError(f"a wrapper must be a spec such as 'FormatReward' or a function, got {shown(wrong[0])}")
    if not isinstance(env_kwargs or {}, Mapping) or any(not isinstance(name, str) for name in env_kwargs or ()):
        raise ConfigError(f"env_kwargs must map names of arguments to values, got {shown(env_kwargs)}")
    kwargs = dict(env_kwargs or {})
    if not isinstance(env_id, (str, EnvSpec)) and not callable(env_id):
        raise ConfigError(f"env_id must be an id, an EnvSpec or a function that makes an env, got {env_id!r}")

    def make() -> gym.Env[Any, str]:
        env = make_env(env_id, **kwargs) if isinstance(env_id, (str, EnvSpec)) else env_id(**kwargs)
        return apply_wrappers(env, wrappers)

    return make


def make_text_env(
    env_id: str, env_kwargs: Mapping[str, Any], wrappers: Iterable[WrapperSpec], *, reader: str = ""
) -> gym.Env[Any, Any]:
    """Make a text environment in its wrappers, as commands and trainers name it.

    Args:
        env_id: What `gymnasium.make` takes: "Id" or "module:Id".
        env_kwargs: Its keyword arguments.
        wrappers: Applied in order, the last one outermost.
        reader: Who plays it, if that is somebody who takes text alone.

    Raises:
        ConfigError: There is no such environment, it does not take these arguments, it is not a text environment, or
            it shows pictures to a reader of text.
    """
    env = apply_wrappers(make_env(env_id, **env_kwargs), wrappers)
    try:
        if not (env.has_wrapper_attr("instructions") and env.has_wrapper_attr("tools")):
            raise ConfigError(
                f"{env_id} is not a text environment: it has no instructions and tools. The wrapper TextGame turns an "
                "environment with discrete actions into one"
            )
        if reader:
            refuse_pictures(env.observation_space, reader)
    except ConfigError:
        env.close()
        raise
    return env


def takes_argument(env_id: str, name: str) -> bool:
    """Return whether an environment has an argument; True of one that does not exist, which making it says.

    >>> takes_argument("AgentR1/GSM8K-v0", "split"), takes_argument("FrozenLake-v1", "split")
    (True, False)
    """
    try:
        return name in argument_names(env_maker_of(env_id))
    except (gym.error.Error, ImportError, AttributeError, TypeError, ValueError):
        return True
