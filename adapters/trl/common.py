"""What the environment class and the rollout function share: the supported version of TRL, and datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_envs.errors import ConfigError, MissingExtraError, check_release

__all__ = ["as_json", "check_version", "make_dataset"]


def check_version() -> None:
    """Check that the installed TRL is a supported version.

    Raises:
        MissingExtraError: TRL is not installed.
        ConfigError: It is too old or too new.
    """
    check_release("trl", "trl")


def as_json(kwargs: Mapping[str, Any]) -> str:
    """Return keyword arguments of an environment as JSON, for a dataset's column.

    Raises:
        ConfigError: A value is not a JSON value.
    """
    try:
        return json.dumps(dict(kwargs), sort_keys=True)
    except TypeError as e:
        raise ConfigError(f"env_kwargs must be JSON values, got {kwargs!r}: {e}") from e


def make_dataset(rows: list[dict[str, Any]]) -> Any:
    """Return a ``datasets.Dataset`` of the rows. Raises MissingExtraError if ``datasets`` is not installed."""
    try:
        from datasets import Dataset
    except ImportError as e:
        raise MissingExtraError("datasets", extra="trl") from e
    return Dataset.from_list(rows)
