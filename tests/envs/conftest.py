"""Fixtures shared by the tests of environments."""

import os
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest

Play = Callable[[gym.Env[str, str], int], tuple[float, int, dict[str, Any]]]


@pytest.fixture(scope="session")
def compared():
    """The number of episodes that a slow test compares with a source's own loop: few, or AGENT_ENVS_COMPARED=200."""
    return int(os.environ.get("AGENT_ENVS_COMPARED", "10"))


@pytest.fixture(params=["three", pytest.param("many", marks=pytest.mark.slow)])
def episodes(request, compared):
    """The number of episodes to compare: three, and in a slow test many."""
    return compared if request.param == "many" else 3


@pytest.fixture(scope="session")
def play():
    """Let the expert play a task to its end; returns the sum of rewards, the steps and the last info."""

    def play(env: gym.Env[str, str], index: int) -> tuple[float, int, dict[str, Any]]:
        env.reset(options={"index": index})
        expert: Any = env.unwrapped
        reward, steps, terminated, truncated = 0.0, 0, False, False
        while not (terminated or truncated):
            _, paid, terminated, truncated, info = env.step(expert.expert_action())
            reward, steps = reward + paid, steps + 1
        assert terminated
        return reward, steps, info

    return play
