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
from typing import Any, NamedTuple

from agent_envs.files import write_text

__all__ = ["Interval", "Record", "append_records", "collect", "difference", "read_log", "share", "write_records"]

Record = dict[str, Any]
_Z = 1.959964


class Interval(NamedTuple):
    """An estimate and its 95 % confidence interval."""

    value: float
    low: float
    high: float


def share(successes: float, trials: int) -> Interval:
    """A share and its Wilson score interval (Wilson 1927).

    >>> tuple(round(x, 3) for x in share(128, 256))
    (0.5, 0.439, 0.561)
    """
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0)
    p = successes / trials
    center = (p + _Z**2 / (2 * trials)) / (1 + _Z**2 / trials)
    half = _Z * math.sqrt(p * (1 - p) / trials + _Z**2 / (4 * trials**2)) / (1 + _Z**2 / trials)
    return Interval(p, max(0.0, center - half), min(1.0, center + half))


def difference(before: float, trials_before: int, after: float, trials_after: int) -> Interval:
    """The difference of two independent shares, `after - before`, with the Agresti-Caffo interval (2000).

    It takes the two shares as independent; the same tasks played before and after make the true interval narrower.

    >>> tuple(round(x, 2) for x in difference(0.48, 256, 0.82, 256))
    (0.34, 0.26, 0.42)
    """
    if trials_before == 0 or trials_after == 0:
        return Interval(math.nan, -1.0, 1.0)
    p = (before * trials_before + 1) / (trials_before + 2)
    q = (after * trials_after + 1) / (trials_after + 2)
    half = _Z * math.sqrt(p * (1 - p) / (trials_before + 2) + q * (1 - q) / (trials_after + 2))
    return Interval(after - before, max(-1.0, q - p - half), min(1.0, q - p + half))


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
