"""Several environments in one run: what ``--env A=0.7 --env B=0.3`` and their ``--env-kwargs`` say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from agent_envs.checks import number
from agent_envs.errors import ConfigError


def read_shares(given: str | Sequence[str] | None) -> dict[str, float]:
    """Return the weights of the environments that ``--env`` names, which sum up to 1.

    >>> read_shares(["A-v0=3", "B-v0=1"])
    {'A-v0': 0.75, 'B-v0': 0.25}
    """
    named = [given] if isinstance(given, str) else list(given or ())
    weights: dict[str, float] = {}
    for each in named:
        name, equals, weight = each.rpartition("=") if "=" in each else (each, "", "1")
        if len(named) > 1 and not equals:
            raise ConfigError(f"several environments need weights: --env {name}=0.5, got --env {name}")
        if name in weights:
            raise ConfigError(f"--env {name} is given twice")
        try:
            weights[name] = float(number(f"the weight of --env {name}", float(weight), above=0))
        except ValueError as e:
            raise ConfigError(f"the weight of --env {name} must be a number above 0, got {weight!r}") from e
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def registered_id(name: str) -> str:
    """Return the id in a name that may have the module that registers it, as episodes record it."""
    return name.rpartition(":")[2]


def short_names(envs: Iterable[str]) -> list[str]:
    """Return the names of environments in metrics: their ids without namespace, with it where they are the same.

    >>> short_names(["AgentR1/GSM8K-v0", "mine:A/X-v0", "B/X-v0"])
    ['GSM8K-v0', 'A/X-v0', 'B/X-v0']
    """
    ids = [registered_id(env) for env in envs]
    count = Counter(env.rpartition("/")[2] for env in {*ids})
    return [short if count[short := env.rpartition("/")[2]] == 1 else env for env in ids]


def env_kwargs_by_env(found: Mapping[str, Any], envs: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the arguments that ``--env-kwargs`` gives, of each environment by its id, of the only one under ``""``."""
    if len(envs) < 2:
        found = {"": dict(found)}
    elif strange := [name for name, value in found.items() if name not in envs or not isinstance(value, dict)]:
        raise ConfigError(f"with several environments --env-kwargs is {{ID: {{NAME: VALUE}}}}; got {strange[0]!r}")
    for name in ("split", "data"):
        if any(name in arguments for arguments in found.values()):
            raise ConfigError(f"--env-kwargs contains {name!r}; use --{name}")
    return dict(found)
