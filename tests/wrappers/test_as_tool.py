"""Commands as calls of one tool.

1. The tool is on offer, and calls of it are steps. 2. What is no call, or a wrong one, is answered and counts.
3. Several calls are carried out in order. 4. Experts and demonstrations speak in calls. 5. It goes with any environment
whose actions are commands. That it branches is in tests/envs/test_released_recipes.py.
"""

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.messages import observation_messages
from agent_envs.policies import ExpertPolicy
from agent_envs.rollout.many import run_episodes
from agent_envs.wrappers import AsTool, apply_wrappers
from tests.helpers import tool_call

ALFWORLD = "AgentR1/ALFWorld-v0"


def call(command):
    return tool_call("env_step", command=command)


@pytest.fixture
def env():
    env = AsTool(gym.make(ALFWORLD, size=2, max_episode_steps=20))
    env.reset(seed=3)
    return env


def test_the_tool_is_on_offer():
    env = apply_wrappers(gym.make(ALFWORLD), ["AsTool"])
    (spec,) = env.get_wrapper_attr("tools")
    assert spec["function"]["name"] == "env_step"
    assert spec["function"]["parameters"]["properties"]["command"]["type"] == "string"
    assert spec["function"]["parameters"]["required"] == ["command"]
    assert env.get_wrapper_attr("instructions").startswith(env.unwrapped.instructions)
    assert "env_step" in env.get_wrapper_attr("instructions")
    assert '"command"' in env.get_wrapper_attr("tool_instructions")
    assert env.reset(seed=0)[1]["tool_results"] == []


def test_a_call_is_a_step(env):
    plain = gym.make(ALFWORLD, size=2, max_episode_steps=20)
    plain.reset(seed=3)
    for command in ("look", "go to nowhere 1", "inventory"):
        expected = plain.step(command)
        observation, reward, terminated, truncated, info = env.step(call(command))
        assert (observation, reward, terminated, truncated) == expected[:4]
        assert info["tool_results"] == [{"name": "env_step", "content": observation, "error": False}]
        assert {**info, "tool_results": None} == {**expected[4], "tool_results": None}
        assert observation_messages(observation, info)[0]["role"] == "tool"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("look", "there is no call of a tool"),
        ("", "there is no call of a tool"),
        ("<tool_call>{", "is not closed"),
        ('<tool_call>{"name": "step", "arguments": {}}</tool_call>', "Did you mean 'env_step'"),
        ('<tool_call>{"name": "env_step", "arguments": {}}</tool_call>', "wrong arguments"),
        ('<tool_call>{"name": "env_step", "arguments": {"command": 3}}</tool_call>', "wrong arguments"),
        ("x" * ((1 << 22) + 1), "there is no call of a tool"),
    ],
)
def test_what_is_no_call_is_answered_and_counts(text, says, env):
    observation, reward, terminated, truncated, info = env.step(text)
    assert says in observation and info["invalid_action"] and not (reward or terminated or truncated)
    assert all(result["error"] for result in info["tool_results"])
    for _ in range(18):
        assert not env.step(text)[3]
    assert env.step(text)[3]  # a limit of 20 steps ends it


def test_calls_are_carried_out_in_order(env):
    observation, _, _, _, info = env.step(call("inventory") + call("look") + "<tool_call>{}</tool_call>")
    assert [r["error"] for r in info["tool_results"]] == [False, False, True] and info["invalid_action"]
    assert observation.splitlines()[0] == "You are not carrying anything."
    *_, info = env.step(call("look") * 5)
    assert "at most 4 calls" in info["tool_results"][4]["content"]


def test_calls_after_the_end_are_not_run():
    env = AsTool(gym.make(ALFWORLD, expert="oracle"), max_calls=50)
    env.reset(seed=1)
    twin = gym.make(ALFWORLD, expert="oracle")
    twin.reset(seed=1)
    commands = []
    while (command := twin.unwrapped.expert_action()) is not None:
        commands.append(command)
        twin.step(command)
    _, reward, terminated, _, info = env.step("".join(map(call, [*commands, "look"])))
    assert terminated and reward == 1 and info["reward_components"] == {"won": 1.0}
    assert info["tool_results"][-1] == {
        "name": "env_step", "content": "error: not run: the episode is over", "error": True,
    }  # fmt: skip


def test_experts_and_demonstrations_speak_in_calls(env):
    assert env.expert_action().startswith("<tool_call>")
    assert env.demo_action(np.random.default_rng(0), 1.0).startswith("<tool_call>")
    episodes = run_episodes(ALFWORLD, ExpertPolicy(), 5, wrappers=["AsTool"], progress=False)
    assert all(episode.success for episode in episodes)
    assert all("env_step" in step.action for episode in episodes for step in episode.steps)


def test_it_goes_with_other_environments_of_commands():
    env = AsTool(gym.make("AgentR1/WebShop-v0"), name="act")
    env.reset(seed=0)
    shown, *_, info = env.step(tool_call("act", command="search[red shoes]"))
    assert not info["invalid_action"] and shown
    *_, info = env.step("search[red shoes]")
    assert info["invalid_action"]
