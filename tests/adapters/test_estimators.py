"""Estimators on steps, tokens, groups and anchors; what holds for all of them; verl's functions; checks.

1. worked examples by hand, of episodes of several steps
2. for every estimator: the order of rows and tokens, and padding, change nothing; zero rewards; groups of one; one step
3. the reverse scan and the layouts agree with loops over elements
4. equal to verl 0.9.1 on one-step episodes, and on whole ones in a row for the estimators of tokens that verl has there
5. similar anchors are SequenceMatcher's, greedily
6. numbers and indices that cannot be are refused by name; what is odd is counted
"""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import fields, replace
from difflib import SequenceMatcher

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from agent_envs.adapters.estimators import (  # noqa: E402
    ESTIMATORS,
    EstimatorOptions,
    StepRows,
    TokenRows,
    bi_level_gae,
    check_episodes,
    check_log_probs,
    check_rows,
    get_estimator,
    gigpo,
    reinforce,
    reinforce_pp,
    remax,
    say_once,
    score_norms,
    token_gae,
    whiten,
)
from agent_envs.adapters.estimators.groups import similar_anchors  # noqa: E402
from agent_envs.adapters.estimators.segments import discounted_sums, next_in_segment  # noqa: E402
from agent_envs.errors import ConfigError, DataError  # noqa: E402

NAMES = sorted(ESTIMATORS)
NAN = math.nan


def build(lengths, rewards, *, groups=None, tokens=None, seed=0):
    """Trajectories with these numbers of steps; everything an estimator may want; ``tokens`` per step."""
    g = torch.Generator().manual_seed(seed)
    n = sum(lengths)
    trajectory = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    step = torch.cat([torch.arange(k) for k in lengths])
    groups = torch.zeros(len(lengths), dtype=torch.int64) if groups is None else torch.tensor(groups)
    last = torch.tensor(lengths).cumsum(0) - 1
    truncated = torch.zeros(n, dtype=torch.bool)
    truncated[last[::2]] = True
    final = torch.full((n,), NAN)
    final[last[::2]] = torch.randn(len(last[::2]), generator=g)
    tokens = torch.randint(1, 5, (n,), generator=g) if tokens is None else torch.tensor(tokens)
    step_row = torch.repeat_interleave(torch.arange(n), tokens)
    return StepRows(
        rewards=torch.as_tensor(rewards, dtype=torch.float32),
        trajectory=trajectory,
        step=step,
        group=groups[trajectory],
        valid=torch.ones(n, dtype=torch.bool),
        truncated=truncated,
        values=torch.randn(n, generator=g),
        final_values=final,
        tokens=TokenRows(
            step_row,
            values=torch.randn(len(step_row), generator=g),
            score_norms=torch.rand(len(step_row), generator=torch.Generator().manual_seed(seed + 1)),
        ),
        baseline=torch.randn(16, generator=g)[groups][trajectory],
        anchor=torch.randint(0, 3, (n,), generator=g),
        anchor_texts=("a room with a door", "a room with a doors", "the garden"),
    )


def plain(rows):
    """The rows as if no limit had ended anything."""
    return replace(rows, truncated=torch.zeros_like(rows.truncated))


@pytest.mark.parametrize("name", NAMES)
def test_environments_of_a_batch_are_normalised_apart(name):
    rows = build([2, 1, 3, 2], [0.0, 1.0, 0.2, 40.0, 0.0, 90.0, 5.0, 60.0], groups=[0, 0, 1, 1])
    rows = replace(rows, env=rows.trajectory // 2)
    estimator, options = get_estimator(name), EstimatorOptions()
    both = estimator(rows, options)
    alone = [estimator(replace(rows, valid=rows.env == env, env=None), options) for env in (0, 1)]
    torch.testing.assert_close(both.advantages, alone[0].advantages + alone[1].advantages)
    for a, b, c in zip(*(x.on_tokens(rows.tokens.step_row) for x in (both, *alone)), strict=True):
        torch.testing.assert_close(a, b + c)
    if estimator.compares_groups:
        assert both.metrics["groups_compared"] == sum(part.metrics["groups_compared"] for part in alone) == 2


# ---------------------------------------------------------------- by hand

HAND = plain(build([2, 1], [0.0, 1.0, -1.0], tokens=[2, 1, 1]))
HAND = replace(HAND, tokens=TokenRows(HAND.tokens.step_row, values=torch.tensor([0.5, 0.4, 0.2, 0.1])))


@pytest.mark.parametrize("name", ["gae", "token_gae", "bi_level_gae"])
def test_a_cut_trajectory_bootstraps_at_its_last_token(name):
    cut = replace(HAND, truncated=torch.tensor([False, True, False]), final_values=torch.tensor([NAN, 2.0, NAN]))
    options = EstimatorOptions(turn_gamma=0.9, gamma=0.9, lam=1.0, whiten=False)
    steps = name == "gae"
    value = float(cut.values[1]) if steps else 0.2

    def last(rows, options):
        result = get_estimator(name)(rows, options)
        return float(result.advantages[1] if steps else result.token_advantages[2]), result.metrics

    advantage, metrics = last(cut, options)
    assert advantage == pytest.approx(1 + 0.9 * 2 - value)
    assert (metrics["truncated"], metrics["bootstrapped"]) == (1, 1)
    unknown = replace(cut, final_values=torch.full((3,), NAN))
    for rows, how in ((cut, replace(options, bootstrap_truncated=False)), (unknown, options)):
        advantage, metrics = last(rows, how)
        assert advantage == pytest.approx(1 - value) and metrics["bootstrapped"] == 0


def test_bi_level_gae_pays_rewards_inside_a_turn_once():
    # all discounts 1; a penalty of -.2 on the first token, 0 on the second, 1 on the third: returns to go .8, 1, 1
    tokens = replace(HAND.tokens, rewards=torch.tensor([-0.2, 0.0, 1.0, -1.0]))
    rows = replace(HAND, tokens=tokens, rewards=torch.tensor([-0.2, 1.0, -1.0]))
    out = bi_level_gae(rows, EstimatorOptions(turn_gamma=1.0, whiten=False))
    torch.testing.assert_close(out.token_returns, torch.tensor([0.8, 1.0, 1.0, -1.0]))
    same = token_gae(rows, EstimatorOptions(whiten=False))
    torch.testing.assert_close(out.token_returns, same.token_returns)


@pytest.mark.parametrize(
    ("name", "options", "advantages"),
    [
        ("rloo", {}, [0.75, 0.75, -0.75, 0.0, 0.0]),
        ("grpo", {}, [1.0, 1.0, -1.0, 0.0, 0.0]),  # by a deviation of .5
        ("grpo", {"norm_by_std": False}, [0.5, 0.5, -0.5, 0.0, 0.0]),
        # .5 on 3 tokens, -.5 on 1, 0 on 1: mean .2, squares 3*.09 + .49 + .04 = .8, variance .2
        ("reinforce_pp_baseline", {}, [*(x / math.sqrt(0.2) for x in (0.3, 0.3, -0.7, -0.2)), 0.0]),
        ("reinforce_pp_baseline", {"whiten": False}, [0.5, 0.5, -0.5, 0.0, 0.0]),
        ("gdpo", {}, [*(x / math.sqrt(0.2) for x in (0.3, 0.3, -0.7, -0.2)), 0.0]),  # the same: a single component
        ("opo", {}, [0.3, 0.3, -0.7, -0.2, 0.0]),  # 3 tokens of a score of 1, 1 of 0, 1 of .5: .7
        ("gpg", {}, [x * 4 / 3 for x in (0.5, 0.5, -0.5, 0.0, 0.0)]),  # 3 of 4 scores are not 0
        ("grpo_passk", {"norm_by_std": False}, [0.5, 0.5, 0.0, 0.0, 0.0]),
    ],
)
def test_group_estimators_by_hand(name, options, advantages):
    # scores 1 (two steps), 0, .5 in group 1, 3 alone in group 0
    rows = build([2, 1, 1, 1], [0.25, 0.75, 0.0, 0.5, 3.0], groups=[1, 1, 1, 0], tokens=[1, 2, 1, 1, 4])
    estimator = get_estimator(name)
    out = estimator(rows, EstimatorOptions(**options))
    assert out.advantages.tolist() == pytest.approx(advantages, abs=1e-4 if name in ("gdpo", "grpo") else 1e-6)
    counts = ("groups_of_one", "groups_compared", "groups_without_signal")
    assert [out.metrics[count] for count in counts] == [1.0, 1.0, 0.0]
    level = torch.tensor([0.05, 0.05, 0.1, 0.1, 0.1], dtype=torch.float64)  # whose mean is not .1 exactly
    out = estimator(replace(rows, rewards=level), EstimatorOptions(**options))
    assert out.metrics["groups_without_signal"] == 1 and not out.advantages.any()


def test_nobody_is_best_where_two_are():
    rows = build([2, 1, 1], [1.0, 0.0, 0.0, 1.0])
    assert not get_estimator("grpo_passk")(rows, EstimatorOptions()).advantages.any()


def test_reinforce_by_hand():
    out = reinforce(HAND, EstimatorOptions(gamma=0.5))
    g = torch.tensor([0.5, 1.0, -1.0])
    torch.testing.assert_close(out.returns, g)
    torch.testing.assert_close(out.advantages, (g - g.mean()) / (g.std() + 1e-8))


def test_reinforce_pp_of_each_step_alone():
    out = reinforce_pp(HAND, EstimatorOptions(gamma=0.5, row_returns=True))  # a step does not see the next one's reward
    g = torch.tensor([0.0, 0.0, 1.0, -1.0])
    torch.testing.assert_close(out.token_returns, g)
    torch.testing.assert_close(out.token_advantages, (g - g.mean()) * (g.var() + 1e-8).rsqrt())


@pytest.mark.parametrize("name", ["gigpo", "grpo", "reinforce_pp_baseline", "rloo"])
def test_a_group_of_one_has_the_advantage_0_or_its_score(name):
    # scores 1 and 0 in a group, 3 in two steps alone
    rows = replace(build([1, 1, 2], [1.0, 0.0, 1.0, 2.0], groups=[0, 0, 1]), anchor=torch.tensor([0, 1, 2, 3]))
    own, released = (get_estimator(name)(rows, EstimatorOptions(whiten=False, lone_score=x)) for x in (False, True))
    assert own.advantages[2:].tolist() == [0.0, 0.0] and released.advantages[2:].tolist() == [3.0, 3.0]
    assert torch.equal(own.advantages[:2], released.advantages[:2]) and float(own.advantages[0]) > 0
    assert own.metrics["groups_of_one"] == released.metrics["groups_of_one"] == 1


def test_remax_by_hand():
    rows = replace(build([2, 1, 1], [1.0, 2.0, 0.0, 5.0]), baseline=torch.tensor([2.5, 2.5, 2.5, NAN]))
    out = remax(rows, EstimatorOptions())
    assert out.advantages.tolist() == [0.5, 0.5, -2.5, 0.0] and out.metrics == {"baselines_missing": 1.0}
    assert remax(rows, EstimatorOptions(reward_to_go=True)).advantages.tolist() == [0.5, -0.5, -2.5, 0.0]


def test_gigpo_by_hand():
    # two trajectories of one group: rewards 0 1 and 0 0; a third in a group of its own
    rows = build([2, 2, 1], [0.0, 1.0, 0.0, 0.0, 1.0], groups=[0, 0, 1])
    rows = replace(rows, anchor=torch.tensor([0, 1, 0, 2, 0]))
    # scores 1, 0: mean .5, std .70711; G with gamma .5: .5, 1, 0, 0; anchor 0: .5 and 0, std .35355; the others alone
    e, s = 0.5 / (math.sqrt(0.5) + 1e-6), 0.25 / (0.25 * math.sqrt(2) + 1e-6)
    out = gigpo(rows, EstimatorOptions(gamma=0.5, step_advantage_weight=2.0))
    assert out.advantages.tolist() == pytest.approx([e + 2 * s, e, -e - 2 * s, -e, 0.0], rel=1e-5)
    assert out.metrics["anchor_groups"] == 4 and out.metrics["anchor_groups_of_one"] == 3
    assert out.metrics["anchor_group_size"] == 1.25 and out.metrics["groups_of_one"] == 1
    out = gigpo(rows, EstimatorOptions(gamma=0.5, gigpo_norm="mean_norm"))
    assert out.advantages.tolist() == pytest.approx([0.75, 0.5, -0.75, -0.5, 0.0])
    # "a room with a door" and "a room with a doors" become one anchor: steps 1 and 2 meet
    near = replace(rows, anchor=torch.tensor([2, 0, 1, 2, 0]))
    apart = gigpo(near, EstimatorOptions(gigpo_norm="mean_norm")).advantages.tolist()
    assert apart == pytest.approx([1.0, 0.5, -0.5, -1.0, 0.0])
    together = gigpo(near, EstimatorOptions(gigpo_norm="mean_norm", similar_anchors=True)).advantages.tolist()
    assert together == pytest.approx([1.0, 1.0, -1.0, -1.0, 0.0])


# ---------------------------------------------------------------- what holds for all


@st.composite
def batches(draw):
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    groups = [draw(st.integers(0, 2)) for _ in lengths]
    seed = draw(st.integers(0, 10_000))
    rewards = [draw(st.sampled_from([0.0, 1.0, -0.5, 0.3])) for _ in range(sum(lengths))]
    return build(lengths, rewards, groups=groups, seed=seed)


OPTIONS = EstimatorOptions(gamma=0.9, lam=0.8, similar_anchors=True)


def pick(rows, order):
    """The rows in another order; -1 makes a padding row of nonsense. Tokens stand where they stood."""
    order = torch.as_tensor(order)
    pad = order < 0
    out = {}
    for field in fields(StepRows):
        x = getattr(rows, field.name)
        if isinstance(x, torch.Tensor):
            nonsense = NAN if x.is_floating_point() else True if x.dtype == torch.bool else 0  # of the first trajectory
            out[field.name] = torch.where(pad, torch.tensor(nonsense, dtype=x.dtype), x[order.clamp(min=0)])
    out["valid"] = rows.valid[order.clamp(min=0)] & ~pad
    place = torch.full((len(rows.rewards),), -1)
    place[order[~pad]] = torch.arange(len(order))[~pad]
    return replace(rows, **out, tokens=replace(rows.tokens, step_row=place[rows.tokens.step_row]))


@settings(max_examples=80, deadline=None)
@given(rows=batches(), name=st.sampled_from(NAMES), seed=st.integers(0, 1000))
def test_order_and_padding_change_nothing(rows, name, seed):
    rng = np.random.default_rng(seed)
    n = len(rows.rewards)
    clean = get_estimator(name)(rows, OPTIONS)
    order = rng.permutation([*range(n), -1, -1])
    moved_rows = pick(rows, order)
    # tokens of steps in another order too, with untrained ones in between
    flat = moved_rows.tokens
    blocks = [np.flatnonzero(flat.step_row.numpy() == r) for r in rng.permutation(np.unique(flat.step_row.numpy()))]
    token_order = np.concatenate(blocks)
    gap = torch.tensor([-1, int(np.flatnonzero(order == -1)[0])])  # untrained, and of a padding row
    moved_rows = replace(
        moved_rows,
        tokens=TokenRows(torch.cat([gap, flat.step_row[token_order]]),
                         values=torch.cat([torch.full((2,), NAN), flat.values[token_order]]),
                         score_norms=torch.cat([torch.full((2,), NAN), flat.score_norms[token_order]])),
    )  # fmt: skip
    moved = get_estimator(name)(moved_rows, OPTIONS)
    back = torch.tensor([int(np.flatnonzero(order == i)[0]) for i in range(n)])
    torch.testing.assert_close(moved.advantages[back], clean.advantages, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved.returns[back], clean.returns, rtol=1e-5, atol=1e-6)
    assert not moved.advantages[torch.tensor(order) < 0].any()
    assert moved.metrics == pytest.approx(clean.metrics)
    a, r = clean.on_tokens(flat.step_row if clean.token_advantages is not None else rows.tokens.step_row)
    b, s = moved.on_tokens(moved_rows.tokens.step_row)
    torch.testing.assert_close(b, torch.cat([torch.zeros(2), a[token_order]]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(s, torch.cat([torch.zeros(2), r[token_order]]), rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(rows=batches(), name=st.sampled_from(NAMES))
def test_zero_rewards_and_values_teach_nothing(rows, name):
    tokens = replace(rows.tokens, values=torch.zeros_like(rows.tokens.values))
    zero = torch.zeros_like(rows.rewards)
    flat = plain(replace(rows, rewards=zero, values=zero, baseline=zero, tokens=tokens))
    out = get_estimator(name)(flat, OPTIONS)
    assert not out.advantages.any() and not out.returns.any()
    assert out.metrics["zero_advantage_batch"] == 1.0
    assert not out.on_tokens(flat.tokens.step_row)[0].any()


@pytest.mark.parametrize("name", [n for n in NAMES if ESTIMATORS[n].compares_groups])
def test_groups_of_one_have_advantage_0_and_are_counted(name):
    rows = replace(build([1, 3, 2], [0.1, 0.7, 0.1, 0.2, 3.0, -1.0], groups=[2, 0, 1]), anchor=torch.arange(6))
    out = get_estimator(name)(rows, EstimatorOptions())
    assert not out.advantages.any() and out.metrics["groups_of_one"] == 3


@pytest.mark.parametrize("name", NAMES)
def test_one_step_one_row_no_row(name):
    for lengths in ([1], [1, 1, 1]):
        rows = build(lengths, [0.5] * len(lengths))
        out = get_estimator(name)(rows, EstimatorOptions(group_size=len(lengths)))
        assert out.advantages.isfinite().all() and out.advantages.shape == (len(lengths),)
    none = replace(rows, valid=torch.zeros(3, dtype=torch.bool))
    out = get_estimator(name)(none, EstimatorOptions(similar_anchors=True))
    assert not out.advantages.any() and out.metrics["zero_advantage_batch"] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_what_an_estimator_needs_is_said(name):
    rows = replace(build([2, 1], [0, 1, 2]), values=None, tokens=None, baseline=None, anchor=None, anchor_texts=None)
    needs = ESTIMATORS[name]
    if needs.needs_critic or needs.needs_tokens or needs.needs_baseline or needs.needs_anchors:
        with pytest.raises(ConfigError, match=name):
            needs(rows, EstimatorOptions())
    else:
        needs(rows, EstimatorOptions())


def test_every_estimator_is_registered_under_its_name():
    critic = ["bi_level_gae", "gae", "token_gae"]
    groups = ["gdpo", "gigpo", "gpg", "grpo", "grpo_passk", "opo", "optimal_token_baseline", "reinforce_pp_baseline",
              "rloo", "tir_optimal_token_baseline"]  # fmt: skip
    assert sorted([*critic, *groups, "reinforce", "reinforce_pp", "remax"]) == NAMES
    assert [n for n in NAMES if ESTIMATORS[n].needs_critic] == critic
    assert sorted(n for n in NAMES if ESTIMATORS[n].compares_groups) == sorted(groups)
    with pytest.raises(ConfigError, match=r"'bi_level_gae'.*'token_gae'.*Did you mean 'gigpo'"):
        get_estimator("gigop")
    for wrong in ({"gamma": 1.5}, {"lam": NAN}, {"gigpo_norm": "std"}, {"group_size": 0}, {"gdpo_weights": {"a": "b"}}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            EstimatorOptions(**wrong)


# ---------------------------------------------------------------- the formulas as loops


def episodes(rows):
    """Per trajectory its steps in order: (row, reward, value, tokens), and V of the state after them."""
    out = []
    for t in rows.trajectory.unique().tolist():
        order = sorted((int(rows.step[i]), i) for i in (rows.trajectory == t).nonzero().squeeze(1).tolist())
        steps = []
        for _, i in order:
            tokens = (rows.tokens.step_row == i).nonzero().squeeze(1).tolist()
            steps.append((i, float(rows.rewards[i]), float(rows.values[i]), tokens))
        last = order[-1][1]
        cut = bool(rows.truncated[last]) and not math.isnan(float(rows.final_values[last]))
        out.append((steps, float(rows.final_values[last]) if cut else 0.0))
    return out


def loop_gae(rows, o):
    a = torch.zeros(len(rows.rewards), dtype=torch.float64)
    for steps, final in episodes(rows):
        later, v_next = 0.0, final
        for i, r, v, _ in reversed(steps):
            later = r + o.gamma * v_next - v + o.gamma * o.lam * later
            a[i], v_next = later, v
    return a


def loop_bi_level_gae(rows, o):
    a = torch.zeros(len(rows.tokens.step_row), dtype=torch.float64)
    values = rows.tokens.values.tolist()
    for steps, final in episodes(rows):
        later, v_next = 0.0, final
        for _, r, _, tokens in reversed(steps):
            v = values[tokens[-1]]
            later = r + o.turn_gamma * v_next - v + o.turn_gamma * o.lam * later
            v_next = v
            inner, after, paid = 0.0, 0.0, later + v
            for k in reversed(tokens):
                inner = paid + o.gamma * after - values[k] + o.gamma * o.lam * inner
                a[k], after, paid = inner, values[k], 0.0
    return a


def loop_gigpo(rows, o):
    score, group, g_of = {}, {}, {}
    for steps, _ in episodes(rows):
        t = int(rows.trajectory[steps[0][0]])
        score[t], group[t] = sum(s[1] for s in steps), int(rows.group[steps[0][0]])
        to_go = 0.0
        for i, r, _, _ in reversed(steps):
            to_go = r + o.gamma * to_go
            g_of[i] = to_go

    def against(x, others):
        return 0.0 if len(others) < 2 else (x - np.mean(others)) / (np.std(others, ddof=1) + 1e-6)

    a = torch.zeros(len(rows.rewards), dtype=torch.float64)
    for i in g_of:
        t = int(rows.trajectory[i])
        same = [g for j, g in g_of.items() if rows.group[j] == rows.group[i] and rows.anchor[j] == rows.anchor[i]]
        a[i] = against(score[t], [s for u, s in score.items() if group[u] == group[t]]) + against(g_of[i], same)
    return a


@pytest.mark.parametrize("x", [[], [3.0], [2.0, 2.0, 2.0]])
def test_what_does_not_differ_is_whitened_to_0(x):
    assert whiten(torch.tensor(x)).tolist() == [0.0] * len(x)


@settings(max_examples=60, deadline=None)
@given(rows=batches())
def test_the_formulas_as_loops(rows):
    o = EstimatorOptions(gamma=0.9, turn_gamma=0.7, lam=0.8, whiten=False)
    near = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
    gae, expected = get_estimator("gae")(rows, replace(o, whiten=True)), loop_gae(rows, o)
    torch.testing.assert_close(gae.advantages, whiten(expected), **near)
    torch.testing.assert_close(gae.returns, expected + rows.values, **near)
    bi_level = get_estimator("bi_level_gae")(rows, o).token_advantages
    torch.testing.assert_close(bi_level, loop_bi_level_gae(rows, o), **near)
    # rewards of a few different sizes: a difference of round-off alone is no difference
    exact = replace(rows, rewards=(rows.rewards * 8).round() / 8)
    plain_sums = replace(o, gamma=0.5)
    torch.testing.assert_close(gigpo(exact, plain_sums).advantages, loop_gigpo(exact, plain_sums), **near)


# ---------------------------------------------------------------- scans


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=5),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    seed=st.integers(0, 100),
)
def test_the_reverse_scan_is_the_recursion(lengths, discount, seed):
    x = torch.randn(sum(lengths), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    expected = x.clone()
    begin = 0
    for n in lengths:
        for k in range(begin + n - 2, begin - 1, -1):
            expected[k] += discount * expected[k + 1]
        begin += n
    torch.testing.assert_close(discounted_sums(x, torch.tensor(lengths), discount), expected, rtol=1e-12, atol=1e-12)


def test_the_reverse_scan_keeps_its_digits_on_long_segments():
    x = torch.ones(200_000, dtype=torch.float64)
    y = discounted_sums(x, torch.tensor([200_000]), 0.9)
    assert float(y[0]) == pytest.approx(10.0) and float(y[-1]) == 1.0
    assert next_in_segment(x[:0], torch.tensor([0, 0])).shape == (0,)


# ---------------------------------------------------------------- verl


@pytest.fixture(scope="module")
def core():
    """verl's functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("verl.trainer.ppo.core_algos")


def config_of(**settings):
    return pytest.importorskip("omegaconf").OmegaConf.create(settings)


def stream_rows(rows, gaps=3):
    """Whole episodes as verl's one row each: how to lay out tokens, where each is, and the rewards.

    The environment said some tokens before each step, fewer than ``gaps``.
    """
    places, width = [], 0
    for t in rows.trajectory.unique().tolist():
        column = 0
        for i in (rows.trajectory == t).nonzero().squeeze(1).tolist():
            column += i % gaps
            for _ in (rows.tokens.step_row == i).nonzero().squeeze(1).tolist():
                places.append((t, column))
                column += 1
        width = max(width, column)
    row, column = torch.tensor(places).T

    def spread(x):
        out = torch.zeros(int(row.max()) + 1, width + 2)
        out[row, column] = x
        return out

    last = torch.cat([rows.tokens.step_row[1:] != rows.tokens.step_row[:-1], torch.tensor([True])])
    return spread, (row, column), spread(torch.where(last, rows.rewards[rows.tokens.step_row].float(), 0.0))


def one_step(seed, n=24, groups=6):
    rewards = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    rows = plain(build([1] * n, rewards, groups=[i % groups for i in range(n)], seed=seed))
    return rows, *stream_rows(rows, gaps=1)


@pytest.mark.parametrize("seed", range(2))
def test_equal_to_verl_on_one_step_episodes(core, seed):
    rows, spread, places, scores = one_step(seed)
    mask, values, index, config = spread(1.0), spread(rows.tokens.values), rows.group.numpy(), config_of(gamma=0.9)
    theirs = {
        "grpo": core.compute_grpo_outcome_advantage(scores.clone(), mask, index),
        "dr_grpo": core.compute_grpo_outcome_advantage(scores.clone(), mask, index, norm_adv_by_std_in_grpo=False),
        "rloo": core.compute_rloo_outcome_advantage(scores.clone(), mask, index),
        "reinforce_pp_baseline": core.compute_reinforce_plus_plus_baseline_outcome_advantage(scores, mask, index),
        "reinforce_pp": core.compute_reinforce_plus_plus_outcome_advantage(scores, mask, config),
        "token_gae": core.compute_gae_advantage_return(scores, values, mask, 0.9, 0.8),
        "remax": core.compute_remax_outcome_advantage(scores, rows.baseline, mask),
        "opo": core.compute_opo_outcome_advantage(scores.clone(), mask, index),
        "gpg": core.compute_gpg_outcome_advantage(scores.clone(), mask, index),
        "grpo_passk": core.compute_grpo_passk_outcome_advantage(scores.clone(), mask, index, config=config),
    }
    for name, (advantages, returns) in theirs.items():
        options = EstimatorOptions(gamma=0.9, lam=0.8, norm_by_std=name != "dr_grpo")
        out = get_estimator(name.removeprefix("dr_"))(rows, options)
        a, r = out.on_tokens(rows.tokens.step_row)
        torch.testing.assert_close(a, advantages[places], rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        if name in ("token_gae", "reinforce_pp"):  # the others have no critic: their returns are the advantages
            torch.testing.assert_close(r, returns[places], rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_gdpo_equals_verl_component_by_component(core, seed):
    rows, spread, places, scores = one_step(seed)
    mask, index = spread(1.0), rows.group.numpy()
    generator = torch.Generator().manual_seed(seed)
    parts = torch.rand(len(rows.rewards), 2, generator=generator, dtype=torch.float64).round(decimals=1)
    rows = replace(rows, rewards=parts.sum(1), components=parts, component_names=["answer", "format"])
    settings = {"gdpo_reward_keys": ["answer", "format"], "gdpo_reward_weights": [1.0, 0.25]}
    begin = torch.ones(len(parts), 1)
    batch = {"prompts": 0 * begin, "attention_mask": torch.cat([begin, mask], 1).long()}
    named = {"answer": parts[:, 0].numpy(), "format": parts[:, 1].numpy()}
    how = {"config": config_of(**settings), "non_tensor_batch": named, "batch": batch}
    theirs, _ = core.compute_gdpo_outcome_advantage(scores, mask, index, **how)
    ours = get_estimator("gdpo")(rows, EstimatorOptions(gdpo_weights={"format": 0.25}))
    torch.testing.assert_close(ours.on_tokens(rows.tokens.step_row)[0], theirs[places], rtol=0, atol=1e-6)
    plain_reward = replace(rows, components=None, component_names=())
    theirs, _ = core.compute_gdpo_outcome_advantage(stream_rows(plain_reward, gaps=1)[2], mask, index)
    ours = get_estimator("gdpo")(plain_reward, EstimatorOptions())
    torch.testing.assert_close(ours.on_tokens(rows.tokens.step_row)[0], theirs[places], rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_token_baselines_equal_verl_where_a_row_is_a_step(core, seed):
    rows, spread, places, _ = one_step(seed)  # groups of four rows, of different lengths
    rewards, p, rest, factors = torch.rand(4, len(rows.tokens.step_row), generator=torch.Generator().manual_seed(seed))
    old, squares = p.log(), p.square() + (1 - p).square() * rest  # of a distribution
    tokens = replace(rows.tokens, rewards=rewards, score_norms=score_norms(old, squares) * factors.square())
    rows, mask = replace(rows, rewards=spread(rewards).sum(1), tokens=tokens), spread(1.0)
    for name, function in (
        ("optimal_token_baseline", core.compute_optimal_token_baseline_advantage),
        ("tir_optimal_token_baseline", core.compute_multi_turn_optimal_token_baseline_advantage),
    ):
        laid = spread(rewards), mask, rows.group.numpy(), spread(old), spread(squares)
        theirs = function(*laid, rollout_is_weights=spread(factors))  # of a correction
        out = get_estimator(name)(rows, EstimatorOptions(gamma=0.9)).on_tokens(rows.tokens.step_row)
        for mine, yours in zip(out, theirs, strict=True):
            torch.testing.assert_close(mine, yours[places], rtol=0, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_token_baselines_by_hand():
    # two trajectories of (2, 1) and (1, 2) tokens, every w = 1: W = 1, 2, 3; rewards 0 1 and 1 0 at the steps' ends
    rows = build([2, 2], [0.0, 1.0, 1.0, 0.0], tokens=[2, 1, 1, 2])
    rows = replace(rows, tokens=replace(rows.tokens, score_norms=torch.ones(6)))
    # G = 1, 1, 1 and 1, 0, 0; places (0, 0), (0, 1) alone, (1, 0) with W = 3 and 2, (1, 1) alone
    out = get_estimator("optimal_token_baseline")(rows, EstimatorOptions(gamma=0.5))
    assert out.token_advantages.tolist() == pytest.approx([0.0, 1.0, 1 - 3 / 5, 0.0, -3 / 5, 0.0], abs=1e-6)
    assert out.metrics["tokens_without_counterpart"] == pytest.approx(2 / 6)
    # by the number of the token: G = 1 and 1, 1 and 0, 1 and 0
    out = get_estimator("tir_optimal_token_baseline")(rows, EstimatorOptions(gamma=0.5))
    assert out.token_advantages.tolist() == pytest.approx([0.0, 0.5, 0.5, 0.0, -0.5, -0.5], abs=1e-6)
    assert out.metrics["tokens_without_counterpart"] == 0
    with pytest.raises(ConfigError, match="sums of squared probabilities"):
        get_estimator("optimal_token_baseline")(replace(rows, tokens=TokenRows(rows.tokens.step_row)), OPTIONS)


def test_everything_that_verl_registers_is_known(core):
    from agent_envs.adapters.losses import POLICY_LOSSES, policy_loss

    assert len(core.ADV_ESTIMATOR_REGISTRY) == 14 and len(core.POLICY_LOSS_REGISTRY) == 12
    assert all(get_estimator(name) for name in core.ADV_ESTIMATOR_REGISTRY)
    # not a loss but a choice between two others
    assert set(core.POLICY_LOSS_REGISTRY) - set(POLICY_LOSSES) == {"bypass_mode"}
    with pytest.raises(ConfigError, match=r"'bypass_mode' is no loss.*algorithm\.rollout_correction\.bypass_mode"):
        policy_loss("bypass_mode")


@pytest.mark.parametrize("seed", range(2))
def test_token_estimators_equal_verl_on_stream_rows(core, seed):
    g = torch.Generator().manual_seed(seed)
    rows = plain(build([3, 1, 4, 2], torch.randn(10, generator=g), groups=[0, 0, 1, 1], seed=seed))
    spread, index, scores = stream_rows(rows)
    values, mask, groups = spread(rows.tokens.values), spread(1.0), rows.group[rows.step == 0].numpy()
    old, squares = (spread(x) for x in torch.rand(2, len(rows.tokens.step_row), generator=g))
    rows = replace(rows, tokens=replace(rows.tokens, score_norms=score_norms(-old, squares)[index]))
    theirs = {
        "token_gae": core.compute_gae_advantage_return(scores, values, mask, 0.9, 0.8),
        "reinforce_pp": core.compute_reinforce_plus_plus_outcome_advantage(scores, mask, config_of(gamma=0.9)),
        "tir_optimal_token_baseline": core.compute_multi_turn_optimal_token_baseline_advantage(
            scores, mask, groups, -old, squares
        ),
    }
    for name, both in theirs.items():
        out = get_estimator(name)(rows, EstimatorOptions(gamma=0.9, lam=0.8))
        for ours, verls in zip((out.token_advantages, out.token_returns), both, strict=True):
            torch.testing.assert_close(ours, verls[index], rtol=0, atol=1e-6)
        of_step = [out.token_advantages[rows.tokens.step_row == i].mean() for i in range(10)]
        torch.testing.assert_close(out.advantages, torch.stack(of_step))
        first = [int((rows.tokens.step_row == i).nonzero()[0]) for i in range(10)]
        assert torch.equal(out.returns, out.token_returns[first])


# ---------------------------------------------------------------- similar anchors


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text("ab cé\U0001f600", max_size=12), min_size=1, max_size=8, unique=True),
    seed=st.integers(0, 1000),
    similarity=st.sampled_from([0.5, 0.8, 0.95, 1.0]),
)
def test_similar_anchors_are_the_greedy_clusters_of_sequence_matcher(texts, seed, similarity):
    rng = np.random.default_rng(seed)
    group, anchor = torch.from_numpy(rng.integers(0, 2, 20)), torch.from_numpy(rng.integers(0, len(texts), 20))
    expected = []
    clusters: dict[int, list[int]] = {0: [], 1: []}
    for g, a in zip(group.tolist(), anchor.tolist(), strict=True):
        for first in clusters[g]:
            if SequenceMatcher(None, texts[a], texts[first]).ratio() >= similarity:
                expected.append(first)
                break
        else:
            clusters[g].append(a)
            expected.append(a)
    assert similar_anchors(group, anchor, texts, similarity).tolist() == expected


def test_similar_anchors_of_long_texts():
    """From 200 characters on SequenceMatcher leaves out what is frequent; the bounds must hold there too."""
    rng = np.random.default_rng(0)
    texts = []
    for _ in range(30):
        things = rng.permutation(40)[:3].tolist()
        texts.append("You are in the middle of a room. " * 6 + f"Looking quickly around you, you see a {things}.")
    expected: list[int] = []
    for a in range(len(texts)):
        near = (b for b in dict.fromkeys(expected) if SequenceMatcher(None, texts[a], texts[b]).ratio() >= 0.97)
        expected.append(next(near, a))
    assert 1 < len(set(expected)) < 30
    anchors = torch.arange(30)
    assert similar_anchors(anchors * 0, anchors, texts, 0.97).tolist() == expected


# ---------------------------------------------------------------- bad input


def test_bad_numbers_name_the_trajectory():
    rows = replace(build([2, 1], [0.0, 1.0, 2.0]), names=["task 7, 1st", "task 7, 2nd"])
    for bad in (NAN, math.inf):
        with pytest.raises(DataError, match=r"reward of trajectory 'task 7, 1st' at step 1 is (nan|inf)"):
            check_rows(replace(rows, rewards=torch.tensor([0.0, bad, NAN])))
        with pytest.raises(DataError, match="value of trajectory 'task 7, 2nd' at step 0"):
            check_rows(replace(rows, values=torch.tensor([0.0, 0.0, bad])))
        tokens = replace(rows.tokens, values=torch.full_like(rows.tokens.values, bad))
        with pytest.raises(DataError, match="value of a token of trajectory 'task 7, 1st' at step 0"):
            check_rows(replace(rows, tokens=tokens))
    with pytest.raises(DataError, match="greedy baseline"):
        check_rows(replace(rows, baseline=torch.tensor([0.0, 0.0, math.inf])))
    with pytest.raises(DataError, match="the final value of trajectory 'task 7, 2nd'"):
        check_rows(replace(rows, final_values=torch.tensor([NAN, NAN, math.inf])))
    with pytest.raises(DataError, match="'task 7, 2nd' has a step with index -3"):
        check_rows(replace(rows, step=torch.tensor([0, 1, -3])))
    with pytest.raises(DataError, match="'task 7, 1st' has step 1 more than once"):
        check_rows(replace(rows, step=torch.tensor([1, 1, 0])))
    with pytest.raises(DataError, match="'task 7, 1st' is in two groups"):
        check_rows(replace(rows, group=torch.tensor([0, 1, 0])))
    with pytest.raises(DataError, match=r"StepRows\.step has shape \(2,\), expected \(3,\)"):
        check_rows(replace(rows, step=torch.tensor([0, 1])))
    with pytest.raises(DataError, match="step_row must be -1 or the number of one of 3 rows"):
        check_rows(replace(rows, tokens=TokenRows(torch.tensor([0, 3]))))
    with pytest.raises(DataError, match="trajectory 1 at step 0"):
        check_rows(replace(rows, rewards=torch.tensor([0.0, 0.0, NAN]), names=None))
    assert check_rows(replace(rows, rewards=torch.tensor([0.0, 1.0, NAN]), valid=torch.tensor([True, True, False])))


def test_bad_log_probs_name_the_trajectory():
    step_row, trajectory = torch.tensor([0, 0, -1, 1]), torch.tensor([4, 2])
    check_log_probs("old", torch.tensor([-1.0, 0.0, NAN, -2.0]), step_row, trajectory)
    names = ["a", "b", "c", "d", "e"]
    for bad, at, name in ((NAN, 1, "'e'"), (-math.inf, 3, "'c'"), (0.5, 0, "'e'")):
        log_probs = torch.full((4,), -1.0)
        log_probs[at] = bad
        with pytest.raises(DataError, match=f"old log-probability of a token of trajectory {name}"):
            check_log_probs("old", log_probs, step_row, trajectory, names)


def test_oddities_are_counted_and_said_once(caplog):
    say_once.cache_clear()
    rows = build([3, 1], [0.0, 1.0, 2.0, 0.0], tokens=[1, 0, 2, 1])
    gap = replace(rows, step=torch.tensor([0, 1, 4, 2]))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            counts = check_rows(gap, group_size=8)
    assert counts == {"missing_steps": 4.0, "groups_incomplete": 1.0, "steps_without_tokens": 1.0}
    assert len(caplog.records) == 3
    out = get_estimator("token_gae")(gap, EstimatorOptions())
    assert out.metrics["rewards_without_tokens"] == 1.0 and out.advantages[1] == 0.0
    assert check_episodes([0, 2, 3], [0, 0, 9]) == {"episodes_without_steps": 1.0, "episodes_without_tokens": 1.0}
    say_once.cache_clear()
