"""The metrics of a run: one JSON object per step in DIR/metrics.jsonl, whatever number of starts it took.

verl's own file logger writes one file per start (`{"step": n, "data": {...}}`, emptied when opened). A killed start may
leave a torn last line, and steps after its last checkpoint that the next start plays again. `collect` makes one list of
all starts: a later start replaces what lies after the step it resumed from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_envs.files import write_text

__all__ = ["Record", "append_records", "collect", "read_log", "write_records"]

Record = dict[str, Any]


def read_log(path: Path, offset: int = 0) -> tuple[list[Record], int]:
    """The whole lines of one start's log from byte `offset` on, and the offset after them. A torn line stays unread."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        file.seek(offset)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    records = []
    for line in whole.splitlines():
        entry = json.loads(line)
        records.append({"step": int(entry["step"]), **entry["data"]})
    return records, offset + len(whole)


def collect(starts: Iterable[tuple[int, Path]]) -> list[Record]:
    """The records of all starts in step order, one per step.

    Args:
        starts: Per start, in order: the step it resumed from (0 for a fresh one) and its log.
    """
    merged: dict[int, Record] = {}
    for resumed_from, path in starts:
        merged = {step: record for step, record in merged.items() if step <= resumed_from}
        for record in read_log(path)[0]:
            step = record["step"]
            merged[step] = {**merged.get(step, {}), **record}
    return [merged[step] for step in sorted(merged)]


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one record a line; the file appears whole or not at all."""
    write_text(path, "".join(_line(record) for record in records))


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records, each as a whole line."""
    with path.open("a", encoding="ascii") as file:
        for record in records:
            file.write(_line(record))


def _line(record: Mapping[str, Any]) -> str:
    # JSON has no NaN: a value that could not be computed is null.
    return json.dumps({k: _finite(v) for k, v in record.items()}) + "\n"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
