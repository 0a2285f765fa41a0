"""ALFWorld-v0 by scripted episodes, on hand-made, real and generated games.

1. Golden transcripts in both editions of the texts; conditions count as ALFRED counts them.
2. Splits, families, order, flags and paths of the released games are as documented.
3. Broken, cut off, foreign and unreachable games are errors that name the file and what is wrong.
4. strict, put_alias, hostile commands: the original's answer stays, only info marks it.
5. Episodes branch, pickle and run on eight threads as they run alone; memory stays flat; nothing heavy is imported.
6. The original engine plays the same through the environment, snapshots included, and says which extra it lacks.
"""

import importlib.util
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import gymnasium as gym
import pytest

import agent_envs
from agent_envs.branching import tried
from agent_envs.datasets.alfworld.generated.tasks import GeneratedHouses
from agent_envs.datasets.alfworld.pddl import family_goal, parse_problem
from agent_envs.datasets.alfworld.problem import FAMILIES, PACKAGED, RELEASED, Problem
from agent_envs.datasets.alfworld.rows import GAME_FILE, alfworld_games, load_game, load_problem
from agent_envs.envs.alfworld.engine import begin, intro, play
from agent_envs.envs.alfworld.game import GroundedGame
from agent_envs.envs.alfworld.oracle import oracle_action
from agent_envs.envs.alfworld.reward import condition_rate
from agent_envs.envs.alfworld.session import anchor_text
from agent_envs.errors import ConfigError, DataError, MissingExtraError, TaskIndexError
from agent_envs.testing import HOSTILE_ACTIONS, check_text_env

ENV = "AgentR1/ALFWorld-v0"
NOTHING = "Nothing happens."


def kitchen(family="pick_heat_then_place_in_recep", thing="Mug", place="CounterTop", wording=PACKAGED) -> Problem:
    """Two counters at one place, a cabinet, a sink, a microwave, a fridge; two mugs, a knife, an apple, a lamp."""
    stands = {
        "countertop_bar_1": ("countertop", "loc_bar_1"),
        "countertop_bar_2": ("countertop", "loc_bar_1"),
        "cabinet_bar_1": ("cabinet", "loc_bar_2"),
        "sink_bar_1_bar_sinkbasin": ("sinkbasin", "loc_bar_3"),
        "microwave_bar_1": ("microwave", "loc_bar_4"),
        "fridge_bar_1": ("fridge", "loc_bar_5"),
    }
    things = {
        "mug_bar_1": ("mug", "cabinet_bar_1"),
        "mug_bar_2": ("mug", "countertop_bar_1"),
        "knife_bar_1": ("knife", "countertop_bar_1"),
        "apple_bar_1": ("apple", "countertop_bar_2"),
        "desklamp_bar_1": ("desklamp", "countertop_bar_2"),
    }
    objects = {"agent1": "agent", "loc_bar_9": "location"}
    facts = [("atlocation", "agent1", "loc_bar_9")]
    for name, (kind, location) in stands.items():
        objects |= {name: "receptacle", location: "location", f"{kind}type": "rtype"}
        facts += [("receptacletype", name, f"{kind}type"), ("receptacleatlocation", name, location)]
        facts += [("openable", name)] if kind in ("cabinet", "microwave", "fridge") else []
    for name, (kind, receptacle) in things.items():
        objects |= {name: "object", f"{kind}type": "otype"}
        facts += [("objecttype", name, f"{kind}type"), ("inreceptacle", name, receptacle)]
        facts += [("objectatlocation", name, stands[receptacle][1])]
        facts += [("pickupable", name)] if kind != "desklamp" else [("toggleable", name)]
        facts += [(f"{can}able", name) for can in ("clean", "heat", "cool") if kind in ("mug", "apple")]
        facts += [("sliceable", name)] if kind == "apple" else []
    kinds = {kind for kind, _ in stands.values()}
    facts += [("cancontain", f"{r}type", f"{o}type") for r in sorted(kinds) for o in ("mug", "knife", "apple")]
    goal = family_goal(family, thing, place, "DeskLamp")
    return Problem("p", objects, tuple(facts), goal, "do it", family, {}, wording)


def run(problem, *commands):
    house = GroundedGame(problem)
    state = begin(house)
    return house, state, [intro(house, state), *(play(house, state, command) for command in commands)]


GOLDEN = [
    ("look", "You are in the middle of a room. Looking quickly around you, you see nothing."),
    ("inventory", "You are not carrying anything."),
    ("go to cabinet 1", "You arrive at cabinet 1. The cabinet 1 is closed."),
    ("take mug 2 from cabinet 1", NOTHING),
    ("open cabinet 1", "You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 2."),
    ("open cabinet 1", NOTHING),
    ("examine mug 2", NOTHING),  # only what is in hand can be examined
    ("  take mug 2 from cabinet 1\t", "You pick up the mug 2 from the cabinet 1."),
    ("Take mug 2 from cabinet 1", NOTHING),
    ("inventory", "You are carrying: a mug 2."),
    ("examine cabinet 1", "The cabinet 1 is open. In it, you see nothing."),
    ("close cabinet 1", "You close the cabinet 1."),
    ("move mug 2 to cabinet 1", NOTHING),
    ("go to cabinet 1", NOTHING),  # the agent is there
    ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
    ("heat mug 2 with microwave 1", "You heat the mug 2 using the microwave 1."),  # closed as it is
    ("examine mug 2", "This is a hot mug 2."),
    ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
    ("cool mug 2 with fridge 1", "You cool the mug 2 using the fridge 1."),
    ("examine mug 2", "This is a cold mug 2."),
    ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
    ("clean mug 2 with sinkbasin 1", "You clean the mug 2 using the sinkbasin 1."),
    ("examine mug 2", "This is a cool and clean mug 2."),
    ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
    ("heat mug 2 with microwave 1", "You heat the mug 2 using the microwave 1."),
    ("examine mug 2", "This is a hot and clean mug 2."),
    ("go to countertop 2", "You arrive at countertop 2. On the countertop 2, you see a knife 1, and a mug 1."),
    ("look", "You are facing the countertop 2, and countertop 1. Next to it, you see nothing."),
    ("go to countertop 1", NOTHING),  # at the same place
    ("examine countertop 1", "On the countertop 1, you see a apple 1, and a desklamp 1."),
    ("use desklamp 1", "You turn on the desklamp 1."),
    ("use desklamp 1", "You turn on the desklamp 1."),
    ("move mug 2 to countertop 1", "You move the mug 2 to the countertop 1."),
]


def test_a_golden_transcript():
    house, state, texts = run(kitchen(), *(command for command, _ in GOLDEN))
    assert texts[0] == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
        "cabinet 1, a countertop 2, a countertop 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: do it."
    )
    assert texts[1:] == [answer for _, answer in GOLDEN]
    assert state.won and condition_rate(house, state) == 1.0
    assert state.commands == [
        "examine countertop 1", "examine countertop 2", "go to cabinet 1", "go to fridge 1", "go to microwave 1",
        "go to sinkbasin 1", "help", "inventory", "look", "take apple 1 from countertop 1",
        "take knife 1 from countertop 2", "take mug 1 from countertop 2", "take mug 2 from countertop 1",
        "use desklamp 1",
    ]  # fmt: skip


def test_things_on_the_floor_and_slicing():
    commands = ["go to countertop 1", "take apple 1 from countertop 1", "move apple 1 to countertop 2", "look"]
    *_, look = run(kitchen(), *commands)[2]
    assert look.endswith("Next to it, you see a apple 1.")
    *_, texts = run(
        kitchen(), "go to countertop 1", "take knife 1 from countertop 2", "slice apple 1 with knife 1",
        "move knife 1 to countertop 2", "take apple 1 from countertop 1", "examine apple 1",
        "go to sinkbasin 1", "clean apple 1 with sinkbasin 1", "examine apple 1",
    )  # fmt: skip
    assert texts[3] == "You sliced the apple 1 with the knife 1."
    assert texts[6] == "This is a sliced apple 1." and texts[9] == "This is a clean sliced apple 1."


def test_the_released_edition():
    problem = kitchen("pick_and_place_simple", "Mug", "Cabinet", RELEASED)
    _, state, texts = run(
        problem, "help", "go to countertop 1", "take mug 1 from countertop 2", "go to cabinet 1", "open cabinet 1",
        "move mug 1 to cabinet 1", "put mug 1 in/on cabinet 1",
    )  # fmt: skip
    assert texts[1] == NOTHING and "help" not in state.commands
    assert texts[2] == "You arrive at loc 6. On the countertop 1, you see a apple 1, and a desklamp 1."
    assert texts[-2:] == [NOTHING, "You put the mug 1 in/on the cabinet 1."]


@pytest.mark.parametrize(
    ("family", "place", "commands", "rates"),
    [
        ("pick_and_place_simple", "Fridge", ["go to countertop 1", "take mug 1 from countertop 2", "go to fridge 1",
         "open fridge 1", "move mug 1 to fridge 1"], [0, 0, 0, 0, 1]),
        ("pick_two_obj_and_place", "SinkBasin", ["go to countertop 1", "take mug 1 from countertop 2",
         "go to sinkbasin 1", "move mug 1 to sinkbasin 1", "go to cabinet 1", "open cabinet 1",
         "take mug 2 from cabinet 1", "go to sinkbasin 1", "move mug 2 to sinkbasin 1"],
         [0, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 1]),
        ("look_at_obj_in_light", "", ["go to countertop 1", "use desklamp 1", "take mug 1 from countertop 2"],
         [0, 0.5, 1]),
        ("look_at_obj_in_light", "", ["go to countertop 1", "take mug 1 from countertop 2", "use desklamp 1"],
         [0, 0.5, 1]),
        ("pick_clean_then_place_in_recep", "CounterTop", ["go to countertop 1", "take mug 1 from countertop 2",
         "go to sinkbasin 1", "clean mug 1 with sinkbasin 1", "go to countertop 2", "move mug 1 to countertop 2"],
         [1 / 3, 0, 0, 1 / 3, 1 / 3, 1]),  # a mug that is not clean is in place at first
    ],
)  # fmt: skip
def test_conditions_count_as_alfred_counts_them(family, place, commands, rates):
    house = GroundedGame(kitchen(family, "Mug", place))
    state = begin(house)
    seen = []
    for command in commands:
        assert not state.won
        assert play(house, state, command) != NOTHING
        seen.append(condition_rate(house, state))
    assert seen == pytest.approx(rates) and state.won


def test_the_anchor_has_no_history():
    house, there, _ = run(kitchen(), "go to cabinet 1", "open cabinet 1")
    _, back, _ = run(kitchen(), "go to fridge 1", "xyz", "go to cabinet 1", "look", "open cabinet 1")
    _, other, _ = run(kitchen(), "go to fridge 1", "open fridge 1", "go to cabinet 1", "open cabinet 1")
    assert anchor_text(house, there) == anchor_text(house, back) != anchor_text(house, other)


# -- the released games ------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def released(data_dir):
    return data_dir / "alfworld" / "json_2.1.1"


def test_the_released_games_in_their_order(released, data_dir, tmp_path):
    games = alfworld_games(str(released), "valid_train")
    names = [game.task_id for game in games]
    assert len(games) == 18 and names == sorted(names) and {game.family for game in games} == set(FAMILIES)
    mirror = tmp_path / "elsewhere"
    for name in random.Random(0).sample(names, len(names)):  # made in another order
        shutil.copytree(released / name, mirror / "json_2.1.1" / name)
    for skipped in ("valid_train/pick_and_place_with_movable_recep-A-B-C-1/t", "valid_train/x-AppleSliced-None-D-1/t"):
        shutil.copytree(released / names[0], mirror / "json_2.1.1" / skipped)
    assert [game.task_id for game in alfworld_games(str(mirror), "valid_train")] == names
    some = alfworld_games(str(released), "valid_train", ("pick_two_obj_and_place",))
    assert len(some) == 3
    with pytest.raises(ConfigError, match="has no split 'valid_unseen'"):
        alfworld_games(str(released), "valid_unseen")
    flagged = str(data_dir / "alfworld" / "unsolvable")
    with pytest.raises(DataError, match="2 game files, 0 of them flagged solvable"):
        alfworld_games(flagged, "validation")
    asked = alfworld_games(flagged, "validation", unsolvable=True)
    assert len(asked) == 2
    with pytest.raises(DataError, match="CreditCard.*the goal cannot be reached"):
        GroundedGame(load_problem(asked[0].file), asked[0].file)
    GroundedGame(load_problem(asked[1].file))


def test_games_are_chosen_by_index_or_path(released):
    env = gym.make(ENV, data=str(released), split="valid_train")
    first, info = env.reset(options={"index": 7})
    assert info["game"].startswith("valid_train/") and info["game"].endswith(f"/{GAME_FILE}")
    assert info["index"] == 7 and info["source"] == str(released) and info["split"] == "valid_train"
    for path in (info["game"], os.path.dirname(info["game"]), str(released / info["game"])):
        again, other = env.reset(options={"game": path})
        assert again == first and other["index"] == 7
    for options, error, message in (
        ({"game": "valid_train/x"}, TaskIndexError, "has no game 'valid_train/x'"),
        ({"game": info["game"], "index": 7}, ConfigError, "not both"),
        ({"seed": 1}, ConfigError, "must be one of 'index', 'game', got 'seed'"),
        ({"game": 3}, ConfigError, "must be a path"),
    ):
        with pytest.raises(error, match=message):
            env.reset(options=options)
    made = gym.make(ENV, size=1)
    text, info = made.reset(options={"index": 12})
    assert made.reset(options={"game": info["game"]})[0] == text
    with pytest.raises(TaskIndexError):
        made.reset(options={"game": "train/x/trial_G000012"})


def test_the_contract_on_released_games(released):
    check_text_env(ENV, env_kwargs={"data": str(released), "split": "valid_train"}, tasks=3, vectors=False)


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.fixture
def game(released, tmp_path):
    """A folder with one released game, which a test may break."""
    name = alfworld_games(str(released), "valid_train")[0].task_id
    shutil.copytree(released / name, tmp_path / name)
    return tmp_path, tmp_path / name / GAME_FILE


def _edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def _replace(key, old, new):
    def change(data):
        assert old in data[key]
        data[key] = data[key].replace(old, new, 1)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("grammar"), "expected text under 'grammar'"),
        (lambda d: d.update(pddl_problem=3), "expected text under 'pddl_problem'"),
        (lambda d: d.update(pddl_problem=d["pddl_problem"][:9000]), "brackets are not closed: the problem is cut off"),
        (lambda d: d.update(pddl_problem=d["pddl_problem"] + ")"), "one closing bracket too many"),
        (lambda d: d.update(pddl_problem=""), "expected text under 'pddl_problem'"),
        (lambda d: d.update(pddl_problem="(" * 100_000), "nested more than 64 deep"),
        (lambda d: d.update(pddl_problem="(define (problem x) (:domain blocks))"), "expected the domain alfred"),
        (_replace("pddl_problem", "agent1 - agent", "agent1 - agent agent2 - agent"), "expected one agent"),
        (_replace("pddl_problem", "agent1 - agent", "agent1 - person"), "is not a type"),
        (_replace("pddl_problem", "(atLocation agent1", "(atLocation agent2"), "does not declare"),
        (_replace("pddl_problem", "(holds ?a ?o)", "(not (holds ?a ?o))"), "the native engine does not support"),
        (_replace("pddl_problem", "(holds ?a ?o)", "(likes ?a ?o)"), "not a condition of this domain"),
        (_replace("pddl_problem", "(holds ?a ?o)", "(holds ?a ?x)"), "is not bound"),
        (_replace("pddl_problem", "(:goal", "(:aim"), "the section (:goal ...) is missing"),
        (_replace("pddl_problem", "?o BookType)", "?o PlungerType)"), "the goal cannot be reached"),
        (_replace("pddl_problem", "(:init", "(:init (= agent1 agent1)"), "expected (= (NAME ...) INTEGER)"),
        (_replace("pddl_problem", "(:init", "(:init (= (distance agent1 agent1) 0.5)"), "INTEGER), got (= (...)"),
        (_replace("pddl_problem", "agent1", "\u00e1gent1"), "a problem must be ASCII text"),
        (_replace("pddl_domain", "(holdsAny ?a)", "(holdsSome ?a)"), "its domain is neither that"),
        (_replace("pddl_domain", "(define", "define"), "its domain: expected a bracket"),
        (_replace("grammar", "You close the", "You shut the"), "its grammar is neither that"),
        (_replace("grammar", "Your task is to", "You have to"), "has no line"),
        (_replace("grammar", '"rhs": "TODO"', '"rhs": '), "is not valid JSON"),
    ],
)  # fmt: skip
def test_broken_and_foreign_games_are_named(game, change, message):
    folder, path = game
    _edit(path, change)
    env = gym.make(ENV, data=str(folder), split="valid_train")
    with pytest.raises(DataError) as error:
        env.reset(options={"index": 0})
    assert str(path) in str(error.value) and message in str(error.value)


def test_two_things_asked_for_where_there_is_one():
    problem = kitchen("pick_two_obj_and_place", "Apple", "Cabinet")
    plan = ("go to countertop 2", "take apple 1 from countertop 1", "go to cabinet 1", "open cabinet 1")
    house, state, texts = run(problem, *plan, "move apple 1 to cabinet 1")
    assert texts[-1] == "You move the apple 1 to the cabinet 1."
    assert not state.won and condition_rate(house, state) == 0.5 and oracle_action(house, state) is None
    with pytest.raises(DataError, match="the goal cannot be reached"):
        GroundedGame(kitchen("pick_two_obj_and_place", "Apple", "Shelf"))


def test_files_and_folders_that_are_no_games(game):
    folder, path = game
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    with pytest.raises(DataError, match="cannot be read as the JSON object of a game"):
        gym.make(ENV, data=str(folder), split="valid_train").reset()
    path.write_bytes(b"\xff\xfe\x00")
    alfworld_games.__globals__["_search"].cache_clear()
    with pytest.raises(DataError, match="cannot be read"):
        gym.make(ENV, data=str(folder), split="valid_train").reset()
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no game: expected folders with game.tw-pddl"):
        gym.make(ENV, data=str(folder), split="empty").reset()
    with pytest.raises(DataError, match="has no games: expected the folders train, valid_seen"):
        gym.make(ENV, data=str(folder / "empty"), split="train").reset()
    with pytest.raises(ConfigError, match="applies only to data='generated'"):
        gym.make(ENV, data=str(folder), size=3)


def test_reading_is_linear_and_does_not_depend_on_layout():
    problem = GeneratedHouses("train", 3)[5].problem
    from agent_envs.datasets.alfworld.generate import problem_text

    text = problem_text(problem)
    parts = parse_problem(text.upper().replace("\n", " ; note\n\t"), "x", family=problem.family, wording=PACKAGED)
    assert set(parts.facts) == set(problem.facts) and parts.goal == problem.goal and parts.objects == problem.objects
    shuffled = replace(problem, facts=tuple(reversed(problem.facts)), objects=dict(reversed(problem.objects.items())))
    one, two = GroundedGame(problem), GroundedGame(shuffled)
    assert intro(one, begin(one)) == intro(two, begin(two)) and begin(one) == begin(two)


def test_games_that_are_added_are_found(game):
    folder, path = game
    split = folder / "train"
    split.mkdir()
    os.utime(split, ns=(1, 1))
    with pytest.raises(DataError, match="has no game"):
        gym.make(ENV, data=str(folder)).reset()
    shutil.copytree(path.parent.parent, split / "one")
    assert gym.make(ENV, data=str(folder)).unwrapped.num_tasks == 1
    os.utime(split, ns=(2, 2))
    shutil.copytree(path.parent.parent, split / "two")
    assert gym.make(ENV, data=str(folder)).unwrapped.num_tasks == 2


def test_distances_are_dropped(game):
    folder, path = game

    def arrivals():
        env = gym.make(ENV, data=str(folder), split="valid_train")
        _, info = env.reset(options={"index": 0})
        return [env.step(go)[0] for go in info["admissible_commands"] if go.startswith("go to")]

    before = arrivals()
    assert before[0].startswith("You arrive at loc ")
    distance = "(:init (= (distance loc_bar_z1 loc_bar_z2) 3) (= (total-cost) 0)"
    _edit(path, _replace("pddl_problem", "(:objects", "(:objects loc_bar_z1 loc_bar_z2 - location"))
    _edit(path, _replace("pddl_problem", "(:init", distance))
    assert arrivals() == before


# -- commands ----------------------------------------------------------------------------------------------------


def test_only_info_marks_a_bad_command():
    env = gym.make(ENV, size=1)
    _, info = env.reset(seed=3)
    before = (info["anchor"], info["admissible_commands"])
    for action in (*HOSTILE_ACTIONS, "Look", "go to", "dance", "look; look"):
        text, reward, terminated, _, info = env.unwrapped.step(action)
        assert (text, reward, terminated, info["invalid_action"]) == (NOTHING, 0.0, False, True)
    assert (info["anchor"], info["admissible_commands"]) == before
    assert not env.unwrapped.step(" look\n")[4]["invalid_action"]
    strict = gym.make(ENV, size=1, strict=True)
    strict.reset(seed=3)
    text, _, _, _, info = strict.step(" look")
    assert (text, info["invalid_action"]) == (NOTHING, True)
    assert not strict.step("look")[4]["invalid_action"]


@pytest.mark.parametrize("alias", [True, False])
@pytest.mark.parametrize("edition", ["released", "packaged"])
def test_put_has_aliases_where_asked(edition, alias, released):
    kwargs = {"data": str(released), "split": "valid_train"} if edition == "released" else {"size": 1}
    env = gym.make(ENV, put_alias=alias, families=["pick_and_place_simple"], **kwargs)
    env.reset(options={"index": 0})
    while not (command := env.unwrapped.expert_action()).startswith(("put", "move")):
        env.step(command)
    words = command.split()
    for said in ("put {} in/on {}", "put {} in {}", "put {} on {}", "move {} to {}"):
        other = said.format(" ".join(words[1:3]), " ".join(words[-2:]))
        with tried(env):
            assert env.step(other)[4]["success"] == (alias or other == command), other


# -- episodes beside each other ----------------------------------------------------------------------------------


def _episode(env, index, steps=40):
    rng = random.Random(index)
    log = [env.reset(options={"index": index})]
    for _ in range(steps):
        log.append(env.step(rng.choice([*log[-1][-1]["admissible_commands"], "nothing"])))
        if log[-1][2]:
            break
        yield
    yield log


def _interleaved(envs):
    runs = [_episode(env, index) for index, env in envs]
    logs = {}
    while len(logs) < len(runs):
        for k, one in enumerate(runs):
            if k not in logs and (log := next(one)) is not None:
                logs[k] = log
    return [logs[k] for k in range(len(runs))]


def test_24_environments_on_8_threads_play_as_alone(released):
    kwargs = [{"size": "1-5"}, {"data": str(released), "split": "valid_train"}]
    envs = [(k % 6, gym.make(ENV, **kwargs[k % 2])) for k in range(24)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(_interleaved, [envs[k::8] for k in range(8)]))
    for k, (index, _) in enumerate(envs):
        (alone,) = _interleaved([(index, gym.make(ENV, **kwargs[k % 2]))])
        assert together[k % 8][k // 8] == alone


NATIVE = """
import gc, sys, tracemalloc
import gymnasium as gym
import agent_envs
from agent_envs.branching import tried
from agent_envs.datasets.alfworld.generated.tasks import GeneratedHouses
from agent_envs.envs.alfworld.session import grounded_game

env = gym.make("AgentR1/ALFWorld-v0", data=sys.argv[1], split="valid_train")
env.reset(options={"index": 0})
env.step("look")
extras = {"alfworld", "textworld", "fast_downward", "tatsu", "torch", "networkx", "pandas"}
assert not {name.partition(".")[0] for name in sys.modules} & extras
small, tasks = GeneratedHouses("train", 1), GeneratedHouses("train")
played = [grounded_game(small[index]) for index in range(70)]
assert [grounded_game(small[index]) for index in range(70)] == played  # those of the episodes that play them
tracemalloc.start()
some = [grounded_game(tasks[index]) for index in range(1000, 1040)]
gc.collect()
assert tracemalloc.get_traced_memory()[0] / len(some) < 40_000  # with the caches of what they were made from
"""


def test_the_native_engine_needs_nothing_else_and_stays_small(released):
    """In a process of its own: other modules are loaded here, and what other threads allocate would count."""
    subprocess.run([sys.executable, "-c", NATIVE, str(released)], timeout=120, check=True)


# -- the original engine -----------------------------------------------------------------------------------------


@pytest.fixture
def original():
    """The test needs the original engine."""
    for package in ("textworld", "fast_downward", "alfworld"):
        pytest.importorskip(package, reason="the original engine is the extra 'alfworld'", exc_type=ImportError)


@pytest.mark.parametrize("package", ["textworld", "fast_downward", "alfworld"])
def test_a_missing_extra_is_named(package, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else json.__spec__)
    with pytest.raises(MissingExtraError, match=rf"'{package}' is not installed.*agent-envs\[alfworld\]"):
        gym.make(ENV, size=1, engine="textworld").reset()


def test_the_original_engine_through_the_environment(released, capfd, original):
    for kwargs in ({"size": 1}, {"data": str(released), "split": "valid_train"}):
        native, real, second = (gym.make(ENV, engine=e, **kwargs) for e in ("native", "textworld", "textworld"))
        logs = [_interleaved([(3, env)])[0] for env in (native, real)]
        assert logs[0] == logs[1]
        together = _interleaved([(3, real), (3, second)])
        assert together == [logs[0], logs[0]]
        real.reset(options={"index": 1})
        real.step("inventory")
        point = agent_envs.snapshot(real)
        commands = point.state.commands if hasattr(point, "state") else real.unwrapped.state.commands
        one = real.step(commands[0])
        agent_envs.restore(second, pickle.loads(pickle.dumps(point)))
        assert second.step(commands[0]) == one
        real.close()
        second.close()
    assert capfd.readouterr() == ("", "")


def test_files_that_only_the_original_plays(game, original):
    folder, path = game
    _edit(path, _replace("grammar", "You open the", "You pull open the"))
    env = gym.make(ENV, data=str(folder), split="valid_train", engine="textworld")
    _, info = env.reset(options={"index": 0})
    for go in [command for command in info["admissible_commands"] if command.startswith("go to")]:
        *_, info = env.step(go)
        if (command := go.replace("go to", "open")) in info["admissible_commands"]:
            text, _, _, _, info = env.step(command)
            assert text.startswith("You pull open the ") and info["goal_condition_rate"] == 0.0
            break
    else:
        pytest.fail("nothing can be opened")
    assert load_game(path)["solvable"] is True
    env.close()
