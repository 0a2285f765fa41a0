import gymnasium as gym
import pytest

from tests.pictures.shades import ShadesEnv


@pytest.fixture(scope="module", autouse=True)
def shades_id():
    gym.register("Shades-v0", entry_point=ShadesEnv, max_episode_steps=5)
    yield
    del gym.registry["Shades-v0"]
