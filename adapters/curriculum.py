"""Which environment and which level each task of an iteration is from.

Several environments in one run are what ``--env A=0.7 --env B=0.3`` and their ``--env-kwargs`` say. Levels are an
argument of one environment that takes several values. ``learnable`` is Thompson sampling for what can be learned: the
success on a level has a Beta posterior over the last iterations, older ones counting less; each task takes the level
whose drawn success is nearest to one half, where the episodes of a group differ most. Everything is drawn from the
seed, the iteration's number and the metrics of those before it, so a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.checks import choice, number, shown
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


KINDS = ("uniform", "fixed", "learnable")
"""All levels alike; one after the other, each for as many iterations; those of which success is near one half."""
_KEPT = 0.8  # how much an iteration counts, beside the one after it


def number_of_round(number: int, refill: int) -> int:
    """Return what a round of an iteration is drawn by: its number, and for further rounds one that no other has."""
    return number + 1_000_000 * refill


@dataclass(frozen=True)
class Curriculum:
    """Levels, and how they are chosen.

    >>> Curriculum({"level": [1, 2, 3]}, "fixed").draw(4, seed=0, number=2, steps=3, records=[])
    [1, 1, 1, 1]
    """

    levels: Mapping[str, Sequence[Any]]
    """The values of an argument of the environment, by its name."""
    kind: str = "uniform"
    """One of `KINDS`."""

    def __post_init__(self) -> None:
        choice("curriculum", self.kind, KINDS)
        if {"data", "split"} & {*self.levels}:
            raise ConfigError("name the splits and the data with options of their own, not in levels")
        values = [*self.levels.values()]
        if len(values) != 1 or not isinstance(values[0], list) or not 2 <= len(values[0]) == len({*self.names}):
            raise ConfigError(
                'levels are several different values of one argument, such as {"level": [1, 2, 4]}, '
                f"got {shown(self.levels)}"
            )

    @property
    def names(self) -> list[str]:
        """The levels as they are named in metrics, ``level/2``."""
        return [f"{name}/{value}" for name, values in self.levels.items() for value in values]

    @property
    def env_kwargs(self) -> list[dict[str, Any]]:
        """The argument of each level."""
        return [{name: value} for name, values in self.levels.items() for value in values]

    def draw(
        self, count: int, *, seed: int, number: int, steps: int, records: Sequence[Mapping[str, Any]], refill: int = 0
    ) -> list[int]:
        """Return the level of each of so many tasks of an iteration, in the order of the levels.

        Args:
            seed, steps: Of the run: its seed and its iterations.
            number, refill: Of the iteration: its number, from 1, and its further rounds before.
            records: The metrics of those before, with ``env/NAME/episodes`` and ``/success`` of the levels.
        """
        names, rng = self.names, np.random.default_rng([seed, number_of_round(number, refill), 1])
        if self.kind == "fixed":
            return [min((number - 1) * len(names) // steps, len(names) - 1)] * count
        if self.kind == "uniform":
            return sorted(rng.integers(len(names), size=count).tolist())
        tried = np.zeros((len(names), 2))  # solved and not
        for record in records:
            if record["step"]:
                tried *= _KEPT
                for i, name in enumerate(names):
                    episodes = record.get(f"env/{name}/episodes", 0)
                    solved = episodes * (record.get(f"env/{name}/success") or 0.0)
                    tried[i] += solved, episodes - solved
        success = rng.beta(1.0 + tried[:, 0], 1.0 + tried[:, 1], size=(count, len(names)))
        return sorted(np.abs(success - 0.5).argmin(axis=1).tolist())
