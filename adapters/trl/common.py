"""What the environment class and the rollout function share: datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_envs.errors import ConfigError, needs_extra

__all__ = ["as_json", "make_dataset"]


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
    with needs_extra("trl"):
        from datasets import Dataset
    return Dataset.from_list(rows)
