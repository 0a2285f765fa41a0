"""Wrappers that add rewards, and games played by text.

Behaviours pinned here:
1. Every added reward is the step's, is a component of its own, and sums with others.
2. A call is rewarded a limited number of times, a failed one never.
3. A game with discrete actions plays by names, numbers and last words; anything else changes nothing. That it is the
   same game as by numbers is in test_classic_games.py.
"""

from __future__ import annotations

import gymnasium as gym
import pytest

from agent_envs.episodes.record import StopReason, read_episodes
from agent_envs.policies import ScriptedPolicy
from agent_envs.rollout.many import run_episodes
from agent_envs.wrappers import InvalidActionPenalty, TextGame, apply_wrappers

ENV = "AgentR1/GSM8KTool-v0"


def _call(env: gym.Env, expression: str) -> str:
    return env.get_wrapper_attr("format_call")("calculator", {"expression": expression})


def test_parts_add_up_and_stand_apart():
    env = apply_wrappers(
        gym.make(ENV),
        ["ToolCallReward(success=0.5, error=-0.25, limit=2)", "StepPenalty(penalty=0.125)", InvalidActionPenalty],
    )
    env.reset(seed=0)
    good, bad = _call(env, "1+1"), _call(env, "1/0")
    rewards = [env.step(action) for action in (good + bad, "<tool_call>", good + good)]
    assert [reward for _, reward, *_ in rewards] == pytest.approx([0.125, -0.225 - 0.25, 0.375])
    assert rewards[0][4]["reward_components"] == {"tool_call": 0.25, "step": -0.125, "invalid_action": 0.0}
    assert rewards[1][4]["reward_components"]["invalid_action"] == -0.1
    assert rewards[2][4]["reward_components"]["tool_call"] == 0.5  # the third good call is over the limit
    env.reset(seed=0)
    assert env.step(good)[4]["reward_components"]["tool_call"] == 0.5


def test_an_episode_of_invalid_actions_is_given_up(tmp_path):
    """It is the policy's doing, and not a failure."""
    wrappers = ["LimitInvalidActions(limit=2)", f"RecordEpisodes(path={str(tmp_path / 'kept.jsonl')!r})"]
    bad, good = "<tool_call>", _call(gym.make(ENV), "1+1")
    for actions, steps, reason in (
        ([bad, good, bad, bad, good], 4, StopReason.INVALID_ACTIONS),
        ([bad, good, bad, good, "#### 1"], 5, StopReason.TERMINATED),
    ):
        (episode,) = run_episodes(ENV, ScriptedPolicy(actions), 1, seeds=0, wrappers=wrappers, progress=False)
        assert (episode.stop_reason, len(episode.steps)) == (reason, steps), episode
        assert not episode.stop_reason.broken
        given_up = reason is StopReason.INVALID_ACTIONS
        assert (episode.steps[-1].truncated, episode.steps[-1].info["given_up"]) == (given_up, given_up)
    kept = list(read_episodes(tmp_path / "kept.jsonl"))
    assert [each.stop_reason for each in kept] == [StopReason.INVALID_ACTIONS, StopReason.TERMINATED]


def _lake(**kwargs: object) -> TextGame:
    return TextGame(gym.make("FrozenLake-v1", render_mode="ansi", is_slippery=False), **kwargs)  # type: ignore[arg-type]


def test_a_lake_is_crossed_by_words():
    env = _lake()
    _, info = env.reset(seed=0)
    assert (info["invalid_action"], info["anchor"]) == (False, "[S]FFF\nFHFH\nFFFH\nHFFG")
    same, reward, terminated, _, info = env.step("fly away")
    assert same.startswith("Expected one of these actions: left, down, right, up.\n[S]FFF")
    assert (reward, terminated, info["invalid_action"]) == (0.0, False, True)
    for action in ("down", "1", "I go RIGHT.", "2", "Down", "right"):
        _, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["success"], info["score"]) == (1, True, True, 1.0)
    env.reset(seed=0)
    env.step("right")
    info = env.step("down")[4]  # into a hole
    assert (info["success"], info["score"]) == (False, 0.0)


def test_observations_of_numbers_and_names_of_ones_own():
    env = TextGame(gym.make("CartPole-v1"))
    text = env.reset(seed=3)[0]
    assert text.startswith("[") and len(text.split(",")) == 4 and env.names == ["left", "right"]
    assert env.reset(seed=3)[0] == text and env.reset(options={"index": 3})[1]["index"] == 3
    assert env.step("left")[1] == 1.0
    assert _lake(actions=["west", "south", "east", "north"], instructions="Cross.").instructions == (
        "Cross.\nAnswer with one of these actions: west, south, east, north."
    )
