"""Which level of an environment each task of an iteration is from: an argument of it that takes several values.

``learnable`` is Thompson sampling for what can be learned: the success on a level has a Beta posterior over the last
iterations, older ones counting less; each task takes the level whose drawn success is nearest to one half, where the
episodes of a group differ most. Everything is drawn from the seed, the iteration's number and the metrics of those
before it, so a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_envs.checks import choice, shown
from agent_envs.errors import ConfigError

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
        """Return the level of each of an iteration's tasks, in the order of the levels.

        Args:
            count: Tasks.
            seed: Of the run.
            number: Of the iteration, from 1.
            steps: Iterations of the run.
            records: The metrics of those before, with ``env/NAME/episodes`` and ``/success`` of the levels.
            refill: Its further rounds before.
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
