"""What a run is: the command line, checked against the environment, and the verl settings that follow from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agent_envs.adapters.verl.config.presets import Preset, get_preset
from agent_envs.errors import ConfigError
from agent_envs.wrapping.specs import make_text_env

__all__ = [
    "Paths",
    "RunConfig",
    "Tasks",
    "build",
    "check_reset",
    "choose_tasks",
    "make_env",
]

# What the command itself decides: another value here would leave a run that cannot be finished or continued.
# The losses' weights are another matter than verl's means over rows, which would be read by nobody.
_WEIGHTING = "+agentr1.weighting (row, token or trajectory)"
_OWN_SETTINGS = {
    "actor_rollout_ref.actor.loss_agg_mode": _WEIGHTING,
    "algorithm.adv_estimator": "--algo",
    "critic.loss_agg_mode": _WEIGHTING,
    "data.train_files": "--data",
    "data.val_files": "--data",
    "trainer.default_local_dir": "--out",
    "trainer.resume_mode": "--out (the same one continues a run, another one starts anew)",
    "trainer.total_epochs": "--steps",
    "trainer.total_training_steps": "--steps",
}


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run as asked for, with every default filled in."""

    env: str
    algo: str
    preset: str
    steps: int
    data: str
    split: str
    env_kwargs: dict[str, Any]
    """What the environment is made with besides split and data."""
    demo_env_kwargs: dict[str, Any]
    """What the environment of the demonstrations, on generated tasks, is made with."""
    wrappers: tuple[str, ...]
    """Specs, innermost first; those of the preset are outermost."""
    out: Path
    model: str | None
    """A Hugging Face folder or name; None for a tiny model made on the spot."""
    seed: int
    warm_start: int
    """Supervised steps before training; 0 to skip."""
    demo_noise: float
    """Share of demonstrated calls that are wrong on purpose."""
    val_fraction: float
    """Share of the tasks held out where the data has no validation or test split."""
    overrides: tuple[str, ...] = ()
    """verl settings from the command line; they win over everything else."""

    def settings(self) -> dict[str, Any]:
        """All that must be equal for a run to be continued: everything but its length and its place."""
        values = asdict(self)
        del values["steps"], values["out"]
        return json.loads(json.dumps(values))


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a run keeps things, under its --out folder."""

    out: Path

    @property
    def run(self) -> Path:
        """The run's settings."""
        return self.out / "run.json"

    @property
    def model(self) -> Path:
        """The tiny model after its warm start."""
        return self.out / "model"

    @property
    def data(self) -> Path:
        """Rows for verl's data loader."""
        return self.out / "data"

    @property
    def train_rows(self) -> Path:
        """Rows of the training tasks."""
        return self.data / "train.parquet"

    @property
    def validation_rows(self) -> Path:
        """Rows of the held-out tasks."""
        return self.data / "validation.parquet"

    @property
    def episodes(self) -> Path:
        """Episodes, one file per step and phase."""
        return self.out / "episodes"

    @property
    def checkpoints(self) -> Path:
        """verl's checkpoints."""
        return self.out / "checkpoints"

    @property
    def metrics(self) -> Path:
        """One line per step."""
        return self.out / "metrics.jsonl"

    @property
    def curve(self) -> Path:
        """Success and reward over steps."""
        return self.out / "curve.png"

    @property
    def log(self) -> Path:
        """All that verl and Ray print."""
        return self.out / "train.log"

    @property
    def starts(self) -> Path:
        """verl's own metrics, one file per start."""
        return self.out / "starts"


@dataclass(frozen=True, slots=True)
class Tasks:
    """Which tasks are trained on and which are held out."""

    train_split: str
    train: tuple[int, ...]
    """Indices to train on, in order; with repeats where the split is smaller than the run."""
    train_pool: tuple[int, ...] | None
    """Indices that training may use; None for the whole split."""
    validation_split: str
    validation: tuple[int, ...]
    """Held-out indices."""
    unseen: tuple[str, tuple[int, ...]] | None = None
    """A second held-out split with its indices, where the data tells seen from unseen."""


def make_env(config: RunConfig, split: str | None = None) -> gym.Env[str, str]:
    """Make the run's environment in its wrappers."""
    kwargs = {**config.env_kwargs, "split": split or config.split, "data": config.data}
    return make_text_env(config.env, kwargs, config.wrappers)


def check_reset(env: gym.Env[Any, str]) -> None:
    """Begin one episode, so that wrappers that refuse every one are told before training.

    Raises:
        AgentEnvsError: What a wrapper says of the task: a budget without room, a key that info does not have.
    """
    env.reset(options={"index": 0})


def choose_tasks(config: RunConfig, preset: Preset, *, tasks_per_step: int | None = None) -> Tasks:
    """Draw the run's tasks. The held-out ones are the same for every seed, so that runs can be compared.

    Held out are "valid_seen" and "valid_unseen", half of the tasks from each, where the data has both; else the split
    "validation" where there is one, else "test"; where the data has none (a single file), or trains on the one it has,
    `val_fraction` of the split.

    Raises:
        ConfigError: Unknown split, or too few tasks to hold any out.
    """
    env = make_env(config)
    check_reset(env)
    count, split = env.unwrapped.num_tasks, env.unwrapped.tasks.split  # type: ignore[attr-defined]
    env.close()
    held_out = [] if split == "all" else _held_out_splits(config, split)
    pool: np.ndarray | None
    if held_out:
        validation_split, validation_count = held_out[0]
        pool = None
        validation = np.random.default_rng(0).permutation(validation_count)
    else:
        order = np.random.default_rng(0).permutation(count)
        kept = round(count * config.val_fraction)
        if not 0 < kept < count:
            raise ConfigError(f"--val-fraction {config.val_fraction} of {count} tasks leaves none on one side")
        validation_split, validation, pool = split, order[:kept], np.sort(order[kept:])
    unseen, more = None, 0
    if len(held_out) > 1:
        more = preset.validation_tasks // 2
        name, unseen_count = held_out[1]
        unseen = name, tuple(np.random.default_rng(0).permutation(unseen_count)[:more].tolist())
    wanted = config.steps * (tasks_per_step or preset.tasks_per_step)
    return Tasks(
        train_split=split,
        train=tuple(_passes(np.arange(count) if pool is None else pool, wanted, config.seed)),
        train_pool=None if pool is None else tuple(pool.tolist()),
        validation_split=validation_split,
        validation=tuple(validation[: preset.validation_tasks - more].tolist()),
        unseen=unseen,
    )


_SEEN = {"validation": "valid_seen", "test": "valid_unseen"}  # what these stand for, where the data has the latter


def _held_out_splits(config: RunConfig, train_split: str) -> list[tuple[str, int]]:
    """The splits to hold out, with their numbers of tasks."""
    seen = [(split, _count(config, split)) for split in _SEEN.values()]
    if any(count is not None for _, count in seen):
        found, train_split, most = seen, _SEEN.get(train_split, train_split), 2
    else:
        found, most = [(split, _count(config, split)) for split in _SEEN], 1
    return [(split, count) for split, count in found if count is not None and split != train_split][:most]


def _count(config: RunConfig, split: str) -> int | None:
    """The number of tasks of a split, None where there is no such split."""
    try:
        env = make_env(config, split)
        count = env.unwrapped.num_tasks  # type: ignore[attr-defined]
    except ConfigError:
        return None
    env.close()
    return count


def _passes(pool: np.ndarray, wanted: int, seed: int) -> list[int]:
    """`wanted` entries of `pool`: shuffled passes, one after another. A longer run begins like a shorter one."""
    rng = np.random.default_rng(seed)
    drawn: list[int] = []
    while len(drawn) < wanted:
        drawn.extend(pool[rng.permutation(len(pool))].tolist())
    return drawn[:wanted]


def build(
    *,
    env: str | None,
    algo: str | None,
    preset: str,
    steps: int | None,
    data: str | None,
    split: str,
    env_kwargs: str | None,
    wrappers: Sequence[str],
    out: str | None,
    model: str | None,
    seed: int,
    warm_start: int | None,
    demo_noise: float | None,
    val_fraction: float,
    overrides: Sequence[str],
) -> tuple[RunConfig, Preset]:
    """Check the command line and fill in the preset's defaults. Nothing is written and no model is read.

    Raises:
        ConfigError: A value that does not exist or does not fit, with what there is.
    """
    from agent_envs.adapters.verl.config.algorithms import get_algorithm

    chosen = get_preset(preset)
    env = _agreed("--env", env, chosen.env, preset)
    if env is None:
        raise ConfigError(f"preset {preset!r} goes with any environment: add --env ID")
    algo = _agreed("--algo", algo, chosen.algo, preset) or "grpo"
    get_algorithm(algo)
    model = model or chosen.model
    data = data or chosen.data
    given = _json_object(env_kwargs)
    preset_kwargs = chosen.env_kwargs.get(env, {})
    demo_kwargs = {**preset_kwargs, **chosen.generated_env_kwargs.get(env, {}), **given}
    kwargs = demo_kwargs if data == "generated" else {**preset_kwargs, **given}
    for name, value, least in (("--steps", steps, 1), ("--warm-start", warm_start, 0), ("--seed", seed, 0)):
        if value is not None and value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    for name, share in (("--demo-noise", demo_noise), ("--val-fraction", val_fraction)):
        if share is not None and not 0 <= share <= 1:
            raise ConfigError(f"{name} is a share between 0 and 1, got {share}")
    if model is None and not chosen.makes_model:
        raise ConfigError(f"preset {preset!r} trains a given model: add --model FOLDER")
    if model is not None and warm_start:
        raise ConfigError("--warm-start is for the tiny model made where --model is not given; leave one of them out")
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or not key.strip("+~ "):
            raise ConfigError(f"expected a verl setting as key=value, got {override!r}")
        if key.strip("+~ ") in _OWN_SETTINGS:
            raise ConfigError(f"{key.strip('+~ ')} follows from {_OWN_SETTINGS[key.strip('+~ ')]}; set that instead")
    config = RunConfig(
        env=env,
        algo=algo,
        preset=preset,
        steps=chosen.steps if steps is None else steps,
        # Ray's processes start elsewhere: a path must not depend on the working directory.
        data=data if data in ("generated", "official") else str(Path(data).resolve()),
        split=split,
        env_kwargs=kwargs,
        demo_env_kwargs=demo_kwargs,
        wrappers=(*wrappers, *chosen.wrappers),  # rewards go above what decides which steps there are
        out=Path(out or f"runs/{env.rpartition('/')[2]}-{algo}-seed{seed}"),
        model=str(Path(model).resolve()) if model is not None and Path(model).is_dir() else model,
        seed=seed,
        warm_start=(chosen.warm_start if warm_start is None else warm_start) if model is None else 0,
        demo_noise=chosen.demo_noise if demo_noise is None else demo_noise,
        val_fraction=val_fraction,
        overrides=tuple(overrides),
    )
    return config, chosen


def _agreed(option: str, given: str | None, preset_value: str | None, preset: str) -> str | None:
    """An option's value or the preset's, which must not say different things."""
    if given is not None and preset_value is not None and given != preset_value:
        raise ConfigError(
            f"preset {preset!r} is for {preset_value!r}, and {option} says {given!r}; leave one of them out"
        )
    return given if given is not None else preset_value


def _json_object(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"--env-kwargs is not valid JSON: {e}: {text!r}") from e
    if not isinstance(value, dict):
        raise ConfigError(f"--env-kwargs must be a JSON object, got {text!r}")
    for name in ("split", "data"):
        if name in value:
            raise ConfigError(f"--env-kwargs holds {name!r}; use --{name}")
    return value
