"""Generated ALFWorld houses and the game files made of them.

1. Classes are those of the alfworld package. 2. A task is a function of split, index, size and families. 3. Splits
share no task; valid_unseen shares no scene and no receptacle inventory. 4. Every task asks for what can be done.
5. Files hold the same game, are written whole, continued, and never over something else.
"""

import collections
import json
import pickle

import pytest

from agent_envs.cli.main import main
from agent_envs.datasets.alfworld import object_classes as classes
from agent_envs.datasets.alfworld.generate import generate_alfworld, problem_text
from agent_envs.datasets.alfworld.generated.houses import build_house
from agent_envs.datasets.alfworld.generated.scenes import ROOMS, TASK_PHRASES, placement_weight
from agent_envs.datasets.alfworld.generated.tasks import GeneratedHouses, house_problem
from agent_envs.datasets.alfworld.pddl import parse_problem
from agent_envs.datasets.alfworld.problem import FAMILIES, PACKAGED
from agent_envs.datasets.alfworld.rows import GAME_FILE, TRAJECTORY_FILE
from agent_envs.errors import AgentEnvsError, ConfigError, TaskIndexError

SIZE = (2, 4)


def _inventory(house):
    return house.scene.room.name, tuple(
        sorted(collections.Counter(p.receptacle_class for p in house.scene.places).items())
    )


@pytest.fixture(scope="module")
def samples():
    return {split: [build_house(split, i, SIZE, FAMILIES) for i in range(100)] for split in GeneratedHouses.sizes}


def test_classes_are_those_of_the_package():
    theirs = pytest.importorskip("alfworld.gen.constants", reason="needs the alfworld package")
    goals = pytest.importorskip("alfworld.gen.goal_library").gdict

    def whole(names):
        return {name for name in names if not name.endswith("Sliced")}

    assert set(classes.MOVABLE_RECEPTACLES) == set(theirs.MOVABLE_RECEPTACLES)
    assert set(classes.RECEPTACLE_CLASSES) == set(theirs.RECEPTACLES) - set(theirs.MOVABLE_RECEPTACLES)
    assert set(classes.OBJECT_CLASSES) == set(theirs.OBJECTS_SET) - set(classes.RECEPTACLE_CLASSES)
    assert set(theirs.OPENABLE_CLASS_SET) - {"Box"} == classes.OPENABLE  # a box is an object here
    for name in classes.RECEPTACLE_CLASSES:
        assert classes.CAN_CONTAIN[name] == whole(theirs.VAL_RECEPTACLE_OBJECTS.get(name, ())), name
    for name, ours in (("Cleanable", classes.CLEANABLE), ("Heatable", classes.HEATABLE), ("Coolable", classes.COOLABLE),
                       ("Toggleable", classes.TOGGLEABLE), ("Sliceable", classes.SLICEABLE)):  # fmt: skip
        assert ours == whole(theirs.VAL_ACTION_OBJECTS[name]), name
    assert {family: tuple(goals[family]["templates"]) for family in FAMILIES} == TASK_PHRASES


def test_rooms_name_known_classes_and_everything_has_a_place():
    for room in ROOMS:
        assert set(room.receptacles) <= set(classes.RECEPTACLE_CLASSES)
        assert {*room.objects, *room.decor, *room.scenery} <= set(classes.OBJECT_CLASSES)
        assert all(
            len(ranges) == 5 and all(low <= high for low, high in ranges) for ranges in room.receptacles.values()
        )
        for name in room.objects:
            assert any(placement_weight(name, place) for place in room.receptacles), name


def test_a_task_depends_on_its_name_alone(samples):
    assert build_house("train", 7, SIZE, FAMILIES).things == samples["train"][7].things


def test_splits_share_no_task_and_unseen_no_scene():
    small = (1, 1), ("look_at_obj_in_light",)  # few enough tasks that splits without a rule would share some
    samples = {split: [build_house(split, i, *small) for i in range(150)] for split in GeneratedHouses.sizes}
    scenes = {split: {(h.scene.number, h.scene.size) for h in houses} for split, houses in samples.items()}
    goals = {split: {(h.scene.number, h.scene.size, h.target) for h in houses} for split, houses in samples.items()}
    inventories = {split: {_inventory(h) for h in houses} for split, houses in samples.items()}
    assert scenes["valid_seen"] & scenes["train"]
    assert not goals["valid_seen"] & goals["train"]
    assert not scenes["valid_unseen"] & (scenes["train"] | scenes["valid_seen"])
    assert not inventories["valid_unseen"] & (inventories["train"] | inventories["valid_seen"])


def test_every_task_asks_for_what_can_be_done(samples):
    for house in (house for houses in samples.values() for house in houses):
        target, places = house.target, {p.receptacle_id: p for p in house.scene.places}
        sought = [thing for thing in house.things if thing.object_class == target.object_class]
        assert len(sought) >= 1 + (target.family == "pick_two_obj_and_place")
        for thing in sought:
            assert thing.pickupable and thing.object_class in classes.CAN_CONTAIN[places[thing.holder].receptacle_class]
            if target.family in ("pick_and_place_simple", "pick_two_obj_and_place"):
                assert places[thing.holder].receptacle_class != target.receptacle_class
        if target.family == "look_at_obj_in_light":
            assert any(thing.object_class == target.toggle_class and thing.holder for thing in house.things)
        else:
            assert target.object_class in classes.CAN_CONTAIN[target.receptacle_class]
            assert target.receptacle_class in house.scene.classes
        identities = [thing.object_id for thing in house.things] + list(places)
        assert len(set(identities)) == len(identities)
        assert house.scene.start not in {p.location for p in places.values()}
        assert house.task == house.task.lower() and target.object_class.lower() in house.task


def test_tasks_by_index():
    tasks = GeneratedHouses.shared("validation", 1, "pick_two_obj_and_place")
    assert (tasks.split, len(tasks), len(GeneratedHouses("test")), len(GeneratedHouses("train"))) == (
        "valid_seen", 1000, 1000, 100_000,
    )  # fmt: skip
    assert {tasks[i].family for i in range(30)} == {"pick_two_obj_and_place"}
    assert pickle.loads(pickle.dumps(tasks)) is tasks
    assert tasks[0].game.startswith("valid_seen/pick_two_obj_and_place-") and tasks[0].game.endswith("/trial_G000000")
    with pytest.raises(TaskIndexError, match="tasks 0 to 999, got index 1000"):
        tasks[1000]
    with pytest.raises(ConfigError, match="Did you mean 'valid_seen'"):
        GeneratedHouses("valid_sen")


def test_a_written_problem_is_read_back_as_it_was(samples):
    for house in samples["train"]:
        problem = house_problem(house)
        again = parse_problem(
            problem_text(problem), problem.task, family=problem.family, params=problem.params, wording=PACKAGED
        )
        assert again == problem


# -- files -------------------------------------------------------------------------------------------------------------


def _games(folder):
    return sorted(folder.rglob(GAME_FILE))


def test_generate_writes_the_released_layout(tmp_path):
    pytest.importorskip("alfworld", reason="needs the alfworld package")
    assert main(["generate", "alfworld", "--n", "5", "--out", str(tmp_path / "data"), "--quiet", "--size", "1"]) == 0
    games = _games(tmp_path / "data")
    assert len(games) == 5
    for path in games:
        split, kind, trial, _ = path.relative_to(tmp_path / "data").parts
        task = GeneratedHouses("train", size=1)[int(trial[-6:])]
        assert task.game == f"{split}/{kind}/{trial}"
        game, trajectory = (json.loads((path.parent / name).read_text()) for name in (GAME_FILE, TRAJECTORY_FILE))
        assert set(game) == {"pddl_domain", "grammar", "pddl_problem", "solvable"} and game["solvable"] is True
        assert f"Your task is to: {task.problem.task}." in game["grammar"]
        assert trajectory["task_type"] == task.family
        assert trajectory["pddl_params"] == {**task.problem.params, "object_sliced": False}


def test_generate_replaces_its_own_split_and_nothing_else(tmp_path, capsys):
    pytest.importorskip("alfworld", reason="needs the alfworld package")
    data = tmp_path / "data"
    generate_alfworld(data, 3, size=1, progress=False)
    generate_alfworld(data, 2, split="test", size=1, progress=False)
    generate_alfworld(data, 4, size=2, progress=False)
    assert {path.name for path in data.iterdir()} == {"train", "valid_unseen"}
    assert [len(_games(data / split)) for split in ("train", "valid_unseen")] == [4, 2]
    (tmp_path / "other" / "train").mkdir(parents=True)
    (tmp_path / "other" / "train" / "mine.json").write_text("mine")
    assert main(["generate", "alfworld", "--n", "1", "--out", str(tmp_path / "other"), "--quiet"]) == 2
    assert "holds something other than generated games" in capsys.readouterr().err
    assert (tmp_path / "other" / "train" / "mine.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["generate", "alfword", "--out", "x"], "Did you mean 'alfworld'"),
        (["generate", "alfworld", "--out", "x", "--n", "0"], "n must be an integer from 1 to 1000000"),
        (["generate", "alfworld", "--out", "x", "--size", "9"], "size must be"),
        (["generate", "alfworld", "--out", "x", "--split", "dev"], "split must be one of"),
        (["generate", "alfworld", "--out", "x", "--families", "pick"], "families must be one of"),
    ],
)
def test_bad_arguments_of_generate(arguments, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--quiet"]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_missing_package_is_named(tmp_path, monkeypatch):
    from agent_envs.datasets.alfworld import generate as alfworld_generate

    alfworld_generate.packaged_logic.cache_clear()

    def missing(name):
        raise alfworld_generate.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(alfworld_generate.importlib.metadata, "files", missing)
    with pytest.raises(AgentEnvsError, match=r"agent-envs\[alfworld\]"):
        generate_alfworld(tmp_path / "data", 1, progress=False)
    assert not (tmp_path / "data").exists()
