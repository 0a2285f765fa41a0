"""Classic games by text: the same states, rewards and ends as when they are played by numbers, in words or pictures."""

import itertools

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.pictures.picture import IMAGE
from agent_envs.wrappers import ImageGame, TextGame

GRIDS = ("CliffWalking-v1", "FrozenLake-v1", "Taxi-v4")
GAMES = [("Blackjack-v1", None), ("MiniGrid-DoorKey-5x5-v0", None), *itertools.product(GRIDS, ("ansi", "rgb_array"))]


@pytest.mark.parametrize(("name", "mode"), GAMES)
def test_games_are_those_of_gymnasium(name, mode):
    pictures, names = mode == "rgb_array", None
    if pictures:
        pytest.importorskip("pygame")
    if name.startswith("MiniGrid"):
        pytest.importorskip("minigrid")
        names = [action.name for action in gym.make(name).unwrapped.actions]
    source = gym.make(name, render_mode=mode)
    env = (ImageGame if pictures else TextGame)(gym.make(name, render_mode=mode), actions=names)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        observation, info = env.reset(options={"index": seed})
        source.reset(seed=seed)
        assert info["index"] == seed and info["anchor"].startswith("picture ") == pictures
        total = 0.0
        for _ in range(8 if pictures else 40):
            assert env.observation_space.contains(observation)
            if pictures:
                assert np.array_equal(observation["images"][0], source.render()) and observation["text"] == IMAGE
            number = int(rng.integers(len(env.names)))
            if rng.random() < 0.2:
                observation, *rest, info = env.step("jump <image>")
                assert rest == [0.0, False, False] and info["invalid_action"]
                if pictures:
                    assert observation["text"].endswith(f".\n{IMAGE}")
                    observation = {**observation, "text": IMAGE}
                continue
            observation, reward, terminated, truncated, info = env.step(f"I choose {env.names[number]}.")
            _, paid, over, cut, _ = source.step(number)
            total += float(paid)
            assert (reward, terminated, truncated) == (float(paid), over, cut)
            assert info["score"] == pytest.approx(total) and info["success"] == (over and total > 0)
            if over or cut:
                break
    with pytest.raises(TypeError, match="must be a string, got int"):
        env.step(0)
    env.close()
    source.close()
