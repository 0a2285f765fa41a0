"""Generated ALFWorld houses as problems for the engines to play, and as the tasks of a split."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_envs.datasets.alfworld import object_classes
from agent_envs.datasets.alfworld.generated import houses
from agent_envs.datasets.alfworld.pddl import family_goal
from agent_envs.datasets.alfworld.problem import FAMILIES, PACKAGED, SPLIT_ALIASES, Problem
from agent_envs.datasets.generated_tasks import GeneratedTasks, parse_families, parse_range

DEFAULT_SIZE = "2-4"
_AGENT = "agent1"
_TYPES = {name: f"{name.lower()}type" for name in (*object_classes.OBJECT_CLASSES, *object_classes.RECEPTACLE_CLASSES)}
_CLASSES = {
    **{_TYPES[name]: "otype" for name in object_classes.OBJECT_CLASSES},
    **{_TYPES[name]: "rtype" for name in object_classes.RECEPTACLE_CLASSES},
}
_ABILITIES = (
    ("cleanable", object_classes.CLEANABLE),
    ("heatable", object_classes.HEATABLE),
    ("coolable", object_classes.COOLABLE),
    ("toggleable", object_classes.TOGGLEABLE),
    ("sliceable", object_classes.SLICEABLE),
    ("isreceptacleobject", object_classes.MOVABLE_RECEPTACLES),
)
_House = tuple[str, int, tuple[int, int], tuple[str, ...]]
_MARKS = str.maketrans({"|": "_bar_", "-": "_minus_", "+": "_plus_", ".": "_dot_", ",": "_comma_"})


def mangled(identity: str) -> str:
    """Return an id as PDDL writes it, in lower case: "Mug|-00.41" as "mug_bar__minus_00_dot_41"."""
    return sys.intern(identity.translate(_MARKS).lower())  # the houses of a scene share places


def house_problem(house: houses.GeneratedHouse) -> Problem:
    """Return a house as a problem: its objects, facts and goal."""
    start = mangled(house.scene.start)
    objects = {_AGENT: "agent", **_CLASSES, start: "location"}
    facts: list[tuple[str, ...]] = [("atlocation", _AGENT, start)]
    for place in house.scene.places:
        identity, location = mangled(place.receptacle_id), mangled(place.location)
        objects |= {identity: "receptacle", location: "location"}
        facts.append(("receptacletype", identity, _TYPES[place.receptacle_class]))
        facts.append(("receptacleatlocation", identity, location))
        if place.openable:
            facts.append(("openable", identity))
    for thing in house.things:
        identity, location = mangled(thing.object_id), mangled(thing.location)
        objects |= {identity: "object", location: "location"}
        facts.append(("objecttype", identity, _TYPES[thing.object_class]))
        facts.append(("objectatlocation", identity, location))
        facts.extend((can, identity) for can, classes in _ABILITIES if thing.object_class in classes)
        if thing.pickupable:
            facts.append(("pickupable", identity))
        if thing.holder:
            facts.append(("inreceptacle", identity, mangled(thing.holder)))
        if thing.inside:
            facts.append(("inreceptacleobject", identity, mangled(thing.inside)))
    about = {thing.object_class for thing in house.things}
    for holder in sorted(house.scene.classes):
        for name in sorted(about & object_classes.CAN_CONTAIN[holder]):
            facts.append(("cancontain", _TYPES[holder], _TYPES[name]))
    target = house.target
    return Problem(
        name=f"plan_{house.task_id.replace('/', '_')}",
        objects=objects,
        facts=tuple(facts),
        goal=family_goal(target.family, target.object_class, target.receptacle_class, target.toggle_class),
        task=house.task,
        family=target.family,
        params={
            "mrecep_target": "",
            "object_target": target.object_class,
            "parent_target": target.receptacle_class,
            "toggle_target": target.toggle_class,
        },
        wording=PACKAGED,
    )


@dataclass(frozen=True, slots=True)
class GeneratedGame:
    """One task of a generated split. Its problem is made when it is asked for, so that thousands of them are small."""

    task_id: str
    """`alfworld-generated/SPLIT/SIZE[/FAMILIES]/INDEX`."""
    game: str
    """Its folder within the data that `agentr1 generate alfworld` writes."""
    family: str
    """The family of the task."""
    house: _House
    """The split, the index, the sizes and the families that `build_house` makes its house from."""

    @property
    def problem(self) -> Problem:
        """The house as a problem."""
        return _problem(self.house)


class GeneratedHouses(GeneratedTasks[GeneratedGame]):
    """The generated tasks of one split.

    Args:
        split: "train" (100,000 tasks), "valid_seen" or "valid_unseen" (1,000 each); "validation" and "test" are aliases
            of the latter two.
        size: 1 to 5, or a range like "2-4" or [2, 4] from which each task's size is drawn evenly. A house has about 7,
            11, 16, 24 or 37 receptacles, of which 2, 3, 6, 10 or 18 start closed, and 13, 18, 23, 28 or 34 things that
            can be taken.
        families: The families to draw from; None for all six.
    """

    sizes: ClassVar[Mapping[str, int]] = {"train": 100_000, "valid_seen": 1_000, "valid_unseen": 1_000}

    def __init__(
        self,
        split: str = "train",
        size: int | str | Sequence[int] = DEFAULT_SIZE,
        families: str | Iterable[str] | None = None,
    ) -> None:
        split = SPLIT_ALIASES.get(split, split) if isinstance(split, str) else split
        self.size = parse_range("size", size, 1, 5)
        self.families = parse_families(families, FAMILIES)
        super().__init__(split, split, self.size, self.families, cache=1024)

    def get(self, index: int) -> GeneratedGame:
        house = self.split, index, self.size, self.families
        built = houses.build_house(*house)
        game = f"{self.split}/{built.folder}/trial_G{index:06d}"
        return GeneratedGame(built.task_id, game, built.target.family, house)

    def content(self, index: int) -> dict[str, Any]:
        """Return a task with its problem."""
        game = self[index]
        return {"task_id": game.task_id, "game": game.game, "problem": game.problem}


@functools.lru_cache(maxsize=16)
def _problem(house: _House) -> Problem:
    return house_problem(houses.build_house(*house))
