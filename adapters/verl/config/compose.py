"""Presets made of parts, MODEL/TASK/ALGORITHM/HARDWARE: the published settings, and where and why ours differ.

    agentr1 train --preset qwen3-4b/alfworld/steppo/h100-8 --dry-run

The parts are YAML files in ``parts/``. The hardware may be left out; ``+lora`` behind a model adds low-rank adapters.
The published values are those of Agent-R1 (arXiv 2511.14460), StepPO (arXiv 2604.18401) and PaperScout. A part of a
task or an algorithm holds published values, or ``{released, ours, why}``; models and hardware say what was asked for,
with one ``why`` for all of it; ``machine`` is what nobody published.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from agent_envs.adapters.verl.config.presets import Difference, Preset
from agent_envs.errors import ConfigError, MissingExtraError, did_you_mean

__all__ = ["DEFAULT_HARDWARE", "KINDS", "compose_preset", "part_names"]

KINDS = ("model", "task", "algorithm", "hardware")
"""The parts of a preset's name, in order; each a folder of YAML files."""

DEFAULT_HARDWARE = "h100-4"
"""Hardware of a name of three parts; most of the published runs had four GPUs."""

_PARTS = Path(__file__).with_name("parts")
_FIELDS = frozenset(f.name for f in fields(Preset))


def part_names(kind: str) -> list[str]:
    """The parts there are of a kind.

    >>> "alfworld" in part_names("task")
    True
    """
    return sorted(path.stem for path in (_PARTS / kind).glob("*.yaml"))


def compose_preset(name: str) -> Preset:
    """The preset that a name such as "qwen3-4b/alfworld/steppo/h100-8" stands for.

    Raises:
        ConfigError: There is no such part, or their number is wrong.
        MissingExtraError: PyYAML is not installed.
    """
    words = name.split("/")
    if len(words) == len(KINDS) - 1:
        words.append(DEFAULT_HARDWARE)
    if len(words) != len(KINDS):
        raise ConfigError(
            f"a preset of parts is written MODEL/TASK/ALGORITHM or {'/'.join(KINDS).upper()}, got {name!r}"
        )
    model, task, algorithm, hardware = words
    settings = _Settings()
    settings.publish(_read_file(_PARTS / "base.yaml"))
    task_part, algorithm_part = _read("task", task), _read("algorithm", algorithm)
    settings.publish(task_part)
    settings.publish({"settings": task_part["by_family"][algorithm_part["family"]]})
    settings.publish(algorithm_part)
    settings.publish({"settings": task_part.get("by_algorithm", {}).get(algorithm, {})})
    for kind, word in (*(("model", word) for word in model.split("+")), ("hardware", hardware)):
        settings.ask_for(_read(kind, word))
    if "minimum" in algorithm_part:
        settings.at_least(algorithm_part["minimum"])
    ours = dict(settings.ours)
    ours["steps"] = max(1, task_part["epochs"] * task_part["train_tasks"] // ours["tasks_per_step"])
    values = {key: ours.pop(key) for key in list(ours) if key in _FIELDS}
    env_kwargs = {key.removeprefix("env."): ours.pop(key) for key in list(ours) if key.startswith("env.")}
    return Preset(
        name=name,
        cpu=False,
        env=task_part["env"],
        algo=algorithm,
        env_kwargs={task_part["env"]: env_kwargs},
        overrides=tuple(f"{key}={_hydra(value)}" for key, value in ours.items()),
        differences=tuple(settings.differences()),
        **values,
    )


@dataclass
class _Settings:
    """Settings under composition: by key what was published, what we take, and why they are not the same."""

    released: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def publish(self, part: Mapping[str, Any]) -> None:
        for key, value in part.get("settings", {}).items():
            differs = isinstance(value, Mapping)
            self.released[key] = value["released"] if differs else value
            self.ours[key] = value["ours"] if differs else value
            self.why[key] = value["why"] if differs else ""
        self.ours.update(part.get("machine", {}))

    def ask_for(self, part: Mapping[str, Any]) -> None:
        for key, value in part["settings"].items():
            self.ours[key] = value
            self.why[key] = part["why"]
        self.ours.update(part.get("machine", {}))

    def at_least(self, minimum: Mapping[str, Any]) -> None:
        for key, value in minimum.items():
            if key != "why" and self.ours[key] < value:
                self.ours[key] = value
                self.why[key] = minimum["why"]

    def differences(self) -> list[Difference]:
        return [
            Difference(key, self.released[key], self.ours[key], self.why[key])
            for key in self.released
            if self.released[key] != self.ours[key]
        ]


def _read(kind: str, name: str) -> dict[str, Any]:
    known = part_names(kind)
    if name not in known:
        raise ConfigError(f"unknown {kind} {name!r} in a preset.{did_you_mean(name, known)}")
    return _read_file(_PARTS / kind / f"{name}.yaml")


@functools.cache
def _read_file(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as e:
        raise MissingExtraError("pyyaml", extra="verl") from e
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _hydra(value: Any) -> str:
    return "null" if value is None else str(value)
