"""What verl is doing: its trainer writes it to a file, and the process that started it notices when nothing moves.

A worker that dies in a weight transfer leaves its sender waiting for ever, and one that hangs the trainer: there is no
error to see, only a phase that stands still.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from agent_envs.files import write_text

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
