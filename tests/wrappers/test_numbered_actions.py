"""Actions by number: the list, what a number does, experts, free text, branching, and what is refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import agent_envs
from agent_envs.policies import ExpertPolicy, RandomPolicy
from agent_envs.rollout.many import run_episodes
from agent_envs.testing import HOSTILE_ACTIONS
from agent_envs.wrappers import NumberedActions, apply_wrappers

ALFWORLD, WEBSHOP = "AgentR1/ALFWorld-v0", "AgentR1/WebShop-v0"


def listed(observation):
    """The numbered list at the end of an observation."""
    lines = observation.partition("\n\nActions:\n")[2].split("\n")
    assert [line.split(" ", 1)[0] for line in lines] == [str(n) for n in range(1, len(lines) + 1)]
    return [line.split(" ", 1)[1] for line in lines]


def pair(env_id, **wrapper):
    env, plain = NumberedActions(gym.make(env_id), **wrapper), gym.make(env_id)
    return env, plain, env.reset(options={"index": 5}), plain.reset(options={"index": 5})


@pytest.mark.parametrize("env_id", [ALFWORLD, WEBSHOP])
def test_every_number_is_the_action_beside_it(env_id):
    env, plain, (observation, info), expected = pair(env_id)
    assert observation.startswith(expected[0] + "\n\nActions:\n")
    assert info == expected[1]
    actions = listed(observation)
    assert actions == plain.unwrapped.available_actions()
    for n, action in enumerate(actions, 1):
        env.reset(options={"index": 5})
        plain.reset(options={"index": 5})
        text = "red shoes" if "..." in action else ""
        got, want = env.step(f"{n} {text}".strip()), plain.step(action.replace("...", text))
        assert got[0].partition("\n\nActions:\n")[0] == want[0]
        assert got[1:] == want[1:]


NO_NUMBERS = ("0", "99", "2nd", "2 times", "-1", "two", "1" * 5000, "inventory", *HOSTILE_ACTIONS)
MEANT = {  # a text, and the action that it is: itself, if it is no number of the list or lacks the words
    ALFWORLD: {text: text for text in NO_NUMBERS} | dict.fromkeys(("2", " 2\n", "2.", "2)", "2:"), "inventory"),
    WEBSHOP: {text: text for text in ("1", "1.5", "1:30", "1)2", " 1.5 shoes", "1.\u0665")}
    | {"1. 5": "search[5]", "1 blue jeans": "search[blue jeans]"},
}


@pytest.mark.parametrize(("env_id", "first"), [(ALFWORLD, ["help", "inventory"]), (WEBSHOP, ["search[...]"])])
def test_what_a_text_means(env_id, first):
    env, plain, (observation, _), _ = pair(env_id, leave_out=["go to *", "examine *"])
    assert listed(observation)[: len(first)] == first
    for text, action in MEANT[env_id].items():
        env.reset(options={"index": 5})
        plain.reset(options={"index": 5})
        got, want = env.step(text), plain.step(action)
        assert got[0].partition("\n\nActions:\n")[0] == want[0], text
        assert got[1:] == want[1:], text


def test_left_out_actions_are_not_listed_but_can_be_taken():
    env, plain, (observation, _), (expected, _) = pair(WEBSHOP, leave_out=["search[*]", "click[back *]"])
    assert observation == expected  # nothing is left
    observation, *_, info = env.step("search[shoes]")
    plain.step("search[shoes]")
    assert not info["invalid_action"]
    assert listed(observation) == [a for a in plain.unwrapped.available_actions() if a != "click[back to search]"]
    assert not env.step("click[Back to Search]")[4]["invalid_action"]


@pytest.mark.parametrize("env_id", [ALFWORLD, WEBSHOP])
def test_experts_win_by_numbers(env_id):
    for policy in (ExpertPolicy(), ExpertPolicy(noise=0.3, seed=1)):
        plain = run_episodes(env_id, policy, 4)
        numbered = run_episodes(env_id, policy, 4, wrappers=["NumberedActions"])
        assert [[s.reward for s in e.steps] for e in plain] == [[s.reward for s in e.steps] for e in numbered]
        assert all(s.action.split()[0].isdigit() for e in numbered for s in e.steps)


def test_a_random_policy_plays_numbers():
    episode = run_episodes(ALFWORLD, RandomPolicy(seed=0), 1, wrappers=["NumberedActions"])[0]
    assert all(step.action.isdigit() for step in episode.steps)
    assert not any(step.info["invalid_action"] for step in episode.steps)


def test_the_list_of_a_restored_point_is_the_one_of_then():
    env = NumberedActions(gym.make(ALFWORLD, size=2))
    env.reset(seed=1)
    env.step("1")
    point, seen, actions = agent_envs.snapshot(env), env.last_observation, env.available_actions()
    first = env.step("3")
    env.step("2")
    assert agent_envs.restore(env, point)[0] == seen
    assert env.available_actions() == actions
    assert env.step("3") == first


def test_the_last_observation_has_no_list():
    env = NumberedActions(gym.make(WEBSHOP))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    done = False
    while not done:
        observation, _, terminated, truncated, _ = env.step(env.demo_action(rng, 0.0))
        done = terminated or truncated
        assert ("\n\nActions:\n" in observation) != done


def test_patterns_are_matched_in_little_time_and_know_no_other_sign():
    with_signs = ["*" * 40 + "zz", "?nventory", "[i]nventory", "*o*o*o*o*o*o*o*o*o*o*o*!"]
    _, _, (observation, _), _ = pair(ALFWORLD, leave_out=[*with_signs, "go*2"])
    assert "inventory" in listed(observation) and not any(action.endswith(" 2") for action in listed(observation))


def test_instructions_say_how_to_answer():
    env = apply_wrappers(gym.make(WEBSHOP), ["NumberedActions"])
    inner, outer = env.unwrapped.instructions, env.get_wrapper_attr("instructions")
    assert outer.startswith(inner)
    assert "number" in outer[len(inner) :]
