"""Where a run keeps its files, and verl's own logs among them, one per start, joined into one record per step.

verl's file logger empties its file when it opens it, so every start writes a new one (`{"step": n, "data": {...}}`). A
start that was killed may leave a torn last line, and steps after its last checkpoint that the next start plays again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent_envs.adapters.run import Record
from agent_envs.files import JSONLines


class RunFolder:
    """The files of a run, under its ``--out`` folder: an absolute path, since Ray's processes start elsewhere."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.settings = out / "run.json"
        self.model = out / "model"  # tiny-base or tiny-vision, after a warm start if there is one
        self.train_rows = out / "data" / "train.parquet"  # for verl's data loader
        self.validation_rows = out / "data" / "validation.parquet"
        self.episodes = out / "episodes"  # one file per step and phase
        self.checkpoints = out / "checkpoints"
        self.metrics = out / "metrics.jsonl"  # one line per step
        self.curve = out / "curve.png"  # success and reward over steps
        self.phase = out / "phase.json"  # what verl is doing, while it runs
        self.log = out / "train.log"  # everything that verl and Ray print
        self.starts = out / "starts"  # of each start, verl's configuration and its own metrics

    def names(self) -> list[str]:
        """Return the names of what a run writes into the folder beside its settings."""
        written = [path for path in vars(self).values() if path not in (self.out, self.settings)]
        return sorted({path.relative_to(self.out).parts[0] for path in written})

    def logs(self) -> list[tuple[int, Path]]:
        """Return verl's own metrics of every start in order, each with the step that the start resumed from."""
        return [(int(path.stem.rpartition("-")[2]), path) for path in sorted(self.starts.glob("*-from-*.jsonl"))]


def read_log(path: Path, offset: int = 0) -> tuple[list[Record], int]:
    """Return the complete lines of a log from byte `offset` on, and the offset after them."""
    records: list[Record] = []
    if path.exists():
        for end, entry in JSONLines(path).after(offset):
            records.append({"step": int(entry["step"]), **entry["data"]})
            offset = end
    return records, offset


def join_logs(starts: Iterable[tuple[int, Path]]) -> list[Record]:
    """Return one record per step, from each start's first step and log; later starts replace what they play again."""
    joined: dict[int, Record] = {}
    for resumed_from, path in starts:
        joined = {step: record for step, record in joined.items() if step <= resumed_from}
        for record in read_log(path)[0]:
            joined.setdefault(record["step"], {}).update(record)
    return [joined[step] for step in sorted(joined)]
