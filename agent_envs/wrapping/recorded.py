"""Environments as files and other machines name them: data, which sets only what an environment lets a record set.

A record is a run's `run.json`, a stored episode, a row of a dataset or what a server's client asks for. Whatever makes
an environment of one reads it with `recorded_env`. docs/security.md describes what is data and what is code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym

from agent_envs.checks import listed, shown
from agent_envs.episodes.run_folder import read_settings
from agent_envs.errors import ConfigError, DataError, first_line
from agent_envs.registration import env_maker_of
from agent_envs.wrapping.specs import parse_wrapper, read_spec

_DATA_NAMES = ("generated", "official")  # any other data is a path
_LARGEST = 300_000  # a generated world of more takes more time and memory than a record may ask for
_PARTS: dict[str, tuple[type, str]] = {
    "env": (str, "an id"),
    "env_kwargs": (dict, "an object"),
    "wrappers": (list, "a list of specs"),
    "data": (str, "a name or path"),
    "split": (str, "a name"),
}


class RecordedEnv(NamedTuple):
    """An environment as a record names it; its parts are arguments of `run_episodes`."""

    env_id: str
    env_kwargs: dict[str, Any]
    wrappers: tuple[str, ...]
    """Wrapper specs, innermost first."""


def recorded_env(
    record: Mapping[str, Any],
    where: str,
    *,
    env_id: str = "",
    env_kwargs: Mapping[str, Any] = MappingProxyType({}),
    wrappers: Sequence[str] = (),
    trust: bool = False,
) -> RecordedEnv:
    """Return the environment that a record names, without making anything.

    Unless `trust` is true, a record may name environments that are registered in this process, data by the names
    "generated" and "official", and wrappers of this package. It sets the arguments that their classes list in
    `recorded_arguments`, and the step limit, to no number above 300,000; a wrapper without that attribute cannot be
    named. What the user gives replaces the record's, and needs no trust.

    Args:
        record: Has ``env`` and possibly ``env_kwargs``, ``wrappers``, ``data`` where the arguments have none, and
            ``split`` in place of the arguments' own.
        where: What the record is, for error messages.
        env_id: The environment that the user names instead of the record's.
        env_kwargs, wrappers: Arguments that the user gives, and wrapper specs instead of the record's.
        trust: Whether the user trusts the record as they trust code.

    Raises:
        DataError: A part has the wrong type.
        ConfigError: The record names something that only the user may, or a wrapper spec is malformed.

    >>> recorded_env({"env": "AgentR1/GSM8K-v0", "env_kwargs": {"data": "/etc/passwd"}}, "run.json")
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: run.json names '/etc/passwd' as the argument 'data' of AgentR1/GSM8K-v0, ...
    """
    present = {name: record[name] for name in _PARTS if record.get(name) is not None}
    parts: dict[str, Any] = {"env_kwargs": {}, "wrappers": [], **present}
    for name, (kind, what) in _PARTS.items():
        if name in parts and not isinstance(parts[name], kind):
            raise DataError(f"{where}: {name} must be {what}, got {shown(parts[name])}")
    if not env_id and "env" not in parts:
        raise DataError(f"{where} names no environment")
    specs = parts["wrappers"]
    if len(specs) > 100 or any(not isinstance(spec, str) for spec in specs):  # more are deeper than Python's stack
        raise DataError(f"{where}: wrappers must be at most 100 specs such as 'AsTool', got {shown(specs)}")
    data, split = ({name: parts[name]} if name in parts else {} for name in ("data", "split"))
    recorded = {**data, **parts["env_kwargs"], **split}
    named = env_id or parts["env"]
    if not trust:
        if not env_id and named not in gym.registry:
            raise _untrusted(where, named, "as its environment")
        _check_arguments({name: recorded[name] for name in recorded.keys() - env_kwargs}, named, where)
        for spec in () if wrappers else specs:
            module, _, arguments = read_spec(spec)
            wrapper = None if module else parse_wrapper(spec)[0]
            if not hasattr(wrapper, "recorded_arguments") or arguments.keys() - listed(wrapper, "recorded_arguments"):
                raise _untrusted(where, spec, "as a wrapper")
    return RecordedEnv(named, {**recorded, **env_kwargs}, tuple(wrappers or specs))


def run_settings(path: Path) -> dict[str, Any]:
    """Return the settings in the run.json beside a file of episodes or above its folder; none if there is none.

    The key "file" names it. A DataError says that it holds something else.
    """
    for file in (path.parent / "run.json", path.parent.parent / "run.json"):
        if settings := read_settings(file):
            return {**settings, "file": str(file)}
    return {}


def episode_env(
    episode: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    env_id: str = "",
    env_kwargs: Mapping[str, Any] = MappingProxyType({}),
    trust: bool = False,
) -> RecordedEnv:
    """Return the environment that an episode was played in, as its run's settings and the episode itself name it.

    The episode is as ``Episode.to_dict`` returns it, the settings are `run_settings` of its file; the other arguments,
    and what is raised, are those of `recorded_env`.
    """
    info = episode["reset_info"]
    source = str(info.get("source", "generated"))
    is_released = source == "official" or (source != "generated" and Path(source).exists())
    own = {"env": episode["env_id"], "data": source if is_released else None}
    record = {**own, **settings, "split": info.get("split")}  # a run may play several splits
    where = settings.get("file", f"episode {episode['episode_id']!r}")
    return recorded_env(record, where, env_id=env_id, env_kwargs=env_kwargs, trust=trust)


def _check_arguments(arguments: Mapping[str, Any], env_id: str, where: str) -> None:
    if not arguments:
        return
    try:
        declared = listed(env_maker_of(env_id), "recorded_arguments") | {"max_episode_steps"}  # which any of them has
    except (gym.error.Error, ImportError, AttributeError) as e:
        raise ConfigError(f"{env_id} cannot be made: {first_line(e)}") from e
    for name, value in sorted(arguments.items(), key=str):
        large = isinstance(value, int) and value > _LARGEST
        if name not in declared or large or (name == "data" and value not in _DATA_NAMES):
            raise _untrusted(where, value, f"as the argument {shown(name)} of {env_id}")


def _untrusted(where: str, named: Any, place: str) -> ConfigError:
    return ConfigError(
        f"{where} names {shown(named)} {place}, which a record may not set: give it yourself (--env, --env-kwargs, "
        f"--wrapper), or --trust (trust=True in Python) if you trust {where} as you trust a program"
    )
