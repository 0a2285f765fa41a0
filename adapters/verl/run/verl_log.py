"""verl's own log files, one per start of a run, joined into one record per step.

verl's file logger empties its file when it opens it, so every start writes a new one (`{"step": n, "data": {...}}`). A
start that was killed may leave a torn last line, and steps after its last checkpoint that the next start plays again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent_envs.adapters.metrics_log import Record
from agent_envs.files import JSONLines

__all__ = ["join_logs", "read_log"]


def read_log(path: Path, offset: int = 0) -> tuple[list[Record], int]:
    """Return the complete lines of a log from byte `offset` on, and the offset after them."""
    records: list[Record] = []
    if path.exists():
        for end, entry in JSONLines(path).after(offset):
            records.append({"step": int(entry["step"]), **entry["data"]})
            offset = end
    return records, offset


def join_logs(starts: Iterable[tuple[int, Path]]) -> list[Record]:
    """Return one record per step, in step order; a later start replaces the steps that it played again.

    Args:
        starts: For each start, in order: the step it resumed from (0 if it did not) and its log.
    """
    joined: dict[int, Record] = {}
    for resumed_from, path in starts:
        joined = {step: record for step, record in joined.items() if step <= resumed_from}
        for record in read_log(path)[0]:
            step = record["step"]
            joined[step] = {**joined.get(step, {}), **record}
    return [joined[step] for step in sorted(joined)]
