"""The file metrics.jsonl of a training run: one JSON object per step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_envs.files import JSONLines

__all__ = ["Record", "append_record", "read_records", "write_records"]

Record = dict[str, Any]
"""The metrics of one step, by name."""


def read_records(path: Path) -> list[Record]:
    """Return the records of a file, none if it does not exist. A last line cut off by a kill is left out.

    >>> read_records(Path("no-such-file.jsonl"))
    []
    """
    return [record for _, record in JSONLines(path).after()] if path.exists() else []


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write all records; the file appears whole or not at all."""
    JSONLines(path).replace(map(_row, records))


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as a whole line."""
    JSONLines(path).append(_row(record))


def _row(record: Mapping[str, Any]) -> Record:
    # JSON has no NaN: a value that could not be computed is null.
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
