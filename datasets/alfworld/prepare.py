"""`agentr1 prepare alfworld`: puts the released games where `data="official"` finds them.

The games are taken from a folder of released files or from the released archives, which are downloaded if no path is
given: json_2.1.2_tw-pddl.zip has the games, json_2.1.1_json.zip their traj_data.json. A folder of the processed data
release (SPLIT.parquet, and games.zip or games/) is taken with its rows, which say what a split has.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm import tqdm

from agent_envs.datasets.alfworld.rows import (
    GAME_FILE,
    RELEASED_GAMES,
    TRAJECTORY_FILE,
    alfworld_games,
    check_game,
    released_rows,
)
from agent_envs.datasets.download import download, released_files
from agent_envs.datasets.files import replaced_folder
from agent_envs.datasets.paths import user_path
from agent_envs.errors import DataError
from agent_envs.files import data_dir, open_data

RELEASES = "https://github.com/alfworld/alfworld/releases"
_FOLDER = "json_2.1.1"
_FILES = (GAME_FILE, TRAJECTORY_FILE)
_MAX_BYTES = 64 << 20  # of one file; games have a few hundred thousand
_OFFLINE = (
    f"Without a network, download json_2.1.1_json.zip and json_2.1.2_tw-pddl.zip from {RELEASES} on another machine, "
    "and pass their folder: agentr1 prepare alfworld --from FOLDER"
)


def prepare_alfworld(from_path: str | None, target: Path) -> None:
    """Write the released games to `json_2.1.1/SPLIT/TASK/TRIAL/` in a folder.

    Those of the processed data release are written to `games/`, beside its rows.
    """
    source = data_dir() / "alfworld-released" if from_path is None else user_path(from_path)
    for name in released_files("alfworld") if from_path is None else ():
        download("alfworld", name, source, manual=_OFFLINE)
    rows = released_rows(source)
    inner = RELEASED_GAMES if rows else _FOLDER
    with replaced_folder(target) as folder:
        for file in rows:
            with open_data(file) as opened, (folder / file.name).open("wb") as copied_rows:
                shutil.copyfileobj(opened, copied_rows)
        for path_parts, stream in _released_files(source):
            path = folder.joinpath(inner, *path_parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            with stream, path.open("wb") as copy:
                shutil.copyfileobj(stream, copy)
        games = sorted(folder.glob(f"{inner}/*/*/*/{GAME_FILE}"))
        if not games:
            raise DataError(
                f"there are no games in {source}: expected SPLIT/TASK/TRIAL/{GAME_FILE} and {TRAJECTORY_FILE}, or the "
                "released archives json_2.1.2_tw-pddl.zip and json_2.1.1_json.zip"
            )
        for path in tqdm(games, desc="alfworld: checking", unit="game", leave=False, disable=len(games) < 100):
            if not path.with_name(TRAJECTORY_FILE).is_file():
                raise DataError(
                    f"{source}: the game {path.parent.relative_to(folder / inner).as_posix()} has no "
                    f"{TRAJECTORY_FILE}; it is in the released json_2.1.1_json.zip: pass the folder that holds both "
                    "archives"
                )
            check_game(path, where=f"{source}: {path.relative_to(folder / inner).as_posix()}")
        for trajectory in folder.glob(f"{inner}/*/*/*/{TRAJECTORY_FILE}"):
            if not trajectory.with_name(GAME_FILE).is_file():  # a trial without a game
                shutil.rmtree(trajectory.parent)
        for file in rows:
            alfworld_games(str(folder), file.stem)  # each row's game is there
        (folder / "prepared.json").write_text("{}", encoding="utf-8")  # by which the next call knows its own


def _released_files(source: Path) -> Iterator[tuple[tuple[str, ...], IO[bytes]]]:
    """Yield the games' files: (split, task, trial, name), and their content."""
    if not source.exists():
        raise DataError(f"there is no {source}: pass a folder of released games or archives")
    for archive in [source] if source.is_file() else sorted(source.glob("*.zip")):
        yield from _archived_files(archive)
    for path in sorted(source.rglob("*")) if source.is_dir() else ():
        hidden = any(part.startswith(".") for part in path.relative_to(source).parts)  # as the folder being written
        if path.name in _FILES and not hidden and (game_path := _game_path(path.resolve().parts)):
            yield game_path, open_data(path)


def _archived_files(archive: Path) -> Iterator[tuple[tuple[str, ...], IO[bytes]]]:
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = [entry for entry in opened.infolist() if PurePosixPath(entry.filename).name in _FILES]
            for entry in tqdm(entries, desc=archive.name, unit="file", leave=False, disable=len(entries) < 100):
                if entry.file_size > _MAX_BYTES:
                    raise DataError(
                        f"{archive}: {entry.filename} has {entry.file_size} bytes, far more than a game file"
                    )
                if game_path := _game_path(PurePosixPath(entry.filename).parts):
                    yield game_path, opened.open(entry)
    except (OSError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as e:
        raise DataError(f"{archive}: not a readable zip archive, or cut off: {e}") from e


def _game_path(parts: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return split, task, trial and file name from the end of a path, or None.

    >>> _game_path(("data", "train", "pick_and_place_simple-Mug-None-Desk-307", "trial_T1", "game.tw-pddl"))
    ('train', 'pick_and_place_simple-Mug-None-Desk-307', 'trial_T1', 'game.tw-pddl')
    >>> _game_path(("..", "..", "trial_T1", "game.tw-pddl")) is None
    True
    """
    usable = len(parts) >= 4 and not any(not part or part.startswith(".") for part in parts[-4:-1])
    return parts[-4:] if usable else None
