"""WebShop's tasks: the goals of a catalog, by split and number."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_envs.checks import choice
from agent_envs.datasets.paths import user_path
from agent_envs.datasets.webshop.goals import (
    MOST_GOALS,
    read_goals,
    read_prices,
    read_released_goals,
    released_full_goals,
    released_small_goals,
)
from agent_envs.datasets.webshop.products import Goal
from agent_envs.datasets.webshop.released_files import DATABASE
from agent_envs.errors import ConfigError, DataError, TaskIndexError
from agent_envs.tasks import FileStamp, IndexedTasks, file_stamps

if TYPE_CHECKING:
    from agent_envs.datasets.webshop.store import ProductStore

SPLITS = ("train", "validation", "test", "all")
_ALIASES = {"eval": "validation", "val": "validation", "dev": "validation"}
_TEST_ENDS, _VALIDATION_ENDS = 500, 1500
_RELEASED_SMALL_TEST = 200
Goals = Sequence[Goal] | Mapping[int, Goal]
_SHARE = 6  # of a list too short for these bounds, a sixth is test and a sixth validation


@dataclass(frozen=True, slots=True)
class WebShopTask:
    """One goal to play."""

    task_id: str
    """`webshop/NUMBER`."""
    number: int
    """Its number in the whole list."""
    goal: Goal


def split_bounds(count: int) -> dict[str, range]:
    """Return the numbers of each split's goals: the original's bounds, or a sixth each if the list is short.

    >>> split_bounds(12087)["train"], split_bounds(13)
    (range(1500, 12087), {'test': range(0, 2), 'validation': range(2, 4), 'train': range(4, 13), 'all': range(0, 13)})
    """
    first, second = _TEST_ENDS, _VALIDATION_ENDS
    if count <= _VALIDATION_ENDS:
        first, second = count // _SHARE, 2 * (count // _SHARE)
    ranges = {"test": range(first), "validation": range(first, second), "train": range(second, count)}
    return {**ranges, "all": range(count)}


def released_bounds(count: int, *, small: bool) -> dict[str, range]:
    """Return the numbers of each split's goals in Agent-R1's shops: the last 200 of the small one's are test.

    >>> released_bounds(6910, small=True)["test"], released_bounds(700, small=False)["train"]
    (range(6710, 6910), range(500, 700))
    """
    test = _RELEASED_SMALL_TEST if small else _TEST_ENDS
    held_out = test if test < count else count // _SHARE
    first = count - held_out if small else held_out
    begin, end = range(first), range(first, count)
    return {"train": begin if small else end, "test": end if small else begin, "all": range(count)}


class WebShopTasks(IndexedTasks[WebShopTask]):
    """The goals of one split of a list of goals; `name` says where they come from, as for `IndexedTasks`.

    `bounds` has the numbers of each split's goals if they are not those of `split_bounds`.
    """

    def __init__(self, name: str, split: str, goals: Goals, bounds: Mapping[str, Sequence[int]] | None = None) -> None:
        super().__init__(name, check_split(split))
        self.goals = goals
        self._numbers = (split_bounds(len(goals)) if bounds is None else bounds).get(self.split, range(0))
        if not self._numbers:
            raise ConfigError(f"{name} has {len(goals)} goals, too few for a split {split!r}; use split='all'")

    def __len__(self) -> int:
        return len(self._numbers)

    def get(self, index: int) -> WebShopTask:
        number = self._numbers[index]
        return WebShopTask(f"webshop/{number}", number, self.goals[number])

    def index_of(self, number: int) -> int:
        """Return the index in this split of a goal by its number in the whole list."""
        if number not in self._numbers:
            some = f"goals {self._numbers[0]} to {self._numbers[-1]}"
            raise TaskIndexError(
                f"the split {self.split!r} of {self.name} has {some}, got goal {number}; split='all' has every goal"
            )
        return self._numbers.index(number)


def check_split(split: str) -> str:
    """Return the name of a split, aliases resolved; ConfigError if there is no such split."""
    return choice("split", _ALIASES.get(split, split), SPLITS)


def goals_of(
    catalog: ProductStore, human: bool | None, path: str | None, name: str, site: str = "official"
) -> tuple[Goals, Mapping[str, Sequence[int]] | None]:
    """Return the goals to play: of human instructions or synthetic ones, or those of a file or release at `path`.

    `human=None` prefers human instructions if there are any, where the site is the official one; `name` is the data's,
    for errors. With the goals of a release come the numbers of its splits' goals.
    """
    if path is not None or (user_path(name) / DATABASE).is_file():  # the goals of a release are beside its products
        goals_path = user_path(name if path is None else path)
        if files := [goals_path] if goals_path.suffix == ".parquet" else sorted(goals_path.glob("*.parquet")):
            return _once(read_released_goals, (tuple(files), catalog.product), file_stamps(files))
        file = goals_path / "goals.json" if goals_path.is_dir() else goals_path
        read = _once(read_goals, (file,), file_stamps([file]))
        return read, None if file == goals_path else released_bounds(len(read), small=False)
    human = (catalog.human and site != "agentr1-small") if human is None else human
    goals = catalog.goals(human) if site == "official" else _rebuilt(catalog, human)
    if len(goals) > MOST_GOALS:
        raise DataError(f"{name} has more than {MOST_GOALS:,} synthetic goals; use human_goals=True or a file of goals")
    if not len(goals):
        source = "items_human_ins*.json" if human else "items_ins_v2*.json"
        raise DataError(f"{name} has no {'human' if human else 'synthetic'} goals: {source} has no instructions")
    return goals, None if site == "official" else released_bounds(len(goals), small=not human)


@functools.lru_cache(maxsize=8)
def _rebuilt(catalog: ProductStore, human: bool) -> Sequence[Goal]:
    """Return the goals of Agent-R1's shops, which are made by rules of their own."""
    if not human:
        return released_small_goals(catalog.products())
    return released_full_goals(map(catalog.product_at, sorted(set(catalog.goals(True).products()))))


def prices_of(path: str) -> Mapping[str, float]:
    """Return drawn prices from a file, which is read once."""
    return _once(read_prices, (path,), file_stamps([user_path(path)]))


@functools.lru_cache(maxsize=8)
def _once(read: Callable[..., Any], arguments: tuple[Any, ...], stamps: tuple[FileStamp, ...]) -> Any:
    return read(*arguments)
