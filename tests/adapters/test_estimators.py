"""Worked examples of the advantage estimators.

1. gae by hand on two trajectories of different length; row order does not matter
2. truncation bootstraps where V of the final state is known; the released rule on request
3. whitening is over valid step rows only; one row, equal rows, no row
4. grpo: one score per trajectory however many steps it has; Dr.GRPO; a group of one
5. padding and masked rows change nothing
6. an unknown name lists what there is
"""

import pytest

torch = pytest.importorskip("torch")

from agent_envs.adapters.estimators import (  # noqa: E402
    EstimatorOptions,
    StepRows,
    gae,
    get_estimator,
    grpo,
    whiten,
)
from agent_envs.errors import ConfigError  # noqa: E402


def rows(data, values=True):
    """Rows from tuples (trajectory, step, group, reward, value, valid, truncated, final value)."""
    columns = list(zip(*data, strict=True))
    return StepRows(
        trajectory=torch.tensor(columns[0]),
        step=torch.tensor(columns[1]),
        group=torch.tensor(columns[2]),
        rewards=torch.tensor(columns[3], dtype=torch.float32),
        values=torch.tensor(columns[4], dtype=torch.float32) if values else None,
        valid=torch.tensor(columns[5]),
        truncated=torch.tensor(columns[6]),
        final_values=torch.tensor(columns[7], dtype=torch.float32) if values else None,
    )


NAN = float("nan")
TWO = [  # trajectory 7: rewards 0, 1 values .5, .25; trajectory 9: reward -1 value 0.2, truncated, V(final) = 2
    (7, 0, 0, 0.0, 0.5, True, False, NAN),
    (7, 1, 0, 1.0, 0.25, True, False, NAN),
    (9, 0, 0, -1.0, 0.2, True, True, 2.0),
]


def test_gae_by_hand():
    # delta_1 = 1 - .25 = .75; delta_0 = 0 + .9*.25 - .5 = -.275; A_0 = -.275 + .9*.8*.75 = .265
    # cut trajectory: delta = -1 + .9*2 - .2 = .6
    out = gae(rows(TWO), EstimatorOptions(gamma=0.9, lam=0.8, whiten=False))
    torch.testing.assert_close(out.advantages, torch.tensor([0.265, 0.75, 0.6]))
    torch.testing.assert_close(out.returns, torch.tensor([0.765, 1.0, 0.8]))
    assert out.metrics == {"truncated": 1.0, "bootstrapped": 1.0}


def test_gae_released_rule_does_not_bootstrap():
    out = gae(rows(TWO), EstimatorOptions(gamma=0.9, lam=0.8, whiten=False, bootstrap_truncated=False))
    torch.testing.assert_close(out.advantages, torch.tensor([0.265, 0.75, -1.2]))
    assert out.metrics["bootstrapped"] == 0


def test_gae_unknown_final_value_is_zero():
    data = [*TWO[:2], (9, 0, 0, -1.0, 0.2, True, True, NAN)]
    out = gae(rows(data), EstimatorOptions(gamma=0.9, lam=0.8, whiten=False))
    torch.testing.assert_close(out.advantages[2], torch.tensor(-1.2))


def test_gae_whitens_over_steps_and_ignores_order():
    options = EstimatorOptions(gamma=0.9, lam=0.8)
    out = gae(rows(TWO), options).advantages
    raw = torch.tensor([0.265, 0.75, 0.6])
    torch.testing.assert_close(out, (raw - raw.mean()) / (raw.std() + 1e-8))
    shuffled = gae(rows([TWO[2], TWO[1], TWO[0]]), options).advantages
    torch.testing.assert_close(shuffled, out.flip(0))


def test_gae_without_values_says_what_to_do():
    with pytest.raises(ConfigError, match="critic"):
        gae(rows(TWO, values=False), EstimatorOptions())


@pytest.mark.parametrize("x", [[], [3.0], [2.0, 2.0, 2.0]])
def test_whitening_degenerate(x):
    assert whiten(torch.tensor(x)).tolist() == [0.0] * len(x)


GROUPS = [  # group 0: scores 1 (two steps) and 0 (one step); group 1: a single trajectory with score 1
    (0, 0, 0, 0.25, 0.0, True, False, NAN),
    (0, 1, 0, 0.75, 0.0, True, False, NAN),
    (1, 0, 0, 0.0, 0.0, True, False, NAN),
    (2, 0, 1, 1.0, 0.0, True, False, NAN),
]


def test_grpo_by_hand():
    # mean .5, unbiased std of (1, 0) = .70711: A = +-.5 / .70711 = +-.70711; the group of one gets 0
    out = grpo(rows(GROUPS, values=False), EstimatorOptions())
    torch.testing.assert_close(out.advantages, torch.tensor([0.7071058, 0.7071058, -0.7071058, 0.0]))
    assert out.metrics == {"groups_of_one": 1.0, "groups_compared": 1.0, "groups_without_signal": 0.0}


def test_dr_grpo_by_hand():
    out = grpo(rows(GROUPS, values=False), EstimatorOptions(norm_by_std=False))
    assert out.advantages.tolist() == [0.5, 0.5, -0.5, 0.0]


def test_grpo_equal_scores_are_counted():
    data = [(0, 0, 0, 1.0, 0, True, False, NAN), (1, 0, 0, 1.0, 0, True, False, NAN)]
    out = grpo(rows(data), EstimatorOptions())
    assert out.advantages.tolist() == [0.0, 0.0]
    assert out.metrics["groups_without_signal"] == 1


@pytest.mark.parametrize("name", ["gae", "grpo"])
def test_invalid_rows_change_nothing(name):
    estimator = get_estimator(name)
    data = [*TWO, (11, 0, 0, 3.0, 0.1, True, False, NAN)]
    junk = [(50, 0, 0, 100.0, 7.0, False, False, NAN), (9, 1, 0, -100.0, 7.0, False, True, 9.0)]
    clean = estimator(rows(data), EstimatorOptions())
    padded = estimator(rows([junk[0], *data, junk[1]]), EstimatorOptions())
    assert padded.advantages.tolist() == [0.0, *clean.advantages.tolist(), 0.0]
    assert padded.returns.tolist() == [0.0, *clean.returns.tolist(), 0.0]
    assert padded.metrics == clean.metrics


@pytest.mark.parametrize("name", ["gae", "grpo"])
def test_nothing_valid(name):
    data = [(0, 0, 0, 1.0, 1.0, False, False, NAN)]
    assert get_estimator(name)(rows(data), EstimatorOptions()).advantages.tolist() == [0.0]


def test_unknown_name():
    with pytest.raises(ConfigError, match=r"'gae'.*'grpo'.*got 'gra'"):
        get_estimator("gra")
