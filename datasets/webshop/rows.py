"""WebShop's tasks: the goals of a catalogue by split and number."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_envs.datasets.data_dir import user_path
from agent_envs.datasets.webshop.goals import MOST_GOALS, read_goals, read_prices
from agent_envs.datasets.webshop.products import Catalog, Goal
from agent_envs.errors import ConfigError, DataError, TaskIndexError, did_you_mean
from agent_envs.tasks import FileStamp, file_stamps

__all__ = ["SPLITS", "WebShopTask", "WebShopTasks", "check_split", "goals_of", "prices_of", "split_bounds"]

SPLITS = ("train", "validation", "test", "all")
_OTHER_NAMES = {"eval": "validation", "val": "validation", "dev": "validation"}
_TEST_ENDS, _VALIDATION_ENDS = 500, 1500
_PARTS = 6  # of a list that would leave nothing to train on, a sixth is test and a sixth validation


@dataclass(frozen=True, slots=True)
class WebShopTask:
    """One goal to play."""

    task_id: str
    """Its name: "webshop/" and its number."""
    number: int
    """Its number in the whole list."""
    goal: Goal
    """What is to be bought."""


def split_bounds(count: int) -> dict[str, range]:
    """The goals of each split by number: the original's, or parts of a sixth where the list is short.

    >>> split_bounds(12087)["train"], split_bounds(13)
    (range(1500, 12087), {'test': range(0, 2), 'validation': range(2, 4), 'train': range(4, 13), 'all': range(0, 13)})
    """
    first, second = _TEST_ENDS, _VALIDATION_ENDS
    if count <= _VALIDATION_ENDS:
        first, second = count // _PARTS, 2 * (count // _PARTS)
    ranges = {"test": range(first), "validation": range(first, second), "train": range(second, count)}
    return {**ranges, "all": range(count)}


class WebShopTasks:
    """The goals of one split.

    Args:
        name: "generated", "official" or the path as given, for `info["source"]`.
        split: One of SPLITS; "eval" is "validation".
        goals: All goals in their order.

    Raises:
        ConfigError: There is no such split, or nothing in it.
    """

    def __init__(self, name: str, split: str, goals: Sequence[Goal]) -> None:
        self.name = name
        self.goals = goals
        self._bounds = split_bounds(len(goals))
        self.split = check_split(split)
        self._numbers = self._bounds[self.split]
        if not self._numbers:
            raise ConfigError(f"{name} has {len(goals)} goals, none of them for split {split!r}; take split='all'")

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> WebShopTask:
        if not 0 <= index < len(self):
            raise TaskIndexError(f"split {self.split!r} has tasks 0 to {len(self) - 1}, got index {index}")
        number = self._numbers[index]
        return WebShopTask(f"webshop/{number}", number, self.goals[number])

    def place(self, number: int) -> tuple[str, int]:
        """The split that a goal is in, this one where it is in it, and its index there."""
        for split in (self.split, "test", "validation", "train"):
            if number in self._bounds[split]:
                return split, number - self._bounds[split].start
        raise TaskIndexError(f"{self.name} has goals 0 to {len(self.goals) - 1}, got goal {number}")


def check_split(split: str) -> str:
    """The name of a split; ConfigError where there is none like it."""
    split = _OTHER_NAMES.get(split, split)
    if split not in SPLITS:
        raise ConfigError(f"there is no split {split!r}.{did_you_mean(split, SPLITS)}")
    return split


def goals_of(catalog: Catalog, human: bool | None, path: str | None, name: str) -> Sequence[Goal]:
    """The goals to play.

    Args:
        catalog: The products.
        human: What people asked for, synthetic goals, or None: the former where there are any.
        path: A file with goals instead.
        name: The data, for errors.

    Raises:
        DataError: There are none, or the file cannot be used.
    """
    if path is not None:
        return _goals_file(path, file_stamps([user_path(path)]))
    human = catalog.human if human is None else human
    goals = catalog.goals(human)
    if len(goals) > MOST_GOALS:
        raise DataError(
            f"{name} has more than {MOST_GOALS:,} combinations of attributes and options to make goals of; "
            "take human_goals=True or a file of goals"
        )
    if not len(goals):
        wanted = "items_human_ins*.json with instructions" if human else "items_ins_v2*.json with instructions"
        raise DataError(f"{name} has no {'human' if human else 'synthetic'} goals; they come from {wanted}")
    return goals


@functools.lru_cache(maxsize=4)
def _goals_file(path: str, stamps: tuple[FileStamp, ...]) -> Sequence[Goal]:
    return read_goals(path)


def prices_of(path: str) -> Mapping[str, float]:
    """Drawn prices from a file, read once."""
    return _prices_file(path, file_stamps([user_path(path)]))


@functools.lru_cache(maxsize=4)
def _prices_file(path: str, stamps: tuple[FileStamp, ...]) -> Mapping[str, float]:
    return read_prices(path)
