"""Where a run keeps its files."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RunFolder"]


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
