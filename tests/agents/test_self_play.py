"""The exploitability that benchmarks/self_play.py reports is exact on strategies whose value is known."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def games(load_file):
    return load_file("benchmarks/self_play.py")


def test_an_equilibrium_of_kuhn_poker_cannot_be_exploited(games):
    """Kuhn (1950): the first player bets with a jack in a third and always with a king; the value is -1/18."""
    kuhn, third = games.GAMES["kuhn"], 1 / 3
    bets = {
        "nothing": {"J": third, "Q": 0, "K": 1}, "pass, bet": {"J": 0, "Q": 2 * third, "K": 1},
        "pass": {"J": third, "Q": 0, "K": 1}, "bet": {"J": 0, "Q": third, "K": 1},
    }  # fmt: skip
    equilibrium, uniform = {}, {}
    for key in games.states(kuhn):
        seen = key.partition(" ")[2]
        bet = bets[seen.partition("far: ")[2].rstrip(".")][seen.partition("the ")[2][0]]
        equilibrium[seen], uniform[seen] = np.array([1 - bet, bet]), np.array([0.5, 0.5])
    assert games.exploitability(kuhn, equilibrium) == pytest.approx(0, abs=1e-12)
    assert games.best_response(kuhn, equilibrium, 0) == pytest.approx(-1 / 18)
    assert games.exploitability(kuhn, uniform) == pytest.approx(11 / 24)


def test_leaving_a_multiple_of_four_cannot_be_exploited(games):
    nim = games.GAMES["nim"]
    heaps = {key.partition(" ")[2]: int(key.rstrip(".").split()[-1]) for key in games.states(nim)}
    assert games.exploitability(nim, {seen: np.eye(3)[(heap % 4 or 1) - 1] for seen, heap in heaps.items()}) == 0
    assert games.exploitability(nim, {seen: np.eye(3)[0] for seen in heaps}) == 1
