"""What environments of other packages share.

Behaviours pinned here:
1. A game with random numbers of its own prints nothing; what other threads print meanwhile is printed.
2. A wrong name, split or argument is one message, and what could run the policy's text needs trust.
"""

import random
import sys
import threading

from agent_envs.envs.foreign import OwnDraws


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
