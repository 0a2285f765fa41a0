"""What environments of other packages share.

Behaviours pinned here:
1. A game with random numbers of its own prints nothing; what other threads print meanwhile is printed.
2. A wrong name, split or argument is one message, and what could run the policy's text needs trust.
"""

import random
import sys
import threading

import gymnasium as gym
import pytest

import agent_envs  # noqa: F401  (registers the ids)
from agent_envs.envs.foreign import OwnDraws
from agent_envs.errors import ConfigError


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


@pytest.mark.parametrize(("name", "package", "kwargs", "message"), WRONG)
def test_wrong_arguments(name, package, kwargs, message):
    pytest.importorskip(package, reason="needs the extra suites or gem: pip install 'agent-envs[suites,gem]'")
    with pytest.raises(ConfigError, match=message):
        gym.make(f"AgentR1/{name}-v0", **kwargs)
