"""Which environment a command works on: the arguments that say so are the same in all of them.

parser: add_env_arguments(parser)
run:    env = chosen_env(arguments).make()
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agent_envs.errors import ConfigError
from agent_envs.wrapping.specs import make_text_env, parse_wrapper

__all__ = ["EnvChoice", "add_env_arguments", "chosen_env", "json_object"]


@dataclass(frozen=True, slots=True)
class EnvChoice:
    """An environment as a command line names it; `run_episodes` takes the three as they are."""

    env_id: str
    """What `gymnasium.make` takes: "Id" or "module:Id"."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment, `split` and `data` among them where they were given."""
    wrappers: tuple[str, ...] = ()
    """Specs, innermost first."""

    def make(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """The environment in its wrappers.

        Args:
            kwargs: Further arguments, `render_mode` for example; they win.

        Raises:
            ConfigError: There is no such environment, it does not take these arguments, or it is none of text.
        """
        return make_text_env(self.env_id, {**self.env_kwargs, **kwargs}, self.wrappers)


def add_env_arguments(
    parser: argparse.ArgumentParser,
    *,
    env: str | None = None,
    split: str = "the environment's own, train",
    data: str = "generated",
) -> None:
    """Add `--env`, `--split`, `--data`, `--env-kwargs` and `--wrapper`.

    Args:
        parser: A command's parser.
        env: What `--help` says that happens without `--env`; None makes it required.
        split: What `--help` says that happens without `--split`.
        data: What `--help` says that happens without `--data`.
    """
    add = parser.add_argument_group("environment").add_argument
    default = "" if env is None else f" (default: {env})"
    add(
        "--env",
        metavar="ID",
        required=env is None,
        help=f"environment, such as AgentR1/GSM8KTool-v0, or module:ID of your own{default}",
    )
    add("--split", help=f"split of the tasks (default: {split})")
    add("--data", help=f"generated, official or a path to released files (default: {data})")
    add("--env-kwargs", metavar="JSON", help="further arguments of the environment, as a JSON object")
    add("--wrapper", action="append", default=[], metavar="SPEC", help='"Name(key=value)"; may be repeated')


def chosen_env(arguments: argparse.Namespace) -> EnvChoice:
    """The environment that parsed arguments name; nothing is opened yet.

    Raises:
        ConfigError: `--env-kwargs` or a `--wrapper` cannot be read.
    """
    kwargs = json_object("--env-kwargs", arguments.env_kwargs)
    for name in ("split", "data"):
        if name in kwargs:
            raise ConfigError(f"--env-kwargs holds {name!r}; use --{name}")
        if vars(arguments)[name] is not None:
            kwargs[name] = vars(arguments)[name]
    for spec in arguments.wrapper:
        parse_wrapper(spec)
    return EnvChoice(arguments.env, kwargs, tuple(arguments.wrapper))


def json_object(option: str, text: str | None) -> dict[str, Any]:
    """The JSON object an option holds; empty where it was not given.

    >>> json_object("--env-kwargs", '{"size": 2}')
    {'size': 2}

    Raises:
        ConfigError: It is no JSON object.
    """
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{option} is not valid JSON: {e}: {text!r}") from e
    if not isinstance(value, Mapping):
        raise ConfigError(f"{option} must be a JSON object, got {text!r}")
    return dict(value)
