"""`agentr1 generate alfworld`: generated houses as game files that the original engine loads, laid out as released.

    SPLIT/FAMILY-THING-None-PLACE-SCENE/trial_G000042/game.tw-pddl    {pddl_domain, grammar, pddl_problem, solvable}
    SPLIT/FAMILY-THING-None-PLACE-SCENE/trial_G000042/traj_data.json  {task_type, pddl_params, scene, ...}

The domain and the grammar are those of the `alfworld` package, which must be installed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

from tqdm import tqdm

from agent_envs.checks import integer
from agent_envs.datasets.alfworld.generated import houses
from agent_envs.datasets.alfworld.generated.houses import GeneratedHouse
from agent_envs.datasets.alfworld.generated.tasks import DEFAULT_SIZE, GeneratedHouses, house_problem
from agent_envs.datasets.alfworld.problem import Formula, Problem
from agent_envs.datasets.alfworld.rows import GAME_FILE, TRAJECTORY_FILE
from agent_envs.datasets.files import replaced_folder
from agent_envs.datasets.paths import expanded
from agent_envs.errors import DataError, MissingExtraError

MOST_GAMES = 1_000_000
_MANIFEST = ".generated.json"
_PLACEHOLDER = "UNKNOWN GOAL"


@functools.cache
def packaged_logic() -> tuple[str, str]:
    """Return the domain and the grammar of the `alfworld` package, read without importing it."""
    try:
        files = importlib.metadata.files("alfworld") or []
    except importlib.metadata.PackageNotFoundError as e:
        raise MissingExtraError("alfworld", extra="alfworld") from e
    texts = []
    for name in ("alfred.pddl", "alfred.twl2"):
        path = next((Path(str(file.locate())) for file in files if file.name == name), None)
        if path is None or not path.is_file():
            raise DataError(f"the installed alfworld package has no {name}; install alfworld==0.4.2")
        texts.append(path.read_text(encoding="utf-8"))
    if _PLACEHOLDER not in texts[1]:
        raise DataError(f"the grammar of the installed alfworld package does not contain {_PLACEHOLDER!r}")
    return texts[0], texts[1]


def problem_text(problem: Problem) -> str:
    """Return a problem in PDDL, objects grouped by type and one fact per line. `parse_problem` reads it back."""
    kinds: dict[str, list[str]] = {}
    for name, kind in problem.objects.items():
        kinds.setdefault(kind, []).append(name)
    lines = [f"(define (problem {problem.name})", "(:domain alfred)", "(:objects"]
    for kind, names in kinds.items():
        lines += [f"{name} - {kind}" for name in names]
    lines += [")", "(:init", *(f"({' '.join(fact)})" for fact in problem.facts), ")"]
    return "\n".join(lines) + f"\n(:goal\n{_formula_text(problem.goal, 1)}\n)\n)\n"


def _formula_text(formula: Formula, depth: int) -> str:
    head, *rest = formula
    pad = "    " * depth
    if head == "exists":
        variables = " ".join(f"{name} - {kind}" for name, kind in rest[0])
        return f"{pad}(exists ({variables})\n{_formula_text(rest[1], depth + 1)}\n{pad})"
    if head in ("and", "or", "not"):
        inner = "\n".join(_formula_text(part, depth + 1) for part in rest)
        return f"{pad}({head}\n{inner}\n{pad})"
    return f"{pad}({' '.join(formula)})"


def game_document(problem: Problem) -> dict[str, Any]:
    """Return the content of `game.tw-pddl` for a problem in the package's wording."""
    domain, grammar = packaged_logic()
    return {
        "pddl_domain": domain,
        "grammar": grammar.replace(_PLACEHOLDER, problem.task),
        "pddl_problem": problem_text(problem),
        "solvable": True,
    }


def trajectory_document(house: GeneratedHouse, problem: Problem) -> dict[str, Any]:
    """Return the content of `traj_data.json` for a generated house, as far as the package and its expert read it."""
    return {
        "images": [],
        "pddl_params": {**problem.params, "object_sliced": False},
        "plan": {"high_pddl": [], "low_actions": []},
        "scene": {
            "floor_plan": f"FloorPlan{house.scene.number}",
            "scene_num": house.scene.number,
            "object_poses": [],
            "object_toggles": [],
            "dirty_and_empty": False,
        },
        "task_id": house.task_id,
        "task_type": house.target.family,
        "turk_annotations": {"anns": [{"task_desc": f"{house.task}.", "high_descs": [], "votes": []}]},
    }


def generate_alfworld(
    out: str | os.PathLike[str],
    n: int = 1000,
    *,
    split: str = "train",
    size: int | str = DEFAULT_SIZE,
    families: str | None = None,
    progress: bool = True,
) -> Path:
    """Write tasks 0 to n - 1 of a split in the layout of the released data, and return the folder of the split.

    It replaces what an earlier call wrote there.
    """
    tasks = GeneratedHouses(split, size, families)
    n = integer("n", n, minimum=1, maximum=MOST_GAMES)
    packaged_logic()
    target = expanded(out) / tasks.split
    if target.is_dir() and any(target.iterdir()) and not (target / _MANIFEST).exists():  # the user's own work
        raise DataError(f"{target} holds something other than generated games, and is not replaced: give another --out")
    with replaced_folder(target) as folder:
        (folder / _MANIFEST).write_text(json.dumps({"size": tasks.size, "families": tasks.families}), encoding="utf-8")
        for index in tqdm(range(n), desc=f"alfworld {tasks.split}", unit="game", disable=not progress):
            house = houses.build_house(tasks.split, index, tasks.size, tasks.families)
            problem = house_problem(house)
            game = folder / house.folder / f"trial_G{index:06d}"
            game.mkdir(parents=True)
            (game / GAME_FILE).write_text(json.dumps(game_document(problem)), encoding="utf-8")
            (game / TRAJECTORY_FILE).write_text(json.dumps(trajectory_document(house, problem)), encoding="utf-8")
    return target
