"""Classic games through TextGame: the same states, rewards and ends as when they are played by numbers."""

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.wrappers import TextGame

GAMES = {
    "Blackjack-v1": {},
    "CliffWalking-v1": {"render_mode": "ansi"},
    "FrozenLake-v1": {"render_mode": "ansi"},
    "Taxi-v4": {"render_mode": "ansi"},
    "MiniGrid-DoorKey-5x5-v0": {},
}


@pytest.mark.parametrize("name", GAMES)
def test_games_are_those_of_gymnasium(name):
    names = None
    if name.startswith("MiniGrid"):
        pytest.importorskip("minigrid")
        names = [action.name for action in gym.make(name).unwrapped.actions]
    env, source = TextGame(gym.make(name, **GAMES[name]), actions=names), gym.make(name, **GAMES[name])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        observation, info = env.reset(options={"index": seed})
        source.reset(seed=seed)
        assert isinstance(observation, str) and info["index"] == seed
        total = 0.0
        for _ in range(40):
            number = int(rng.integers(len(env.names)))
            _, reward, terminated, truncated, info = env.step(f"I choose {env.names[number]}.")
            _, paid, ended, cut, _ = source.step(number)
            total += float(paid)
            assert (reward, terminated, truncated) == (float(paid), ended, cut)
            assert info["score"] == pytest.approx(total) and info["success"] == (ended and total > 0)
            if ended or cut:
                break
    with pytest.raises(TypeError, match="must be a string, got int"):
        env.step(0)
    env.close()
    source.close()
