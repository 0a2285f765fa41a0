"""The games of gem: the same as in the package's own loop, move by move.

What is said, rewards and ends are the package's own.
"""

import random

import gymnasium as gym
import numpy as np
import pytest

import agent_envs  # noqa: F401  (registers the ids)

ENV_ID = "AgentR1/Gem-v0"
gem = pytest.importorskip("gem", reason="needs the extra gem: pip install 'agent-envs[gem]'")

MOVES = {
    "game:GuessTheNumber-v0-hard": lambda rng: f"\\boxed{{{rng.integers(0, 52)}}}",
    "game:Mastermind-v0-hard": lambda rng: f"\\boxed{{{' '.join(map(str, rng.permutation(8)[:4] + 1))}}}",
    "game:Minesweeper-v0-easy": lambda rng: f"\\boxed{{reveal {rng.integers(5)} {rng.integers(6)}}}",
    "game:TowerofHanoi-v0-easy": lambda rng: f"\\boxed{{{' '.join(rng.permutation(list('ABC'))[:2])}}}",
    "game:Game2048-v0-easy": lambda rng: f"\\boxed{{{rng.choice(['up', 'down', 'left', 'right'])}}}",
    "game:Sokoban-v0-easy": lambda rng: f"\\boxed{{{rng.choice(['up', 'down', 'left', 'right'])}}}",
}


@pytest.mark.parametrize("name", MOVES)
def test_games_are_those_of_the_package(name, episodes):
    env = gym.make(ENV_ID, env=name, split="test")
    for index in range(episodes):
        random.seed(20_000_000 + index)
        np.random.seed(20_000_000 + index)
        source = gem.make(name)
        said, info = source.reset(seed=20_000_000 + index)
        assert env.reset(options={"index": index})[0] == (f"{said}\n{info['suffix']}" if info.get("suffix") else said)
        rng, over = np.random.default_rng(index), False
        for turn in range(60):
            move = "pass" if index % 5 == 4 and turn == 3 else MOVES[name](rng)
            observation, reward, terminated, truncated, _ = env.step(move)
            said, paid, ended, cut, info = source.step(move)
            over = ended or cut
            assert (reward, terminated, truncated) == (paid, over, False)
            assert observation == (f"{said}\n{info['suffix']}" if info.get("suffix") and not over else said)
            if over:
                break
        assert over
    env.close()
