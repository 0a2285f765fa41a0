"""What environments of other packages share.

Behaviours pinned here:
1. A game prints nothing and has random numbers of its own; what other threads print meanwhile is printed.
2. The contract of text environments holds.
3. A wrong name, split or argument is one message, and what could run the policy's text needs trust.
"""

import logging
import random
import sys
import threading

import gymnasium as gym
import numpy as np
import pytest

from agent_envs.envs.foreign import OwnDraws
from agent_envs.errors import ConfigError
from agent_envs.testing import check_text_env

EXTRAS = "needs the extra suites or gem: pip install 'agent-envs[suites,gem]'"


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


def _drawn(play):
    """What the global generators draw after something is played."""
    random.seed(3)
    np.random.seed(3)
    play()
    return random.random(), np.random.random()


def test_draws_are_the_games_own():
    def play():
        with OwnDraws(1).playing():
            random.random()
            np.random.random()

    assert _drawn(play) == _drawn(lambda: None)


@pytest.mark.parametrize(
    ("name", "package", "game", "move"),
    [("Gem", "gem", "game:Mastermind-v0-easy", "\\boxed{1 2}"), ("TextArena", "textarena", "Minesweeper-v0", "[2 2]")],
)
def test_nobodys_draws_and_logging_change(name, package, game, move):
    pytest.importorskip(package, reason=EXTRAS)
    handlers = list(logging.getLogger().handlers)

    def play():
        env = gym.make(f"AgentR1/{name}-v0", env=game)
        first = env.reset(seed=5)[0]
        env.step(move)
        assert env.reset(seed=5)[0] == first

    assert _drawn(play) == _drawn(lambda: None)
    assert logging.getLogger().handlers == handlers


EVALUATED = ("binary_matrix", "countdown", "n_queens", "spiral_matrix", "string_insertion", "composite")
"""Their scoring passes the answer to `eval`; found by what their modules call, not by a list of names."""
WRONG = [
    ("Gem", "gem", {"env": "game:Mastermind"}, "Mastermind-v0-easy"),
    ("Gem", "gem", {"env": "code:Taco8k"}, "trust=True"),
    ("Gem", "gem", {"env": "math:GSM8K"}, "trust=True"),
    *(("ReasoningGym", "reasoning_gym", {"dataset": name}, "trust=True") for name in EVALUATED),
    ("ReasoningGym", "reasoning_gym", {"dataset": "chain_sums"}, "chain_sum"),
    ("ReasoningGym", "reasoning_gym", {"config": {"no_such": 1}}, "no_such"),
    ("RLVE", "Gym.environment", {"problem": "AdditionTables"}, "Did you mean 'AdditionTable'"),
    ("RLVE", "Gym.environment", {"problem": "CountdownEqual"}, "trust=True"),
    ("RLVE", "Gym.environment", {"level": -1}, "level"),
    ("ScienceWorld", "scienceworld", {"split": "dev"}, "split"),
    ("ScienceWorld", "scienceworld", {"families": "boiling"}, "families"),
    ("ScienceWorld", "scienceworld", {"simplifications": "easy,hard"}, "simplifications"),
    ("ScienceWorld", "scienceworld", {"reward": "dense"}, "reward"),
    ("SkyRLGym", "skyrl_gym", {"env": "gsm9k"}, "gsm8k"),
    ("SkyRLGym", "skyrl_gym", {"env": "lcb"}, "trust=True"),
    ("SkyRLGym", "skyrl_gym", {"env": "text2sql", "trust": True}, "path of rows"),
    ("SkyRLGym", "skyrl_gym", {"split": "dev"}, "validation"),
    ("TextArena", "textarena", {"env": "Mastermnd-v0"}, "Mastermind-v0"),
    ("TextArena", "textarena", {"env": "SettlersOfCatan-v0"}, "one player or two"),
    ("TextArena", "textarena", {"env": "TicTacToe-v0", "player": 2}, "player"),
    ("TextArena", "textarena", {"env": "Mastermind-v0", "player": "both"}, "player must be"),
    ("TextArena", "textarena", {"player": 1}, "player"),
    ("TextArena", "textarena", {"opponent": "no_such:thing"}, "no_such"),
    ("TextWorld", "textworld", {"level": 31}, "1 to 30"),
    *((*one, kwargs, message)
      for one in (("Gem", "gem"), ("ReasoningGym", "reasoning_gym"), ("RLVE", "Gym.environment"),
                  ("TextArena", "textarena"), ("TextWorld", "textworld"))
      for kwargs, message in (({"split": "dev"}, "validation"), ({"data": "official"}, "generated"))),
]  # fmt: skip


KEPT = [
    ("Gem", "gem", {"env": "game:Mastermind-v0-easy"}, True),
    ("Gem", "gem", {"env": "game:GuessTheNumber-v0-random"}, False),
    ("ReasoningGym", "reasoning_gym", {}, True),
    ("RLVE", "Gym.environment", {}, False),
    *(("SkyRLGym", "skyrl_gym", {"env": name}, name == "gsm8k") for name in ("aime", "gsm8k", "gsm8k_multi_turn")),
    ("TextArena", "textarena", {"env": "Mastermind-v0"}, False),
    ("TextArena", "textarena", {"env": "TicTacToe-v0"}, False),
    ("TextArena", "textarena", {"env": "Nim-v0", "player": "both"}, False),
    *(pytest.param("TextArena", "textarena", {"env": f"{name}-v0"}, name == "Sokoban", marks=pytest.mark.slow)
      for name in ("Sokoban", "Minesweeper", "Blackjack", "ConnectFour", "KuhnPoker")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "package", "kwargs", "vectors"), KEPT)
def test_they_keep_the_contract(name, package, kwargs, vectors):
    pytest.importorskip(package, reason=EXTRAS)
    check_text_env(f"AgentR1/{name}-v0", env_kwargs=kwargs, vectors=vectors)


@pytest.mark.parametrize(("name", "package", "kwargs", "message"), WRONG)
def test_wrong_arguments(name, package, kwargs, message):
    pytest.importorskip(package, reason=EXTRAS)
    with pytest.raises(ConfigError, match=message):
        gym.make(f"AgentR1/{name}-v0", **kwargs)
