"""The registry of pins: names, and functions that produce the bytes whose digests are compared."""

import contextlib
import hashlib
import io
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agent_envs
from agent_envs.cli import main


@dataclass(frozen=True)
class Pin:
    """Something whose bytes must not change."""

    make: Callable[[], Any]
    """Returns what is hashed: bytes, or a JSON-serialisable value. Runs in an empty folder of its own."""
    data: bool
    """Whether it needs the real test data, which is then linked as the folder `data`."""
    needs: tuple[str, ...]
    """Modules of extras that it needs."""
    slow: bool
    """Whether it only runs with the slow tests."""


PINS: dict[str, Pin] = {}


def pin(
    name: str, make: Callable[[], Any], *, data: bool = False, needs: tuple[str, ...] = (), slow: bool = False
) -> None:
    assert name not in PINS, name
    PINS[name] = Pin(make, data, needs, slow)


def digest(name: str, data: Path | None) -> str:
    return hashlib.sha256(made(name, data)).hexdigest()


def made(name: str, data: Path | None) -> bytes:
    """Return the bytes of a pin, made in an empty folder and without the user's own data."""
    with tempfile.TemporaryDirectory() as made_folder, pytest.MonkeyPatch.context() as patch:
        folder = Path(made_folder).resolve()
        patch.setenv("AGENT_ENVS_DATA", "agent_envs_data")
        patch.chdir(folder)
        if data is not None and PINS[name].data:
            (folder / "data").symlink_to(data.resolve())
        content = as_bytes(PINS[name].make())
    for path, word in ((folder, b"FOLDER"), (data and data.resolve(), b"DATA")):
        content = content.replace(str(path).encode(), word) if path else content
    return content


def same_package(**more: str) -> dict[str, str]:
    """Return environment variables for a subprocess that imports the same package."""
    return {**os.environ, "PYTHONPATH": str(Path(agent_envs.__file__).resolve().parents[1]), **more}


def as_bytes(value: Any) -> bytes:
    """Return a value as bytes: keys in their order, one line per entry of a list."""
    if isinstance(value, bytes):
        return value
    parts = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(part, default=lambda array: array.tolist()).encode() + b"\n" for part in parts)


_DRAWN_ID = re.compile(r'("episode_id": )"[0-9a-f]{32}"')
_SECONDS = re.compile(r'("(?:seconds|seconds_per_episode|wall_seconds)": )[0-9.e-]+')
_TIME = re.compile(r"^time  .*", re.MULTILINE)


def ran(*command: str) -> list[Any]:
    """Run a command and return what it prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        assert main([*command]) == 0, command
    return [" ".join(command), *_settled(said.getvalue()).split("\n")]


def written(*names: str) -> list[Any]:
    """Return the contents of files and folders by path: text by line, tables by row, anything else as a digest."""
    found = [
        path for name in names for path in (sorted(Path(name).rglob("*")) if Path(name).is_dir() else [Path(name)])
    ]
    rows: list[Any] = []
    for path in found:
        if path.is_dir() or path.name == ".lock":
            continue
        if path.suffix == ".parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path)
            rows += [[str(path), row] for row in (str(table.schema.remove_metadata()), *table.to_pylist())]
            continue
        if path.suffix == ".sqlite":
            with contextlib.closing(sqlite3.connect(path)) as database:
                rows += [[str(path), line] for line in database.iterdump()]
            continue
        content = path.read_bytes()
        try:
            rows += [[str(path), line] for line in _settled(content.decode()).split("\n")]
        except UnicodeDecodeError:
            rows.append([str(path), hashlib.sha256(content).hexdigest()])
    return rows


def _settled(text: str) -> str:
    text = text.replace(f'"agent_envs": "{agent_envs.__version__}"', '"agent_envs": ""')
    if '"checksum"' in text and any(place in text for place in (str(Path.cwd()), str(Path("data").resolve()))):
        text = re.sub(r'"checksum": "[0-9a-f]*"', '"checksum": ""', text)
    return _TIME.sub("time", _SECONDS.sub(r"\1 0", _DRAWN_ID.sub(r'\1""', text)))
