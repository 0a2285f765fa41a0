"""What a training run keeps and says: metrics.jsonl, an object per step, and its success on held-out tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_envs.episodes.statistics import difference, share
from agent_envs.files import JSONLines

__all__ = ["Record", "append_record", "read_records", "success_lines", "write_records"]

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


def success_lines(records: Sequence[Mapping[str, Any]], start: str = "") -> list[str]:
    """Return the success on held-out tasks at the first and the last of some records, and how they differ, as text.

    Episodes that did not come back count as failures; ``start`` says what the model was at step 0.
    """
    played = [record for record in records if record.get("val/success") is not None]
    lines, trials = [], []
    for r in [*played[:1], *played[1:][-1:]]:
        count = int(r["val/episodes"] + r.get("val/lost_episodes", 0))
        s = share(r["val/success"] * count, count)
        what = f" ({start})" if start and r["step"] == 0 else ""
        lines.append(
            f"step {r['step']:<5} success {s.value:.3f} [{s.low:.3f}, {s.high:.3f}] on {count} held-out tasks{what}"
        )
        trials += [r["val/success"], count]
    if len(lines) > 1:
        d = difference(*trials)
        lines.append(f"difference {d.value:+.3f} [{d.low:+.3f}, {d.high:+.3f}] (95 % intervals)")
    return lines
