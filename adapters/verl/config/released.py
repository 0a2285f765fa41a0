"""Published settings beside a preset's own: what differs and why, and a run with exactly the published ones.

A preset's ``published`` lists what differs, with the published value and the reason. `PRESET/published` takes the
published values: the released run, mini-batches that count steps included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agent_envs.errors import ConfigError

EXACT = "/published"
"""The end of a preset's name that asks for the published values."""

_NAMED = ("model", "trainer.n_gpus_per_node", "trainer.nnodes")  # by the other parts of the preset's name


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting whose value is not the published one."""

    key: str
    """verl's name of it, ``env.ARGUMENT``, or a setting of the run."""
    published: Any
    """The published value; None where there was none."""
    ours: Any
    """The preset's value."""
    why: str
    """The reason."""


def differences(config: Any, env_kwargs: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the settings of a composed run whose values are not the published ones."""
    from omegaconf import OmegaConf

    def ours(key: str) -> Any:
        if key.startswith("env."):
            return env_kwargs.get(key.removeprefix("env."))
        return OmegaConf.select(config, key.removeprefix("+") if "." in key else f"run.{key}")

    return tuple(
        Difference(key, entry.value, ours(key), entry.get("why", "set on the command line"))
        for key, entry in config.published.items()
        if "value" in entry and entry.value != ours(key)
    )


def use_released(config: Any, preset: str, given: Collection[str]) -> None:
    """Set the published values of a composed preset, in place, but for those that are ``given`` on the command line."""
    from omegaconf import OmegaConf

    run = config.run
    if run.algo not in (run.released or ()):
        known = ", ".join(run.released or ()) or "none"
        raise ConfigError(f"preset {preset!r}: no such run was released; those of this task are {known}")
    published = {key: entry.value for key, entry in config.published.items() if "value" in entry}
    exact = {key for key, entry in config.published.items() if entry.get("exact", True)}
    for key, value in published.items():
        name = key.removeprefix("+")
        if key in _NAMED or key not in exact or name in given:
            continue
        if name.startswith("env."):
            OmegaConf.update(run.env_kwargs, f"{run.env}", {name.removeprefix("env."): value}, merge=True)
        else:
            OmegaConf.update(config, name if "." in name else f"run.{name}", value, force_add=True)
