"""What environments of other packages share.

Behaviours pinned here:
1. A game with random numbers of its own prints nothing; what other threads print meanwhile is printed.
2. A wrong name, split or argument is one message, and what could run the policy's text needs trust.
"""

from __future__ import annotations

import random
import sys
import threading

import gymnasium as gym
import pytest

from agent_envs.envs.foreign import OwnDraws
from agent_envs.errors import ConfigError

WRONG = [
    ("gem", "Gem-v0", {"env": "game:Mastermind"}, "Mastermind-v0-easy"),
    ("gem", "Gem-v0", {"env": "code:Taco8k"}, "trust=True"),
    ("gem", "Gem-v0", {"env": "math:GSM8K"}, "trust=True"),
    ("Gym.environment", "RLVE-v0", {"problem": "AdditionTables"}, "Did you mean 'AdditionTable'"),
    ("Gym.environment", "RLVE-v0", {"problem": "CountdownEqual"}, "trust=True"),
    ("Gym.environment", "RLVE-v0", {"level": -1}, "level"),
    ("reasoning_gym", "ReasoningGym-v0", {"dataset": "chain_sums"}, "chain_sum"),
    ("reasoning_gym", "ReasoningGym-v0", {"config": {"no_such": 1}}, "no_such"),
    ("reasoning_gym", "ReasoningGym-v0", {"dataset": "countdown"}, "trust=True"),
    ("skyrl_gym", "SkyRLGym-v0", {"env": "gsm9k"}, "gsm8k"),
    ("skyrl_gym", "SkyRLGym-v0", {"env": "lcb"}, "trust=True"),
    ("skyrl_gym", "SkyRLGym-v0", {"env": "text2sql", "trust": True}, "path of rows"),
    ("textarena", "TextArena-v0", {"env": "Mastermnd-v0"}, "Mastermind-v0"),
    ("textarena", "TextArena-v0", {"env": "SettlersOfCatan-v0"}, "one player or two"),
    ("textarena", "TextArena-v0", {"env": "TicTacToe-v0", "player": 2}, "player"),
    ("textarena", "TextArena-v0", {"player": 1}, "player"),
    ("textarena", "TextArena-v0", {"opponent": "no_such:thing"}, "no_such"),
    ("gem", "Gem-v0", {"split": "dev"}, "validation"),
    ("Gym.environment", "RLVE-v0", {"split": "dev"}, "validation"),
    ("reasoning_gym", "ReasoningGym-v0", {"split": "dev"}, "validation"),
    ("skyrl_gym", "SkyRLGym-v0", {"split": "dev"}, "validation"),
    ("textarena", "TextArena-v0", {"split": "dev"}, "validation"),
    ("gem", "Gem-v0", {"data": "official"}, "generated"),
    ("Gym.environment", "RLVE-v0", {"data": "official"}, "generated"),
    ("reasoning_gym", "ReasoningGym-v0", {"data": "official"}, "generated"),
    ("textarena", "TextArena-v0", {"data": "official"}, "generated"),
]


def test_only_the_games_own_output_is_dropped(capsys):
    before = sys.stdout
    with OwnDraws(0).playing():
        kept = sys.stdout
        sys.stdout.write("of the game")
        thread = threading.Thread(target=print, args=("of another thread",))
        thread.start()
        thread.join()
    assert sys.stdout is before
    kept.write("later\n")
    assert capsys.readouterr().out == "of another thread\nlater\n"


def test_draws_are_the_games_own():
    random.seed(3)
    wanted = random.random()
    random.seed(3)
    with OwnDraws(1).playing():
        random.random()
    assert random.random() == wanted


@pytest.mark.parametrize(("package", "name", "kwargs", "message"), WRONG)
def test_wrong_arguments(package, name, kwargs, message):
    pytest.importorskip(package)
    with pytest.raises(ConfigError, match=message):
        gym.make(f"AgentR1/{name}", **kwargs)
