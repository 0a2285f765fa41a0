"""Process rewards and reward scaling.

1. off by default; components mixed by weight
2. PRIME's normalisation by hand; zeros, padding and one-sided signs are safe
3. the mixed reward reaches the last token of its step
4. scaling by the deviation of returns, of a batch, running or as released; a continued run goes on where it was
"""

import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from agent_envs.adapters.estimators import (  # noqa: E402
    EstimatorOptions,
    ProcessRewards,
    RewardScale,
    StepRows,
    TokenRows,
    get_estimator,
    prime_normalised,
    process_rewards,
    say_once,
)
from agent_envs.errors import ConfigError, DataError  # noqa: E402

NAMES = ["answer", "search", "format"]
# trajectory 0: steps with search .1 and -.3, answer 1 at the end; trajectory 1: search .5; a padding row
TRAJECTORY, STEP = torch.tensor([0, 0, 0, 1, 7]), torch.tensor([0, 1, 2, 0, 0])
COMPONENTS = torch.tensor([[0, 0.1, 0.2], [0, -0.3, 0], [1.0, 0, 0], [0, 0.5, 0], [math.nan, 9.0, 9.0]])
ROWS = StepRows(
    rewards=torch.tensor([0.3, -0.3, 1.0, 0.5, 99.0]),
    trajectory=TRAJECTORY,
    step=STEP,
    group=torch.zeros(5, dtype=torch.int64),
    valid=TRAJECTORY < 7,
    truncated=TRAJECTORY < 0,
    components=COMPONENTS,
    component_names=NAMES,
)


def test_off_by_default():
    rows, metrics = process_rewards(ROWS, ProcessRewards())
    assert rows is ROWS and metrics == {}


def test_weights_replace_what_the_reward_holds():
    rows, metrics = process_rewards(ROWS, ProcessRewards({"search": 2.0, "format": 0.0}))
    # what is left: 0, 0, 1, 0; the process reward: .2, -.6, 0, 1
    assert rows.rewards.tolist() == pytest.approx([0.2, -0.6, 1.0, 1.0, 99.0])
    expected = {"count": 3.0, "mean": 0.2, "max": 1.0, "min": -0.6, "components_missing": 0.0}
    assert metrics == pytest.approx({f"process_rewards/{k}": v for k, v in expected.items()})


def test_prime_by_hand():
    # rewards to go of the searches: -.2, -.3, 0 and .5: the scale is .5
    rows, metrics = process_rewards(ROWS, ProcessRewards({"search": 1.0}, normalize="prime"))
    s = 0.5 + 1e-6
    assert metrics["process_rewards/scale"] == pytest.approx(s)
    assert rows.rewards.tolist() == pytest.approx([0.2 + 0.1 / s, -0.3 / s, 1.0, 0.5 / s, 99.0])
    half, _ = process_rewards(ROWS, ProcessRewards({"search": 1.0}, normalize="prime", weight=0.5))
    assert half.rewards.tolist() == pytest.approx([0.2 + 0.05 / s, -0.15 / s, 1.0, 0.25 / s, 99.0])


def test_prime_of_zeros_and_of_nothing():
    p, scale = prime_normalised(ROWS, torch.zeros(5))
    assert p.tolist() == [0.0] * 5 and scale == pytest.approx(1e-6)
    rows = replace(ROWS, components=torch.zeros(5, 3))
    zero, metrics = process_rewards(rows, ProcessRewards({"search": 1.0}, normalize="prime"))
    assert zero.rewards.tolist() == ROWS.rewards.tolist() and metrics["process_rewards/count"] == 0.0
    none = replace(ROWS, valid=torch.zeros(5, dtype=torch.bool))
    assert prime_normalised(none, torch.ones(5))[0].tolist() == [0.0] * 5


def test_the_mixed_reward_sits_on_the_last_token_of_its_step():
    rows, _ = process_rewards(ROWS, ProcessRewards({"search": 2.0}))
    rows = replace(rows, tokens=TokenRows(torch.tensor([0, 0, -1, 1, 2, 2, 2, 3, -1])))
    out = get_estimator("reinforce_pp")(rows, EstimatorOptions(gamma=0.0, whiten=False))
    assert out.token_returns.tolist() == pytest.approx([0, 0.4, 0, -0.6, 0, 0, 1.0, 1.0, 0])


def test_a_component_that_no_step_has_is_counted_and_said_once(caplog):
    say_once.cache_clear()
    for _ in range(2):
        rows, metrics = process_rewards(ROWS, ProcessRewards({"serach": 1.0, "search": 2.0}))
    assert rows.rewards.tolist() == pytest.approx([0.4, -0.6, 1.0, 1.0, 99.0])
    assert metrics["process_rewards/components_missing"] == 1.0
    assert len(caplog.records) == 1
    assert "'serach'" in caplog.text and "Did you mean 'search'?" in caplog.text
    none = StepRows(*(x[:0] for x in (ROWS.rewards, TRAJECTORY, STEP, ROWS.group, ROWS.valid, ROWS.truncated)))
    assert len(process_rewards(none, ProcessRewards({"search": 1.0}))[0].rewards) == 0
    say_once.cache_clear()


def test_bad_input():
    with pytest.raises(ConfigError, match="None, 'prime', got 'max'"):
        ProcessRewards({"search": 1.0}, normalize="max")
    with pytest.raises(ConfigError, match="the weight of 'search' must be a number, got nan"):
        ProcessRewards({"search": math.nan})
    with pytest.raises(DataError, match=r"shape \(5, 2\), expected \(5, 3\)"):
        process_rewards(replace(ROWS, components=COMPONENTS[:, :2]), ProcessRewards({"search": 1.0}))
    wrong = COMPONENTS.clone()
    wrong[1, 1] = math.inf
    with pytest.raises(DataError, match="trajectory 0 at step 1"):
        process_rewards(replace(ROWS, components=wrong), ProcessRewards({"search": 1.0}))
    placed = replace(ROWS, tokens=TokenRows(torch.tensor([0]), rewards=torch.zeros(1)))
    with pytest.raises(DataError, match="the tokens have rewards already"):
        process_rewards(placed, ProcessRewards({"search": 1.0}))


def test_scaling_by_the_deviation_of_returns():
    rows = replace(ROWS, rewards=torch.tensor([1.0, 0.0, 2.0, 0.5, 99.0]))
    scaled, metrics = RewardScale("batch", gamma=0.5).scale(rows)  # returns 1 + .25 * 2 = 1.5 and .5
    sigma = math.sqrt(0.5)
    assert metrics["reward_scale"] == pytest.approx(sigma)
    assert scaled.rewards.tolist() == pytest.approx([x / sigma for x in (1.0, 0.0, 2.0, 0.5, 99.0)])
    tokens = replace(rows, tokens=TokenRows(torch.tensor([0]), rewards=torch.tensor([3.0])))
    assert float(RewardScale("batch", 0.5).scale(tokens)[0].tokens.rewards) == pytest.approx(3.0 / sigma)
    greedy = replace(rows, baseline=torch.full((5,), 2.0))  # compared with what is scaled
    assert RewardScale("batch", 0.5).scale(greedy)[0].baseline.tolist() == pytest.approx([2.0 / sigma] * 5)


def test_each_environment_has_its_own_scale():
    """Also where a batch has one of them alone: it is the one it was before."""
    n = torch.arange(8)
    zeros = torch.zeros(8, dtype=torch.int64)
    returns = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 100.0, 0.0, 100.0])
    rows = StepRows(returns, n, zeros, n, n >= 0, n < 0, env=n // 4, env_names=("A/X-v0", "B/Y-v0"))
    scale = RewardScale("running")
    scaled, metrics = scale.scale(rows)
    assert scaled.rewards[:4].tolist() == pytest.approx(scaled.rewards[4:].tolist())
    assert metrics["reward_scale/B/Y-v0"] == pytest.approx(100 * metrics["reward_scale/A/X-v0"])
    again = RewardScale("running")
    again.load_state_dict(scale.state_dict())
    alone = replace(rows, valid=n < 4, env=None, env_names=("A/X-v0",))
    assert again.scale(alone)[1]["reward_scale"] == pytest.approx(float(returns[:4].repeat(2).std()))
    p = prime_normalised(rows, returns)[0]
    assert p[:4].tolist() == pytest.approx(p[4:].tolist(), rel=1e-5)


def test_running_scale_is_that_of_all_batches_and_survives_a_restart():
    returns = torch.randn(40, generator=torch.Generator().manual_seed(0)) + 3.0
    scale = RewardScale("running")
    i = torch.arange(10)
    for part in returns.split(10):
        again = RewardScale("running")
        again.load_state_dict(scale.state_dict())
        rows = StepRows(part, i, i * 0, i * 0, i >= 0, i < 0)
        metrics = scale.scale(rows)[1]
        assert again.scale(rows)[1] == metrics
    assert metrics["reward_scale"] == pytest.approx(float(returns.std()))


def test_the_released_scale_is_of_what_was_paid_until_each_step_and_begins_at_one():
    """Rewards 1, 2 and 4, 0 in two trajectories, gamma 1/2: R is 1, 2.5, 4, 2, and there are 1e-4 steps before."""
    i = torch.arange(4)
    rows = StepRows(torch.tensor([1.0, 2.0, 4.0, 0.0]), i // 2, i % 2, i * 0, i >= 0, i < 0)
    seen, weight = [0.0, 1.0, 2.5, 4.0, 2.0], [1e-4, 1.0, 1.0, 1.0, 1.0]
    scale, again = RewardScale("released", gamma=0.5), RewardScale("released", gamma=0.5)
    for _ in range(2):
        scaled, metrics = scale.scale(rows)
        mean = np.average(seen, weights=weight)
        var = np.average((np.array(seen) - mean) ** 2 + [1.0, *[0.0] * (len(seen) - 1)], weights=weight)
        assert metrics["reward_scale"] == pytest.approx(math.sqrt(var + 1e-8))
        assert scaled.rewards.tolist() == pytest.approx([x / math.sqrt(var) for x in (1.0, 2.0, 4.0, 0.0)])
        again.load_state_dict(scale.state_dict())
        seen, weight = [*seen, *seen[1:]], [*weight, *weight[1:]]
    assert again.scale(rows)[1] == scale.scale(rows)[1]


@pytest.mark.parametrize("rewards", [[1.0], [2.0, 2.0], [0.1, 0.1, 0.1]])
def test_scaling_without_a_deviation_changes_nothing(rewards):
    i = torch.arange(len(rewards))
    rows = StepRows(torch.tensor(rewards), i, i * 0, i * 0, i >= 0, i < 0)
    for kind in ("batch", "running"):
        scaled, metrics = RewardScale(kind).scale(rows)
        assert scaled.rewards.tolist() == rows.rewards.tolist() and metrics["reward_scale"] == 1.0
    with pytest.raises(ConfigError, match="one of 'batch', 'running', 'released', got 'global'"):
        RewardScale("global")


def test_scaling_refuses_numbers_that_are_none_and_keeps_its_moments():
    scale = RewardScale("running")
    scale.scale(ROWS)
    before = scale.state_dict()
    broken = replace(ROWS, rewards=torch.tensor([0.3, math.nan, 1.0, 0.5, 99.0]), names=["a", "b"])
    with pytest.raises(DataError, match="trajectory 'a' at step 1 is nan"):
        scale.scale(broken)
    assert scale.state_dict() == before
