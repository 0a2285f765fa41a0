"""The environment and the limits of a run: what `--run` and `--checkpoint` take from its run.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.checks import integer
from agent_envs.datasets.data_dir import expanded
from agent_envs.episodes.run_folder import read_settings
from agent_envs.errors import ConfigError
from agent_envs.wrapping.recorded import recorded_env

__all__ = ["response_limit", "with_run"]

_INSIDE = ("checkpoints", "actor", "huggingface")  # folders of a checkpoint, beneath the run's own


def with_run(
    run: str, env_id: str | None, kwargs: Mapping[str, Any], wrappers: Sequence[str], *, trust: bool, needed: bool
) -> tuple[str | None, dict[str, Any], tuple[str, ...]]:
    """Return an environment as the command line and a run name it: what was given wins.

    What is taken from the run, and where the command line differs, is said on standard error. Another environment than
    the run's has none of its arguments and wrappers.

    Args:
        run: A run's folder, or a checkpoint in it.
        env_id, kwargs, wrappers: What was given.
        trust: Whether the run may set anything.
        needed: Whether a folder without a run.json is an error.

    Raises:
        ConfigError: There is no run.json, or it sets what only the user may.
    """
    record, where = _record(Path(run))
    if "env" not in record:
        if needed:
            raise ConfigError(f"--run {run}: there is no run.json; give the --out of agentr1 train or agentr1 eval")
        return env_id, dict(kwargs), tuple(wrappers)
    if env_id not in (None, record["env"]):
        _say(f"--env is {env_id}, in {where} {record['env']}: its arguments and wrappers are left out")
        return env_id, dict(kwargs), tuple(wrappers)
    recorded = recorded_env(record, where, env_kwargs=kwargs, wrappers=wrappers, trust=trust)
    parts = [json.dumps(recorded.env_kwargs)] if recorded.env_kwargs else []
    _say(f"from {where}: " + ", ".join([recorded.env_id, *parts, *recorded.wrappers]))
    own = {**record, **(record.get("env_kwargs") or {})}
    for name, value in kwargs.items():
        if name in own and own[name] != value:
            _say(f"{name} is {value!r}, in the run {own[name]!r}")
    if wrappers and [*wrappers] != (own.get("wrappers") or []):
        _say(f"wrappers are {', '.join(wrappers)}, in the run {', '.join(own.get('wrappers') or ()) or 'none'}")
    return recorded


def response_limit(checkpoint: str) -> int | None:
    """Return the most tokens of a response that a checkpoint was trained with; None if there is no run.json.

    Raises:
        ConfigError: It says something else.
    """
    record, where = _record(Path(checkpoint))
    limit = record.get("response_length")
    return None if limit is None else integer(f"response_length in {where}", limit, minimum=1)


def _record(path: Path) -> tuple[dict[str, Any], str]:
    """Return what a run says of its environment, and the file that says so."""
    folder = expanded(path).absolute()
    while folder.name in _INSIDE or folder.name.startswith("global_step_"):
        folder = folder.parent
    settings = read_settings(folder / "run.json") or {}
    # Of a training run, the split is the one that it learned from; each command has its own.
    record = {name: value for name, value in settings.items() if name != "split"}
    if record.get("data") == "generated":
        del record["data"]  # as every environment has it
    return record, str(path if folder == path.absolute() else folder) + "/run.json"


def _say(text: str) -> None:
    sys.stderr.write(f"agentr1: {text}\n")
