"""Environments as files and other machines name them: data, which runs no code until the user trusts it.

A record is a run's `run.json`, a stored episode or a row of a dataset. Whatever makes an environment of one reads it
with `recorded_env`. docs/security.md describes what is data and what is code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from agent_envs.checks import shown
from agent_envs.episodes.run_folder import read_settings
from agent_envs.errors import ConfigError, DataError
from agent_envs.registration import CODE_IDS
from agent_envs.wrapping.specs import read_spec, wrapper_names

__all__ = ["RecordedEnv", "episode_env", "recorded_env", "run_settings"]

# What an argument names by a word, with options behind a colon or without: services, and recordings of them.
_SERVICES = frozenset({"arxiv", "classify", "http", "https", "judge", "openai", "record", "replay", "semanticscholar"})
_WRITERS = frozenset({"RecordEpisodes"})
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


def recorded_env(record: Mapping[str, Any], where: str, *, env_id: str = "", trust: bool = False) -> RecordedEnv:
    """Return the environment that a record names, without importing or making anything.

    Unless `trust` is true, a record may name only environments that are registered in this process and wrappers of
    this package that write no files, with arguments that are JSON data and refer to no code (``module:name``), address
    or service. Paths of files to read are data. An environment whose arguments name a program is code too.

    Args:
        record: Has ``env`` and possibly ``env_kwargs``, ``wrappers``, ``data`` where the arguments have none, and
            ``split`` in place of the arguments' own.
        where: What the record is, for error messages.
        env_id: The environment that the user names instead of the record's.
        trust: Whether the user trusts the record as they trust code.

    Raises:
        DataError: A part has the wrong type.
        ConfigError: The record names something that only a trusted one may, or a wrapper spec is malformed.

    >>> recorded_env({"env": "AgentR1/GSM8K-v0", "wrappers": ["Augment(fn='os:system')"]}, "run.json")
    Traceback (most recent call last):
        ...
    agent_envs.errors.ConfigError: run.json names 'os:system' in its wrapper Augment, ...
    """
    given: dict[str, Any] = {"env_kwargs": {}, "wrappers": []}
    given |= {name: record[name] for name in _PARTS if record.get(name) is not None}
    if env_id:
        given["env"] = env_id
    for name, (kind, what) in _PARTS.items():
        if name in given and not isinstance(given[name], kind):
            raise DataError(f"{where}: {name} must be {what}, got {shown(given[name])}")
    if "env" not in given:
        raise DataError(f"{where} names no environment")
    named, wrappers = given["env"], given["wrappers"]
    if any(not isinstance(spec, str) for spec in wrappers):
        raise DataError(f"{where}: wrappers must be specs such as 'FormatReward(weight=0.1)', got {shown(wrappers)}")
    data, split = ({name: given[name]} if name in given else {} for name in ("data", "split"))
    kwargs = {**data, **given["env_kwargs"], **split}
    if not trust:
        if not env_id and (named not in gym.registry or named in CODE_IDS):
            raise _untrusted(where, named, "as its environment")
        if env_id.rpartition(":")[2] in CODE_IDS and (more := sorted(set(kwargs) - {"data", "split"})):
            raise _untrusted(where, ", ".join(more), f"as arguments of {env_id}, which runs what they name")
        _check_values(kwargs, where, "in env_kwargs")
        for spec in wrappers:
            module, wrapper, arguments = read_spec(spec)
            if module or wrapper not in wrapper_names() or wrapper in _WRITERS:
                raise _untrusted(where, spec, "as a wrapper")
            _check_values(arguments, where, f"in its wrapper {wrapper}")
    return RecordedEnv(named, kwargs, tuple(wrappers))


def run_settings(path: Path) -> dict[str, Any]:
    """Return the settings in the run.json beside a file of episodes or above its folder; none if there is none.

    The key "file" names it. A DataError says that it holds something else.
    """
    for file in (path.parent / "run.json", path.parent.parent / "run.json"):
        if settings := read_settings(file):
            return {**settings, "file": str(file)}
    return {}


def episode_env(
    episode: Mapping[str, Any], settings: Mapping[str, Any], *, env_id: str = "", trust: bool = False
) -> RecordedEnv:
    """Return the environment that an episode was played in, as its run's settings and the episode itself name it.

    Args:
        episode: The episode as ``Episode.to_dict`` returns it.
        settings: What `run_settings` returned for its file.
        env_id, trust: As for `recorded_env`, which also says what is raised.
    """
    info = episode["reset_info"]
    source = str(info.get("source", "generated"))
    found = source == "official" or (source != "generated" and Path(source).exists())
    own = {"env": episode["env_id"], "data": source if found else None}
    record = {**own, **settings, "split": info.get("split")}  # a run may play several splits
    where = settings.get("file", f"episode {episode['episode_id']!r}")
    return recorded_env(record, where, env_id=env_id, trust=trust)


def _check_values(arguments: Mapping[str, Any], where: str, place: str) -> None:
    for value in _leaves(arguments):
        if isinstance(value, str):
            if _refers(value) or value.rpartition(":")[2] in CODE_IDS:
                raise _untrusted(where, value, place)
        elif value is not None and not isinstance(value, (bool, int, float)):
            raise DataError(f"{where} has {shown(value)} {place}, which is no JSON value")


def _refers(text: str) -> bool:
    """Return whether a text may name a function, an address or a service.

    >>> [_refers(text) for text in ("os:system", "http://host", "judge: model", "arxiv")]
    [True, True, True, True]
    >>> [_refers(text) for text in ("train", "Remember: you can look back.", "C:/data", "/runs/9:30/rows.jsonl")]
    [False, False, False, False]
    """
    name, _, rest = text.strip().partition(":")
    if name.strip() in _SERVICES:
        return True
    drive = len(name) == 1 and rest.startswith(("/", "\\"))
    path = drive or "/" in name or "\\" in name
    return bool(name and rest) and not path and not any(map(str.isspace, name + rest[0]))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield what is in nested lists and mappings, keys included, however deep they are."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            waiting += value
        else:
            yield value


def _untrusted(where: str, named: str, place: str) -> ConfigError:
    return ConfigError(
        f"{where} names {shown(named)} {place}, but without trust a record may name only known environments and "
        "wrappers with plain data: no code (module:name), address, service or file to write; if you trust it as you "
        "trust a program, give --trust (trust=True in Python)"
    )
