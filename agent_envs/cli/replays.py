"""Stored episodes on a command line: which one, and the environment that it was played in."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_envs.checks import integer
from agent_envs.cli.arguments import EnvChoice, chosen_env
from agent_envs.episodes.files import episode_paths
from agent_envs.episodes.record import Episode
from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines
from agent_envs.pictures.folder import PictureFolder
from agent_envs.wrapping.recorded import episode_env

__all__ = ["episode_choice", "given_env", "stored_episode"]


def given_env(arguments: argparse.Namespace) -> EnvChoice:
    """Return what the command line says of the environment; the id is "" if it is to be the recorded one."""
    if not arguments.env:
        arguments.env = ""
    return chosen_env(arguments)


def episode_choice(given: EnvChoice, settings: Mapping[str, Any], episode: Episode, *, trust: bool) -> EnvChoice:
    """Merge the given choice with the run's settings and with what the episode says of itself, in this order.

    Args:
        given: What `given_env` returned.
        settings: What `run_settings` returned for the episode's file.
        episode: The episode.
        trust: Whether the record may set anything (`recorded_env`).
    """
    of = {"env_id": episode.env_id, "episode_id": episode.episode_id, "reset_info": episode.reset_info}
    recorded = episode_env(of, settings, env_id=given.env_id, env_kwargs=given.env_kwargs, trust=trust)
    return EnvChoice(recorded.env_id, recorded.env_kwargs, (*recorded.wrappers, *given.wrappers))


def stored_episode(source: str, line: int | None) -> tuple[Episode, Path]:
    """Return the episode in a line of a file, and the file.

    Args:
        source: A file of episodes, or a folder with one.
        line: The line, from 1; None takes the only episode.

    Raises:
        ConfigError: There are several files or episodes and no line, or there is no such line.
        DataError: The line is not an episode.
    """
    paths = episode_paths([source])
    if len(paths) > 1:
        raise ConfigError(f"--replay {source} has {len(paths)} files of episodes, such as {paths[0]}; name one")
    if line is not None:
        integer("--line", line, minimum=1)
    found: tuple[int, dict[str, Any]] | None = None
    for number, row in JSONLines(paths[0]).numbered():
        if line is None and found is not None:
            raise ConfigError(f"{paths[0]} has several episodes; choose one with --line N")
        if line in (None, number):
            found = number, row
            if line is not None:
                break
    if found is None:
        raise ConfigError(f"{paths[0]} has no episode" + ("" if line is None else f" in line {line}"))
    try:
        return Episode.from_dict(found[1], PictureFolder(paths[0])), paths[0]
    except ValueError as e:
        raise DataError(f"{paths[0]}, line {found[0]}: not an episode: {e}") from e
