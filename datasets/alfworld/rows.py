"""ALFWorld's released games: finds the games of a split and reads them.

    FOLDER/train/pick_and_place_simple-Mug-None-Desk-307/trial_T2019.../game.tw-pddl and traj_data.json
    game.tw-pddl    {pddl_domain, grammar, pddl_problem, solvable}
    traj_data.json  {task_type, pddl_params, ...}

A split's games are sorted by their path relative to the folder. As in the original, games are skipped whose path
contains `movable` or `Sliced`, that have no game file, or that are not flagged solvable. In the processed data release
the rows of SPLIT.parquet say which games under games/ a split has, and in which order:

    {"extra_info": {"game_relative_path": "train/pick_and_place_simple-.../trial_T2019.../game.tw-pddl"}, ...}
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_envs.datasets.alfworld.game_rules import read_rules
from agent_envs.datasets.alfworld.pddl import parse_problem
from agent_envs.datasets.alfworld.problem import FAMILIES, SPLIT_ALIASES, Problem
from agent_envs.datasets.fields import text_field, verl_row
from agent_envs.datasets.paths import official_dir, user_path
from agent_envs.errors import ConfigError, DataError, TaskIndexError, did_you_mean
from agent_envs.files import open_data, read_object
from agent_envs.tasks import ListedTasks, read_rows

GAME_FILE = "game.tw-pddl"
"""Name of the file that holds a game."""

TRAJECTORY_FILE = "traj_data.json"
"""Name of the file next to it, which says what kind of task it is."""

SPLITS: tuple[str, ...] = ("train", "valid_seen", "valid_unseen")
"""The released splits."""

RELEASED_GAMES = "games"
"""The folder of the games beside the rows of the processed data release."""

_PLAYED = ("pddl_domain", "grammar", "pddl_problem")  # what both engines read of a game file
_TAIL = 4096  # bytes at the end of a game file that are searched for the flag before all of it is read
_FLAG = re.compile(r'(?<!\\)"solvable":\s*(true|false)')
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Game:
    """A game file."""

    task_id: str
    """Path of its folder relative to the data's folder."""
    family: str
    file: str

    @property
    def game(self) -> str:
        """Path of its folder relative to the data's folder."""
        return self.task_id


class Games(ListedTasks[Game]):
    """The games of a split, in order."""

    def content(self, index: int) -> dict[str, Any]:
        """Return what a game's files hold, and not where they are."""
        game = self[index]
        trajectory = _read_json(Path(game.file).with_name(TRAJECTORY_FILE))
        played = {name: text for name, text in load_game(game.file).items() if name in _PLAYED}
        return {"task_id": game.task_id, "family": game.family, **played, "params": trajectory.get("pddl_params")}

    def find(self, path: str) -> int:
        """Return the index of a game by its path as in `info["game"]`, with or without the file's name."""
        wanted = path.replace(os.sep, "/").rstrip("/").removesuffix(f"/{GAME_FILE}")
        for index, game in enumerate(self):
            if wanted.endswith(f"/{game.task_id}") or wanted in (game.task_id, game.task_id.partition("/")[2]):
                return index
        hint = did_you_mean(wanted, [game.task_id for game in self])
        raise TaskIndexError(
            f"the split {self.split!r} of {self.name} has no game {path!r}.{hint if len(hint) < 400 else ''} Games are "
            "skipped that are flagged unsolvable (include them with unsolvable=True) or of other families"
        )


def find_folder(data: str) -> Path:
    """Return the folder that holds the splits: of `data="official"`, or at a path that is this folder or its parent."""
    if data == "official":
        folder = official_dir("alfworld")
    else:
        folder = user_path(data)
        folder = folder.parent if folder.suffix == ".parquet" and folder.is_file() else folder
        if not folder.is_dir():
            raise DataError(
                f"there is no folder {data!r} in {Path.cwd()}; data must be 'generated', 'official', or the path of "
                f"the folder that holds {', '.join(SPLITS)}"
            )
    inner = folder / "json_2.1.1"
    return inner if inner.is_dir() else folder


def released_rows(folder: Path) -> list[Path]:
    """Return the files of rows in a folder of the processed data release: those beside its games, packed or not."""
    games = folder / RELEASED_GAMES
    return sorted(folder.glob("*.parquet")) if games.is_dir() or games.with_suffix(".zip").is_file() else []


def alfworld_games(data: str, split: str, families: tuple[str, ...] = FAMILIES, *, unsolvable: bool = False) -> Games:
    """Return the games of a split. The folder is searched once per process, and again if folders were added to it."""
    folder = find_folder(data)
    alone = Path(data).stem if data.endswith(".parquet") else ""  # a file of rows, which is the split "all"
    rows = {path.stem: path for path in released_rows(folder) if alone in ("", path.stem)}
    names = sorted(rows or (entry.name for entry in folder.iterdir() if entry.is_dir()))
    name = split if split in names else SPLIT_ALIASES.get(split, split)
    split, name = ("all", alone) if alone and split in ("train", "all") else (split, name)
    if name not in names:
        if not names or (not rows and (folder / f"{name}.parquet").is_file()):
            missing = f"{', '.join(SPLITS)} with games in them, or {RELEASED_GAMES}/ beside files of rows"
            raise DataError(f"{folder} has no games: expected the folders {missing}")
        raise ConfigError(f"{data} has no split {split!r}.{did_you_mean(split, names)}")
    if rows:
        all_games = _released(rows[name], rows[name].stat().st_mtime_ns)
    else:
        all_games = _search(str(folder), name, (folder / name).stat().st_mtime_ns)
    games = tuple(game for game, solvable in all_games if (solvable or unsolvable) and game.family in families)
    if not games:
        raise DataError(
            f"{folder / name} has no game to play: {len(all_games)} game files, {sum(s for _, s in all_games)} of them "
            f"flagged solvable, none of the families {', '.join(families)}"
            if all_games
            else f"{rows.get(name, folder / name)} has no game: expected folders with {GAME_FILE} and {TRAJECTORY_FILE}"
        )
    return Games(games, data, split)


@functools.lru_cache(16)
def _search(folder: str, split: str, changed: int) -> tuple[tuple[Game, bool], ...]:
    """Return all games of a split with their flag; `changed` is when the split's folder was modified."""
    games = []
    for path, _, files in os.walk(os.path.join(folder, split)):
        relative = Path(path).relative_to(folder).as_posix()
        skipped = any(part in relative for part in ("movable", "Sliced", "/."))
        if skipped or not {TRAJECTORY_FILE, GAME_FILE} <= set(files):
            continue
        game = _game(relative, path)
        games.append((game, _is_solvable(game.file)))
    return tuple(sorted(games, key=lambda pair: pair[0].task_id))


@functools.lru_cache(16)
def _released(rows: Path, changed: int) -> tuple[tuple[Game, bool], ...]:
    """Return the games that released rows name, in their order; `changed` is when the file was modified."""
    folder = rows.parent / RELEASED_GAMES
    if not folder.is_dir():
        unpack = f"agentr1 prepare alfworld --from {rows.parent} takes them from games.zip"
        raise DataError(f"there is no folder {folder} with the games of {rows.name}; {unpack}")
    inside, games = folder.resolve(), []
    for row, where in read_rows(rows):
        named = text_field(verl_row(row, where, "alfworld").extra, "game_relative_path", where)
        file = folder / named
        try:
            leads_in, there = file.resolve().is_relative_to(inside), file.is_file()
        except (OSError, RuntimeError, ValueError):  # too long, a link to itself, a NUL
            leads_in = there = False
        if Path(named).name != GAME_FILE or ".." in Path(named).parts or not leads_in:
            raise DataError(f"{where}: expected the path of a {GAME_FILE} within {RELEASED_GAMES}/, got {named!r:.200}")
        if not there:
            raise DataError(f"{where}: there is no game {named!r:.200} in {folder}")
        games.append((_game(Path(named).parent.as_posix(), str(file.parent)), True))
    return tuple(games)


def _game(task_id: str, folder: str) -> Game:
    family = _read_json(os.path.join(folder, TRAJECTORY_FILE)).get("task_type")
    if not isinstance(family, str):
        raise DataError(f"{folder}/{TRAJECTORY_FILE}: expected text under 'task_type', got {family!r:.70}")
    return Game(task_id, family, os.path.join(folder, GAME_FILE))


def _is_solvable(file: str) -> bool:
    """Return the flag of a game file, which is at the end of released files."""
    try:
        with open_data(file) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL))
            tail = stream.read().decode("utf-8", "replace")
    except OSError as e:
        raise DataError(f"{file}: cannot be read: {e}") from e
    flags = _FLAG.findall(tail)
    if len(flags) == 1 and tail.rstrip().endswith("}"):
        return flags[0] == "true"
    return bool(_read_json(file).get("solvable", False))


def load_game(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a game file. Raises DataError as `load_problem` does."""
    data: dict[str, Any] = _read_json(file)
    for key in _PLAYED:
        text_field(data, key, os.fspath(file))
    return data


def check_game(file: str | os.PathLike[str], where: str) -> None:
    """Check a game file and its traj_data.json without parsing the problem; a DataError begins with `where`."""
    try:
        load_game(file)
        trajectory = _read_json(Path(file).with_name(TRAJECTORY_FILE))
    except DataError as e:
        raise DataError(f"{where}: {str(e).partition(': ')[2]}") from e
    if not isinstance(trajectory.get("task_type"), str):
        raise DataError(f"{where}: its {TRAJECTORY_FILE} has no 'task_type'")


def load_problem(file: str | os.PathLike[str]) -> Problem:
    """Read a game file and the traj_data.json next to it."""
    file = os.fspath(file)
    data = load_game(file)
    family, params = "", {}
    trajectory_file = Path(file).with_name(TRAJECTORY_FILE)
    if trajectory_file.is_file():
        trajectory = _read_json(trajectory_file)
        family = str(trajectory.get("task_type", ""))
        classes = trajectory.get("pddl_params")
        params = {k: v for k, v in classes.items() if isinstance(v, str)} if isinstance(classes, dict) else {}
    wording, task = read_rules(data["pddl_domain"], data["grammar"], file)
    return parse_problem(data["pddl_problem"], task, family=family, params=params, wording=wording, where=file)


_read_json = functools.partial(read_object, expected="the JSON object of a game", longest=_MAX_BYTES)
