"""Where a run keeps its files: verl's own logs, joined into one record per step, and a note of what verl is doing.

verl's file logger empties its file when it opens it, so every start writes a new one (`{"step": n, "data": {...}}`). A
start that was killed may leave a torn last line, and steps after its last checkpoint that the next start plays again.

A worker that dies in a weight transfer leaves its sender waiting for ever, and one that hangs the trainer: there is no
error to see, only a phase that stands still. So the trainer writes its phase to a file, and the process that started it
notices when nothing moves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agent_envs.adapters.run import Record
from agent_envs.files import JSONLines, write_text


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


STALL_SECONDS = 3600.0
"""How long a phase may stand still, if nothing else is said."""
_BEAT = 1.0  # seconds between two notes of progress within a phase


class PhaseFile:
    """The trainer's side: the phase, its step, and what of it is done; without a path nothing is written."""

    def __init__(self, path: str | Path | None) -> None:
        self._path = None if path is None else Path(path)
        self._phase, self._step, self._done = "starting", 0, 0
        self._written = 0.0

    def enter(self, phase: str, step: int) -> None:
        """Begin a phase."""
        self._phase, self._step, self._done = phase, step, 0
        self._write()

    def progress(self, done: int | None = None) -> None:
        """Note how much of the phase is done, or that one more piece of it is."""
        before, self._done = self._done, self._done + 1 if done is None else done
        if self._done != before and (done is None or time.monotonic() - self._written >= _BEAT):
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._path is not None:
            write_text(self._path, json.dumps({"phase": self._phase, "step": self._step, "done": self._done}))


class PhaseWatch:
    """The starting process's side; ``limit`` is in seconds, None for any number.

    The start, in which models are loaded and nothing is noted, may take ``STALL_SECONDS`` at least.
    """

    def __init__(self, path: Path, limit: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._limit, self._clock = path, limit, clock
        self._text, self._since = "", clock()
        self.phase, self.step = "starting", 0

    def look(self) -> str | None:
        """Read the file; return what stands still if that has been so for longer than the limit, otherwise None."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = self._text
        if text != self._text:
            phase = json.loads(text)
            self._text, self._since = text, self._clock()
            self.phase, self.step = str(phase["phase"]), int(phase["step"])
        still = self._clock() - self._since
        if self._limit is None or still <= (self._limit if self._text else max(self._limit, STALL_SECONDS)):
            return None
        where = f"{self.phase} (step {self.step})" if self._text else self.phase
        return f"verl has been {where} for {still:.0f} s without any progress"
