"""Finds and reads files of episodes without making `Episode` objects of their lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agent_envs.errors import ConfigError, DataError
from agent_envs.files import JSONLines

_OTHER = ("metrics.jsonl", "starts.jsonl")  # files of a run folder that hold no episodes


def episode_paths(sources: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the episode files that are named or are in the named folders, compressed ones (.jsonl.gz) included.

    Raises:
        ConfigError: A path does not exist, or a folder has no such files.
    """
    paths: list[Path] = []
    for source in map(Path, sources):
        if source.is_dir():
            patterns = (f"{folder}*.jsonl{suffix}" for folder in ("", "episodes/") for suffix in ("", ".gz"))
            files = sorted(path for pattern in patterns for path in source.glob(pattern) if path.name not in _OTHER)
            if not files:
                raise ConfigError(f"{source}: there is no .jsonl file of episodes in this folder")
            paths += files
        elif source.is_file():
            paths.append(source)
        else:
            raise ConfigError(f"{source}: there is no such file or folder")
    return paths


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the episodes of a file as ``Episode.to_dict`` wrote them, each with the number of its line.

    Raises:
        DataError: The file cannot be read, or a line is not an episode; names the file and the line. An incomplete last
            line is skipped.
    """
    for number, record in JSONLines(path).numbered():
        if not isinstance(record.get("steps"), list):
            raise DataError(f"{path}, line {number}: not an episode: expected an object with steps")
        yield number, record
