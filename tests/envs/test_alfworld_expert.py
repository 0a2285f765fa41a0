"""ALFWorld's experts.

1. Both win every family, in houses of every size, whatever is closed, within 50 commands. 2. Every command is
admissible, and a decision takes less than 5 ms. 3. The oracle's plans are as short as the planner's. 4. Both go on from
any state, one that mistakes led to included. 5. Explore decides by what has been read, nothing else.
"""

import collections
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from agent_envs.datasets.alfworld.generate import game_document
from agent_envs.datasets.alfworld.generated.tasks import GeneratedHouses
from agent_envs.datasets.alfworld.problem import FAMILIES
from agent_envs.envs.alfworld.engine import begin, intro, play
from agent_envs.envs.alfworld.explore import EXPERTS, explore_action, wrong_command
from agent_envs.envs.alfworld.game import GroundedGame
from agent_envs.envs.alfworld.notes import read_errand, read_transcript
from agent_envs.envs.alfworld.oracle import oracle_action, oracle_plan

ENV = "AgentR1/ALFWorld-v0"
MOST = 50


def play_out(house, expert, *, noise=0.0, seed=0, most=MOST):
    """The commands of an episode, whether it was won, and the seconds of each decision."""
    rng = np.random.default_rng(seed)
    state = begin(house)
    transcript, commands, seconds = [intro(house, state)], [], []
    while not state.won and len(commands) < most:
        start = time.thread_time()
        command = oracle_action(house, state) if expert == "oracle" else explore_action(transcript, state.commands)
        seconds.append(time.thread_time() - start)
        assert command in state.commands, (command, transcript[-1])
        if noise and rng.random() < noise:
            command = wrong_command(rng, state.commands, command)
            assert command in state.commands
        transcript += [command, play(house, state, command)]
        commands.append(command)
    return commands, state.won, seconds


@pytest.mark.parametrize("expert", EXPERTS)
@pytest.mark.parametrize(
    ("split", "size", "count"),
    [("train", "2-4", 24), ("valid_unseen", 1, 24), ("train", 5, 18),
     pytest.param("valid_unseen", "2-4", 1000, marks=pytest.mark.parity)],
)  # fmt: skip
def test_experts_win_generated_houses(expert, split, size, count):
    tasks, lost, families, seconds = GeneratedHouses(split, size=size), [], collections.Counter(), []
    for index in range(count):
        commands, won, some = play_out(GroundedGame(tasks[index].problem), expert)
        families[tasks[index].family] += 1
        seconds += some
        if not won:
            lost.append((tasks[index].task_id, commands))
    assert not lost
    assert set(families) == set(FAMILIES)
    assert np.median(seconds) < 0.001
    assert np.quantile(seconds, 0.99) < 0.005


def test_plans_get_shorter_by_one_with_every_step():
    tasks = GeneratedHouses("valid_seen")
    for index in range(12):
        house = GroundedGame(tasks[index].problem)
        state = begin(house)
        plan = oracle_plan(house, state)
        for left in range(len(plan), 0, -1):
            assert len(oracle_plan(house, state)) == left
            play(house, state, oracle_plan(house, state)[0])
        assert state.won and oracle_plan(house, state) == []


@pytest.mark.parametrize("expert", EXPERTS)
def test_experts_recover_from_mistakes(expert):
    tasks = GeneratedHouses("train", size=2)
    for index in range(25):
        commands, won, _ = play_out(GroundedGame(tasks[index].problem), expert, noise=0.4, seed=index, most=150)
        assert won, (index, commands)


def test_explore_reads_and_nothing_else():
    first = (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
        "desk 1, a drawer 1, and a sofa 1.\n\nYour task is to: find two remotecontrol and put them in sofa."
    )
    admissible = ["go to desk 1", "go to drawer 1", "go to sofa 1", "inventory", "look"]
    assert explore_action([first], admissible) == "go to desk 1"
    seen = "You arrive at loc 4. On the desk 1, you see a pen 1, and a remotecontrol 2."
    here = ["examine desk 1", "go to drawer 1", "go to sofa 1", "take pen 1 from desk 1"]
    here.append("take remotecontrol 2 from desk 1")
    assert explore_action([first, "go to desk 1", seen], here) == "take remotecontrol 2 from desk 1"
    taken = [first, "go to desk 1", seen, "take remotecontrol 2 from desk 1",
             "You pick up the remotecontrol 2 from the desk 1."]  # fmt: skip
    assert explore_action(taken, ["go to drawer 1", "go to sofa 1"]) == "go to sofa 1"
    at_sofa = [*taken, "go to sofa 1", "You arrive at loc 1. On the sofa 1, you see nothing."]
    released, packaged = "put remotecontrol 2 in/on sofa 1", "move remotecontrol 2 to sofa 1"
    assert explore_action(at_sofa, [released]) == released
    assert explore_action(at_sofa, [packaged]) == packaged
    put = [*at_sofa, released, "You put the remotecontrol 2 in/on the sofa 1."]
    assert read_transcript(put).contents["sofa 1"] == ["remotecontrol 2"]
    assert (
        explore_action(put, ["take remotecontrol 2 from sofa 1", "go to drawer 1", "go to desk 1"]) == "go to drawer 1"
    )


@pytest.mark.parametrize(
    ("task", "errand"),
    [
        ("put a cellphone in bed", ("put", "cellphone", "bed", "")),
        ("put some keychain on sofa", ("put", "keychain", "sofa", "")),
        ("put a clean knife in diningtable", ("clean", "knife", "diningtable", "")),
        ("clean some cloth and put it in toilet", ("clean", "cloth", "toilet", "")),
        ("put a hot mug in coffeemachine", ("heat", "mug", "coffeemachine", "")),
        ("heat some egg and put it in diningtable", ("heat", "egg", "diningtable", "")),
        ("put a cool bowl in shelf", ("cool", "bowl", "shelf", "")),
        ("cool some cup and put it in cabinet", ("cool", "cup", "cabinet", "")),
        ("put two creditcard in sofa", ("two", "creditcard", "sofa", "")),
        ("find two statue and put them in dresser", ("two", "statue", "dresser", "")),
        ("look at book under the desklamp", ("look", "book", "", "desklamp")),
        ("examine the bowl with the desklamp", ("look", "bowl", "", "desklamp")),
    ],
)
def test_tasks_are_understood_from_their_words(task, errand):
    found = read_errand(f"Your task is to: {task}.")
    assert (found.kind, found.thing, found.place, found.lamp) == errand


def test_a_task_in_other_words_has_no_explorer():
    assert read_errand("Your task is to: Move the mug to the other table please.") is None
    assert explore_action(["Your task is to: be happy."], ["look"]) is None


@pytest.mark.parity
def test_plans_are_as_short_as_the_planners(tmp_path):
    pytest.importorskip("alfworld", reason="needs the alfworld extra")
    plans = []
    for index in range(24):
        task = GeneratedHouses("valid_seen", size=1)[index]
        house = GroundedGame(task.problem)
        plans.append(len(oracle_plan(house, begin(house))))
        (tmp_path / f"{index}.tw-pddl").write_text(json.dumps(game_document(task.problem)))
    done = subprocess.run(
        [sys.executable, "-c", _PLANNER, str(tmp_path), str(len(plans))],
        env={**os.environ, "ALFWORLD_DATA": str(tmp_path / "cache")}, capture_output=True, text=True, check=True,
        timeout=600,
    )  # fmt: skip
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert all(ours <= planned for ours, planned in zip(plans, theirs, strict=True)), (plans, theirs)


_PLANNER = """
import json, sys
import textworld
from textworld.envs import PddlEnv
from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
out, lengths = sys.stdout, []
env = AlfredDemangler(PddlEnv(textworld.EnvInfos(policy_commands=True, admissible_commands=True)), shuffle=False)
folder, count = sys.argv[1], int(sys.argv[2])
for index in range(count):
    env.load(f"{folder}/{index}.tw-pddl")
    lengths.append(len(env.reset()["policy_commands"]))
out.write("\\n" + json.dumps(lengths) + "\\n")
"""
