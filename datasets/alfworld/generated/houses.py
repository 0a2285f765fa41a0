"""Generated ALFWorld houses: random access, solvable by construction, splits disjoint in scenes or in tasks.

Task i of a split is a function of the split's name, i, the size and the families alone. As in the original,
`valid_seen` uses scenes of train with tasks (scene, family, thing, place) that train never asks for, and
`valid_unseen` has scenes of its own.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from dataclasses import dataclass, replace

from agent_envs.datasets.alfworld.generated import scenes
from agent_envs.datasets.alfworld.generated.scenes import Place, Scene, coordinates, placement_weight
from agent_envs.datasets.alfworld.object_classes import CAN_CONTAIN, CLEANABLE, COOLABLE, HEATABLE, MOVABLE_RECEPTACLES
from agent_envs.datasets.alfworld.problem import FAMILIES
from agent_envs.datasets.generated_tasks import Draws, Range, shuffled, stream

_APPLIANCE = {
    "pick_clean_then_place_in_recep": ("SinkBasin", CLEANABLE),
    "pick_heat_then_place_in_recep": ("Microwave", HEATABLE),
    "pick_cool_then_place_in_recep": ("Fridge", COOLABLE),
}
_LOOK, _TWO, _SIMPLE = "look_at_obj_in_light", "pick_two_obj_and_place", "pick_and_place_simple"
_SEEN_SHARE = 10  # one in ten tasks of a seen scene belongs to valid_seen
_MOST_ALIKE = 3  # things of one class at most


@dataclass(frozen=True, slots=True)
class Target:
    """What a task asks for."""

    family: str
    object_class: str
    receptacle_class: str
    """The class of receptacle it goes to, "" if it is only looked at."""
    toggle_class: str
    """The class of the lamp, "" if there is none."""

    @property
    def name(self) -> str:
        """Its name in the names of released folders: `FAMILY-THING-None-PLACE`."""
        return f"{self.family}-{self.object_class}-None-{self.receptacle_class or self.toggle_class}"


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing in a house."""

    object_id: str
    """Class and coordinates: `Mug|+00.41|+00.93|+00.99`."""
    object_class: str
    holder: str
    """The id of the receptacle it is in or on, "" on walls and floor."""
    location: str
    """The location from which it can be reached."""
    pickupable: bool
    """Whether it can be taken."""
    inside: str = ""
    """The id of the bowl, mug or box that it is in, "" for none."""


@dataclass(frozen=True, slots=True)
class GeneratedHouse:
    """One generated game."""

    task_id: str
    """`alfworld-generated/SPLIT/SIZE[/FAMILIES]/INDEX`."""
    scene: Scene
    things: tuple[Thing, ...]
    target: Target
    task: str
    """The task in words, as after "Your task is to: ", without the full stop."""

    @property
    def folder(self) -> str:
        """Its folder, named as in the released data: `FAMILY-THING-None-PLACE-SCENE`."""
        return f"{self.target.name}-{self.scene.number}"


@functools.lru_cache(maxsize=4)
def build_house(split: str, index: int, size: tuple[int, int], families: tuple[str, ...]) -> GeneratedHouse:
    """Return one generated game."""
    some = "" if families == FAMILIES else "/" + "+".join(str(FAMILIES.index(name) + 1) for name in families)
    name = f"alfworld-generated/{split}/{Range(*size)}{some}/{index}"
    draws = stream(name)
    family = draws.pick(families)
    rooms = [room for room in scenes.ROOMS if family in room.families]
    seen = scenes.SEEN_SCENES
    first, last = (seen + 1, seen + scenes.UNSEEN_SCENES) if split == "valid_unseen" else (1, seen)
    while True:
        room = draws.pick(rooms)
        scene = scenes.build_scene(room, draws.between(first, last), draws.between(*size))
        choices = targets_of(scene, family)
        if split != "valid_unseen":
            choices = _of_split(scene, choices, split)
        if choices:
            target = draws.pick(draws.pick(choices))
            break
    things = _furnish(draws, scene, target)
    words = draws.pick(scenes.TASK_PHRASES[family]).format(
        obj=target.object_class.lower(), recep=target.receptacle_class.lower(), toggle=target.toggle_class.lower()
    )
    return GeneratedHouse(name, scene, tuple(things), target, words)


Choices = tuple[tuple[Target, ...], ...]


def _of_split(scene: Scene, choices: Choices, split: str) -> Choices:
    """Return the targets that belong to a split, in a scene that two splits share."""

    def own(target: Target) -> bool:
        key = f"{scene.number}/{scene.size}/{target.name}"
        return (hashlib.sha256(key.encode()).digest()[0] * _SEEN_SHARE < 256) == (split == "valid_seen")

    return tuple(filter(None, (tuple(filter(own, targets)) for targets in choices)))


@functools.lru_cache(maxsize=64)
def targets_of(scene: Scene, family: str) -> Choices:
    """Return what a family can ask for in a scene: the possible targets for each class of things."""
    appliance, able = _APPLIANCE.get(family, ("", frozenset(scene.room.objects)))
    if appliance and appliance not in scene.classes:
        return ()
    lamps = [name for name in scene.room.decor if name.endswith("Lamp") and _stands(scene, name)]
    if family == _LOOK:
        looked = [name for name in scene.things if _possible_places(scene, name, "")]
        return tuple(tuple(Target(family, name, "", lamp) for lamp in lamps) for name in looked if lamps)
    choices = (
        tuple(
            Target(family, name, place, "")
            for place in sorted(scene.classes)
            if name in CAN_CONTAIN[place] and place != appliance and _possible_places(scene, name, place)
        )
        for name in scene.things
        if name in able
    )
    return tuple(filter(None, choices))


def _stands(scene: Scene, decor: str) -> list[Place]:
    """Return where a fixed thing may stand."""
    return [place for place in scene.places if place.receptacle_class in scene.room.decor[decor]]


def _possible_places(scene: Scene, object_class: str, besides: str) -> list[tuple[Place, int]]:
    """Return where a thing may be and how likely, outside one class of receptacles."""
    return [
        (place, weight)
        for place in scene.places
        if place.receptacle_class != besides and (weight := placement_weight(object_class, place.receptacle_class))
    ]


def _furnish(draws: Draws, scene: Scene, target: Target) -> list[Thing]:
    """Put things in their places. Those that the task asks for can be taken and are not yet at their destination."""
    layout = _Layout(draws)
    for name, places in scene.room.decor.items():
        spots = _stands(scene, name)
        if spots and places and (name == target.toggle_class or draws.between(1, 100) <= 55):
            layout.put(name, draws.pick(spots), pickupable=False)
    for place in scene.places:
        if place.receptacle_class in ("SinkBasin", "BathtubBasin"):
            layout.stand(place.receptacle_class.removesuffix("Basin"), place)
        elif place.receptacle_class == "StoveBurner":
            layout.stand("StoveKnob", place)
    for name in scene.room.scenery[: 1 + scene.size]:
        layout.stand(name, None)
    wanted = 2 if target.family == _TWO else 1
    for name in scene.things:
        sought = name == target.object_class
        besides = target.receptacle_class if sought and target.family in (_SIMPLE, _TWO) else ""
        candidates = _possible_places(scene, name, besides)
        count = max(wanted, _draw_count(draws)) if sought else _draw_count(draws)
        for _ in range(count):
            if not sought and draws.between(1, 100) <= 4:
                layout.stand(name, None, pickupable=True)  # on the floor, from which nothing can be taken
            else:
                sums = list(itertools.accumulate(weight for _, weight in candidates))
                drawn = draws.between(1, sums[-1])
                layout.put(name, next(at for (at, _), upto in zip(candidates, sums, strict=True) if drawn <= upto))
    return shuffled(draws, layout.finished(target.object_class))


def _draw_count(draws: Draws) -> int:
    drawn = draws.between(1, 100)
    return 1 if drawn <= 60 else 2 if drawn <= 85 else _MOST_ALIKE


class _Layout:
    """Puts things in place one by one, each with its own coordinates."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.things: list[Thing] = []
        self._ids: set[str] = set()

    def put(self, name: str, place: Place, *, pickupable: bool = True) -> None:
        """Put a thing into or onto a receptacle."""
        self.things.append(
            Thing(self._name(name, place.position), name, place.receptacle_id, place.location, pickupable)
        )

    def stand(self, name: str, near: Place | None, *, pickupable: bool = False) -> None:
        """Put a thing on the floor or a wall, near a receptacle or by itself."""
        between = self.draws.between
        if near is None:
            position = (between(-400, 400), between(0, 180), between(-400, 400))
            location = f"loc|{between(60, 90)}|{len(self.things)}|{between(0, 3)}|{self.draws.pick((0, 30, 60))}"
        else:
            position, location = near.position, near.location
        self.things.append(Thing(self._name(name, position), name, "", location, pickupable))

    def finished(self, sought: str) -> list[Thing]:
        """Return all things, a few of them moved into a bowl, mug, cup or box in the same place."""
        done = []
        for thing in self.things:
            small = thing.holder and thing.pickupable and thing.object_class not in MOVABLE_RECEPTACLES | {sought}
            if small and self.draws.between(1, 100) <= 4:
                near = (other for other in self.things if other.holder == thing.holder)
                outer = next((other for other in near if other.object_class in ("Bowl", "Box", "Cup", "Mug")), None)
                thing = replace(thing, inside=outer.object_id) if outer else thing
            done.append(thing)
        return done

    def _name(self, name: str, position: tuple[int, int, int]) -> str:
        between = self.draws.between
        while True:
            x, y, z = position
            at = (x + between(-30, 30), max(0, y + between(-5, 15)), z + between(-30, 30))
            identity = f"{name}|{coordinates(at)}"
            if identity not in self._ids:
                self._ids.add(identity)
                return identity
