"""The files of a run's episodes: one per phase and step, one episode per line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agent_envs.files import write_text

__all__ = ["episode_path", "write_lines"]


def episode_path(folder: str | os.PathLike[str], phase: str, step: int) -> Path:
    """Return the file of a step's episodes.

    >>> episode_path("out", "train", 7).name
    'train-000007.jsonl'
    """
    return Path(folder) / f"{phase}-{step:06d}.jsonl"


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines to a file, which appears whole or not at all; a step that is played again replaces it."""
    write_text(path, "".join(f"{line}\n" for line in lines))
