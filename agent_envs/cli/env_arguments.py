"""The arguments that choose an environment, the same in every command.

parser: add_env_arguments(parser)
run:    env = chosen_env(arguments).make()
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from agent_envs.checks import json_object
from agent_envs.errors import ConfigError
from agent_envs.wrapping.specs import make_text_env, parse_wrapper

__all__ = ["EnvChoice", "add_env_arguments", "chosen_env"]


@dataclass(frozen=True, slots=True)
class EnvChoice:
    """An environment as a command line names it; its three parts are arguments of `run_episodes`."""

    env_id: str
    """What `gymnasium.make` takes: "Id" or "module:Id"."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment, among them `split` and `data` if they were given."""
    wrappers: tuple[str, ...] = ()
    """Wrapper specs, innermost first."""

    def make(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """Make the environment in its wrappers.

        Args:
            kwargs: Further arguments, such as `render_mode`; they take precedence.

        Raises:
            ConfigError: There is no such environment, it rejects the arguments, or it is not a text environment.
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
        env: The default of `--env` as `--help` shows it; None makes the option required.
        split: The default of `--split` as `--help` shows it.
        data: The default of `--data` as `--help` shows it.
    """
    add = parser.add_argument_group("environment").add_argument
    default = "" if env is None else f" (default: {env})"
    add(
        "--env",
        metavar="ID",
        required=env is None,
        help=f"an environment, such as AgentR1/GSM8KTool-v0, or your own as module:ID{default}",
    )
    add("--split", help=f"split to take tasks from (default: {split})")
    add("--data", help=f"generated, official or a path to released files (default: {data})")
    add("--env-kwargs", metavar="JSON", help="further arguments of the environment, as a JSON object")
    add("--wrapper", action="append", default=[], metavar="SPEC", help='"Name(key=value)"; may be repeated')


def chosen_env(arguments: argparse.Namespace) -> EnvChoice:
    """Return the environment that parsed arguments name, without making it.

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
