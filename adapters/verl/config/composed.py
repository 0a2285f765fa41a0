"""A run as asked for, and with all of its settings."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from agent_envs.wrapping.specs import takes_argument


@dataclass(frozen=True, slots=True)
class EnvShare:
    """One of the environments that a run plays."""

    env: str
    weight: float
    """Its tasks over those of all, which sum up to 1."""
    env_kwargs: dict[str, Any]
    wrappers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run as asked for, with every default filled in."""

    env: str
    algo: str
    """Name of the algorithm, or ``module:name`` of an estimator."""
    preset: str
    steps: int
    data: str
    """``generated``, ``official`` or an absolute path."""
    split: str
    env_kwargs: dict[str, Any]
    """Arguments of the environment besides split and data."""
    demo_env_kwargs: dict[str, Any]
    """Arguments of the environment that demonstrations are played in, on generated tasks."""
    wrappers: tuple[str, ...]
    """Specs, innermost first; those of the preset are outermost."""
    out: Path
    """Folder of the run."""
    model: str | None
    """A Hugging Face folder or name; None for tiny-base, or tiny-vision where there are pictures."""
    seed: int
    """Of tasks, demonstrations, model and sampling."""
    warm_start: int
    """Supervised steps before training; 0 to skip."""
    demo_noise: float
    """Share of demonstrated calls that are wrong on purpose."""
    val_fraction: float
    """Share of the tasks held out where the data has no validation or test split."""
    validation: tuple[str, ...] | None = None
    """Splits to hold out, those of them that the data has; None for what `choose_tasks` chooses."""
    mixed: tuple[EnvShare, ...] = ()
    """All environments of the run if there are several; ``env`` is the first of them."""
    train_files: tuple[str, ...] = ()
    """Files of rows to train on in place of the data's own."""
    val_files: tuple[str, ...] = ()
    """Files of rows to validate on."""
    overrides: tuple[str, ...] = ()
    """verl's settings and ``agentr1``'s from the command line; they win over everything else."""

    def parts(self) -> tuple[RunConfig, ...]:
        """Return the run with each of its environments alone."""
        return tuple(
            replace(self, env=each.env, env_kwargs=each.env_kwargs, wrappers=each.wrappers, mixed=())
            for each in self.mixed
        ) or (self,)

    def env_kwargs_of(self, split: str) -> dict[str, Any]:
        """Return the arguments of the environment for a split, which one without splits is not told."""
        return {**self.env_kwargs, **({"split": split, "data": self.data} if takes_argument(self.env, "split") else {})}

    def settings(self) -> dict[str, Any]:
        """Everything that must be the same for a run to be resumed: all but its length and its place."""
        return {name: value for name, value in asdict(self).items() if name not in ("steps", "out")}


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting whose value is not the released one."""

    key: str
    """verl's name of it, ``env.ARGUMENT``, or a setting of the run."""
    published: Any
    """The released value; None where there was none."""
    ours: Any
    """The preset's value."""
    why: str
    """The reason."""


@dataclass(frozen=True)
class Composed:
    """A run with all its settings, checked."""

    run: RunConfig
    released: str | None
    """The release whose settings the preset follows; None for a preset of no released task."""
    differences: tuple[Difference, ...]
    """Where it differs from these settings."""
    remaining: dict[str, str] | None
    """What a released run does otherwise than it was released, besides settings, by id; None for other runs."""
    needed: dict[str, str]
    """What of this must be set before it is run."""
    unresolved: Any
    """All settings, the run's own among them, with their references."""
    groups: tuple[str, ...]
    """The files that they are composed of, as Hydra's groups."""
    origins: dict[str, str]
    """What set those by name that no file did: the command line, a release, or engines.py."""

    @cached_property
    def resolved(self) -> Any:
        """All settings, every reference resolved."""
        config = copy.deepcopy(self.unresolved)
        OmegaConf.resolve(config)
        OmegaConf.set_struct(config, False)
        return config

    def verl(self) -> Any:
        """Return verl's configuration, a copy."""
        config = copy.deepcopy(self.resolved)
        del config["run"], config["kept"], config["named"]
        return config

    def annotated(self, agentr1: Mapping[str, Any], files: Sequence[str]) -> Iterator[str]:
        """Yield all settings as lines of YAML, ``agentr1`` with its defaults: those of the run, ours, then verl's.

        Behind what is no default is what set it: the last of ``files`` and the reference there, or ``origins``.
        """
        settings: Any = OmegaConf.to_container(self.resolved)
        own = {"run": {k: v for k, v in settings["run"].items() if not isinstance(v, dict)}, "agentr1": agentr1}
        others = {name: part for name, part in settings.items() if name not in (*own, "kept", "named")}
        now, origins = dict(flat(OmegaConf.to_container(self.unresolved))), dict[str, str]()
        for file in files:
            values = dict(flat(OmegaConf.to_container(OmegaConf.load(Path(__file__).parent / file))))
            env = f"run.for_env.{self.run.env}."
            values |= {f"run.{name.removeprefix(env)}": value for name, value in values.items() if name.startswith(env)}
            for name, value in values.items():
                said = f"{file}: {value}" if "${" in str(value) else file
                origins[name] = said if now.get(name) == value else "compose.py"
        return _lines(own | others, origins | self.origins)


def flat(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a section and of those in it, by name."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lines(values: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "", indent: str = "") -> Iterator[str]:
    for name, value in values.items():
        nested = value if isinstance(value, Mapping) else {}
        text = json.dumps(value, default=OmegaConf.to_container)  # YAML in one line, whatever a string holds
        text = yaml.safe_dump(value).split()[0] if isinstance(value, float) else text  # 1e-06 as 1.0e-06
        origin = origins.get(f"{prefix}{name}")
        yield f"{indent}{name}:{'' if nested else f' {text}'}{f'  # {origin}' if origin else ''}"
        yield from _lines(nested, origins, f"{prefix}{name}.", f"{indent}  ")
