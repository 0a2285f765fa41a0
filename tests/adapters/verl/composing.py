"""A composed run with the settings that most tests share; `conftest.py` makes this importable."""

from __future__ import annotations

import copy

import yaml
from omegaconf import DictConfig, OmegaConf

from agent_envs.adapters.verl.config.compose import Composed, compose_run

ENV = "AgentR1/GSM8KTool-v0"


def composed(*overrides: str, preset: str = "cpu-tiny", **changes: object) -> Composed:
    """A run of a preset, with some of `agentr1 train`'s options and some of verl's settings."""
    options: dict[str, object] = dict.fromkeys(("algo", "steps", "data", "env_kwargs", "warm_start", "demo_noise"))
    options |= {"env": ENV if preset == "cpu-tiny" else None, "model": None, "out": None, "split": "train"}
    options |= {"wrappers": [], "seed": 0, "val_fraction": 0.1, **changes}
    return compose_run(preset=preset, overrides=list(overrides), **options)  # type: ignore[arg-type]


def changed(config: DictConfig, *settings: str) -> DictConfig:
    """A copy of a composed configuration with some settings, which saves composing another."""
    config = copy.deepcopy(config)
    for setting in settings:
        name, _, value = setting.partition("=")
        OmegaConf.update(config, name, yaml.safe_load(value), force_add=True)
    return config
