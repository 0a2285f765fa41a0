"""Losses over flat tokens.

1. every loss by hand, and equal to verl 0.9.1's on rows of one step
2. merging rows, permuting tokens, adding padding or cutting into micro-batches changes nothing
3. untrained tokens may hold NaN; a micro-batch of padding alone has loss 0 and zero gradients
4. KL kinds, their gradients, in the reward, controllers; entropy; value loss at the action's start
5. a run whose ratios never leave 1 says so once; what its ratios say of lengths
"""

import json
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from agent_envs.adapters.losses import (  # noqa: E402
    KL_KINDS,
    POLICY_LOSSES,
    WEIGHTINGS,
    LossOptions,
    RatioWatch,
    action_start,
    averages,
    entropy_loss,
    kl_controller,
    kl_in_reward,
    kl_loss,
    kl_penalty,
    loss_preset,
    merge,
    policy_loss,
    step_weights,
    token_weights,
    value_loss,
)
from agent_envs.adapters.losses.ratios import ratios_report, record_ratios  # noqa: E402
from agent_envs.errors import ConfigError, DataError  # noqa: E402

COVARIANCE = ("clip_cov", "kl_cov")  # their micro-batch decides which tokens they treat differently
NAMES = tuple(sorted(set(POLICY_LOSSES) - {"gpg", "pspo", "steppo", *COVARIANCE}))  # others are one of these
OPTIONS = LossOptions(
    clip_ratio_low=0.1, clip_ratio_high=0.2, clip_ratio_c=1.3, dro_beta=0.3, clip_cov_ratio=1.0, clip_cov_lb=0.02,
    clip_cov_ub=0.5, kl_cov_ratio=0.2, mean_log_ratio=0.05,
)  # fmt: skip


def batch(seed, lengths=(3, 1, 4, 2, 5), trajectory=(0, 0, 1, 2, 2), spread=0.3, weighting="trajectory"):
    """Flat tensors of a few steps, in float64, log-probabilities with a graph."""
    g = torch.Generator().manual_seed(seed)
    n = sum(lengths)
    step_ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    old = -torch.rand(n, generator=g, dtype=torch.float64) * 3
    new = (old + torch.randn(n, generator=g, dtype=torch.float64) * spread).requires_grad_()
    advantages = torch.randn(len(lengths), generator=g, dtype=torch.float64)[step_ids]
    weights = token_weights(weighting, torch.tensor(lengths), torch.tensor(trajectory), step_ids).double()
    return {
        "log_probs": new, "old_log_probs": old, "advantages": advantages, "weights": weights, "step_ids": step_ids
    }  # fmt: skip


def gradient(name, data, options=OPTIONS, **more):
    loss, metrics = policy_loss(name)(**data, options=options, **more)
    return loss.detach(), torch.autograd.grad(loss, data["log_probs"])[0], metrics


# ---------------------------------------------------------------- by hand


def test_vanilla_by_hand():
    # ratios 1.5, 0.5, 1.5, 4; advantages 1, 1, -1, -1; clip .8..1.2, c = 3
    ratio, a = torch.tensor([1.5, 0.5, 1.5, 4.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    w, ids = torch.full((4,), 0.25), torch.arange(4)
    loss, metrics = policy_loss("vanilla")(ratio.log(), torch.zeros(4), a, w, ids, LossOptions())
    # max(-1.5, -1.2) = -1.2; max(-.5, -.8) = -.5; max(1.5, 1.2) = 1.5; max(4, 1.2) = 4, dual clip 3
    assert float(loss) == pytest.approx((-1.2 - 0.5 + 1.5 + 3.0) / 4)
    out = averages(metrics)
    assert out["pg_clipfrac"] == 0.25 and out["pg_clipfrac_lower"] == 0.25
    assert out["ratio/max"] == pytest.approx(4.0) and out["ratio/mean"] == pytest.approx(7.5 / 4)
    assert out["ppo_kl"] == pytest.approx(-float(ratio.log().mean()))
    assert out["ratio/moved"] == 1.0
    single, _ = policy_loss("vanilla")(ratio.log(), torch.zeros(4), a, w, ids, LossOptions(clip_ratio_c=None))
    assert float(single) == pytest.approx((-1.2 - 0.5 + 1.5 + 4.0) / 4)
    _, still = policy_loss("vanilla")(torch.zeros(4), torch.zeros(4), a, w, ids, LossOptions())
    assert averages(still)["ratio/moved"] == 0.0


def capo_ratios(sums, lengths, mean=None):
    """What capo's metrics say of steps with these log-ratios, each spread evenly over its tokens."""
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    log_ratio = (torch.tensor(sums) / torch.tensor(lengths))[ids].double().requires_grad_()
    w = token_weights("row", torch.tensor(lengths), torch.zeros(len(lengths), dtype=torch.int64), ids).double()
    options = LossOptions(clip_ratio_low=0.9, clip_ratio_high=9.0, mean_log_ratio=mean)
    loss, metrics = policy_loss("capo")(log_ratio, torch.zeros(len(ids)), torch.ones(len(ids)), w, ids, options)
    return float(loss.detach()), torch.autograd.grad(loss, log_ratio)[0].tolist(), averages(metrics)["ratio/max"]


@pytest.mark.parametrize(
    ("sums", "lengths", "log_w"),
    [
        ([0.4, -0.2], [4, 4], [0.025 + 0.3 / 2, 0.025 - 0.3 / 2]),  # mu = 0.2/8; equal lengths: mu + (S - 4 mu)/2
        ([0.3, -0.5, 0.1], [1, 1, 1], [0.3, -0.5, 0.1]),  # one token: S
        ([0.0, 0.0], [3, 7], [0.0, 0.0]),  # no drift: 1
        ([0.6], [9], [0.6 / 9]),  # one step: its mean
        ([0.8, -0.1], [16, 1], [0.7 / 17 + (0.8 - 16 * 0.7 / 17) / 4, -0.1]),  # mu = 0.7/17
    ],
)
def test_capo_by_hand(sums, lengths, log_w):
    loss, gradient_of, largest = capo_ratios(sums, lengths)
    w = [math.exp(x) for x in log_w]
    assert loss == pytest.approx(-sum(w) / len(w)) and largest == pytest.approx(max(w))
    expected = [-x / len(w) / n**0.5 for x, n in zip(w, lengths, strict=True) for _ in range(n)]  # through S / sqrt(L)
    assert gradient_of == pytest.approx(expected)


def test_capo_is_centred_where_it_is_told():
    loss, _, _ = capo_ratios([0.4], [4], mean=0.02)
    assert loss == pytest.approx(-math.exp(0.02 + (0.4 - 4 * 0.02) / 2))
    assert capo_ratios([3.0], [1])[:2] == (pytest.approx(-10.0), [0.0])  # clipped


def test_a_run_s_recorded_ratios_are_reported(tmp_path, agentr1):
    """The slope of long steps has the interval of 500 resamplings; short ones, which grow otherwise, are not in it."""
    with pytest.raises(DataError, match="no update that moved the policy is recorded in"):
        ratios_report(tmp_path)
    g = torch.Generator().manual_seed(0)
    for update in range(6):
        lengths = torch.cat([torch.randint(1, 17, (100,), generator=g), torch.randint(17, 300, (300,), generator=g)])
        spread = torch.where(lengths < 17, 8.0, lengths**0.5)  # of a step's sum
        sums = torch.randn(400, generator=g, dtype=torch.float64) * spread
        sums = (sums + 0.3 * update * lengths) * bool(update)  # a drift, to be centred; the first has not moved
        for part in torch.randperm(400, generator=g).split(200):  # micro-batches
            steps = torch.arange(200).repeat_interleave(lengths[part])
            record_ratios(str(tmp_path), 1, update, (sums / lengths)[part][steps], torch.ones(len(steps)), steps)
    *table, said = ratios_report(tmp_path).splitlines()
    bins = [[float(x) for x in row.split()] for row in table[1:]]
    assert [row[0] for row in bins] == [1, 9, 17, 33, 65, 129, 257] and sum(row[1] for row in bins) == 2000
    assert all(share == pytest.approx(1.0, abs=0.4) for *_, share in bins[2:])
    assert all(share == pytest.approx(variance / mean, rel=0.01) for _, _, mean, variance, share in bins)
    slope, long, low, high = map(float, re.findall(r"-?\d+\.\d+", said))
    assert slope < low < long < high and 0.7 < low < 1.0 < high < 1.3
    assert agentr1("ratios", tmp_path).splitlines()[-1] == said
    (tmp_path / "1.jsonl").write_text('{"length": [1, 2], "log_ratio_sum": [0.5]}\n')
    with pytest.raises(DataError, match="as many"):
        ratios_report(tmp_path)


def test_a_slope_of_few_steps_is_said_to_be_of_few(tmp_path):
    """Of two bins of 30 steps, most draws leave one too few: the interval is that of the others."""
    record = {"length": [20] * 30 + [40] * 30, "log_ratio_sum": [1.0, -1.0] * 15 + [2.0, -2.0] * 15}
    (tmp_path / "1.jsonl").write_text(json.dumps(record) + "\n")
    assert ratios_report(tmp_path).endswith("from 17 on 2.000 [1.856, 2.295]")
    (tmp_path / "1.jsonl").write_text(json.dumps({"length": [20, 40], "log_ratio_sum": [1.0, 2.0]}) + "\n")
    assert ratios_report(tmp_path).endswith("nan [nan, nan] (nan: fewer than two bins have 30 steps)")


def test_pspo_is_gspo_with_its_clip():
    preset = loss_preset("pspo")
    assert (preset.clip_ratio_low, preset.clip_ratio_high, preset.clip_ratio_c) == (3e-4, 4e-4, 10.0)
    assert policy_loss("pspo") is policy_loss("gspo") is policy_loss("steppo")
    data = batch(0)
    tight, _, metrics = gradient("pspo", data, preset)
    assert float(metrics["pg_clipfrac"].total) > 0
    log_ratio, ids = (data["log_probs"] - data["old_log_probs"]).detach(), data["step_ids"]
    steps = torch.zeros(5, dtype=torch.float64).index_add(0, ids, log_ratio) / torch.bincount(ids)
    assert averages(metrics)["ratio/mean"] == pytest.approx(float(steps.exp().mean()))  # one of each step
    assert float(tight) != pytest.approx(float(gradient("gspo", data, LossOptions())[0]))


def test_importance_weights_multiply_token_losses():
    for name in (*NAMES, *COVARIANCE):
        data = batch(1)
        factors = torch.rand(15, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        if name == "geo_mean":  # one factor per step: their geometric mean
            lengths = torch.bincount(data["step_ids"])
            logs = torch.zeros(5, dtype=torch.float64).index_add(0, data["step_ids"], factors.log()) / lengths
            factors = logs.exp()[data["step_ids"]]
        weighted = gradient(name, data, is_weights=factors)[0]
        by_hand = gradient(name, {**data, "weights": data["weights"] * factors})[0]
        torch.testing.assert_close(weighted, by_hand)


def test_covariance_losses_single_out_the_share_they_are_told():
    data = batch(2, lengths=(40, 40, 20))
    covariance = (data["advantages"] - data["advantages"].mean()) * (data["log_probs"] - data["log_probs"].mean())
    for share, count in ((1e-4, 1), (0.05, 5), (0.1, 10)):
        options = LossOptions(kl_cov_ratio=share, clip_cov_ratio=share, clip_cov_lb=0.0)
        grad, metrics = gradient("kl_cov", data, options)[1:]
        assert averages(metrics)["pg_clipfrac"] == pytest.approx(count / 100)
        free = gradient("kl_cov", data, LossOptions(kl_cov_ratio=share, ppo_kl_coef=0.0))[1]
        assert (grad != free).nonzero().squeeze(1).tolist() == covariance.topk(count).indices.sort()[0].tolist()
        grad, metrics = gradient("clip_cov", data, options)[1:]
        assert averages(metrics)["pg_clipfrac"] == pytest.approx(count / 100)
        assert torch.equal(grad, gradient("clip_cov", data, options)[1])  # the same tokens in a resumed run
    with pytest.raises(ConfigError, match="dro_beta"):
        gradient("dro", data, LossOptions())


@pytest.mark.parametrize("name", sorted(set(POLICY_LOSSES) - {"capo"}))
@pytest.mark.filterwarnings("ignore")
def test_equal_to_verl_on_rows_of_one_step(name):
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    from verl.workers.config import FSDPActorConfig, FSDPOptimizerConfig, PolicyLossConfig

    shared = {each: getattr(OPTIONS, each) for each in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")}
    own = ("clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "dro_beta")
    rows_only = name in ("geo_mean", "sapo")  # verl has one way to take the mean for these
    lengths = (3, 1, 4, 2, 5)
    for weighting, mode in (("row", "seq-mean-token-mean"), ("token", "token-mean"))[: 1 if rows_only else 2]:
        for seed in range(2):
            data = batch(seed, weighting=weighting)
            mask = torch.arange(5)[None] < torch.tensor(lengths)[:, None]

            def padded(x, mask=mask):
                out = torch.zeros(mask.shape, dtype=x.dtype)
                out[mask] = x
                return out

            config = FSDPActorConfig(
                strategy="fsdp2", ppo_mini_batch_size=5, ppo_micro_batch_size_per_gpu=5, rollout_n=1,
                policy_loss=PolicyLossConfig(**{each: getattr(OPTIONS, each) for each in own}), **shared,
                optim=FSDPOptimizerConfig(lr=1e-2, total_training_steps=1), use_kl_loss=False,
            )  # fmt: skip
            args = [padded(data[k]) for k in ("old_log_probs", "log_probs", "advantages")]
            theirs_of = {"pspo": "gspo", "steppo": "gspo"}.get(name, name)
            if name == "reinforce":
                theirs, their_metrics = core.compute_policy_loss_reinforce(*args, mask, mode, config)
            else:
                theirs, their_metrics = core.get_policy_loss_fn(theirs_of)(*args, mask, mode, config)
            expected = torch.autograd.grad(theirs, data["log_probs"])[0]
            loss, grad, metrics = gradient(name, data)
            torch.testing.assert_close(loss, theirs.detach(), rtol=0, atol=1e-6)
            torch.testing.assert_close(grad, expected, rtol=0, atol=1e-6)
            ours = averages(metrics)
            for key, value in their_metrics.items():
                if (name, key) == ("kl_cov", "actor/ppo_kl"):
                    continue  # verl's is the mean of absolute values
                assert ours[key.removeprefix("actor/")] == pytest.approx(value, abs=1e-6)


# ---------------------------------------------------------------- layouts


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(NAMES),
    weighting=st.sampled_from(WEIGHTINGS),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8),
)
def test_order_padding_step_names_and_cuts_change_nothing(seed, name, weighting, lengths):
    g = torch.Generator().manual_seed(seed)
    trajectory = torch.randint(0, 3, (len(lengths),), generator=g).tolist()
    data = batch(seed, lengths, trajectory, weighting=weighting)
    assert float(data["weights"].sum()) == pytest.approx(1.0, abs=1e-6)
    loss, grad, metrics = gradient(name, data)
    n = len(grad)

    # tokens anywhere, steps under other numbers, padding with nonsense in between
    order = torch.randperm(n, generator=g)
    names = torch.randperm(len(lengths) + 3, generator=g)
    nonsense = torch.tensor([math.nan, math.inf, -5.0], dtype=torch.float64)
    moved = {k: torch.cat([nonsense, v.detach()[order]]) for k, v in data.items() if k not in ("weights", "step_ids")}
    moved["log_probs"] = moved["log_probs"].requires_grad_()
    moved["weights"] = torch.cat([torch.zeros(3, dtype=torch.float64), data["weights"][order]])
    moved["step_ids"] = torch.cat([torch.tensor([-1, -1, 0]), names[data["step_ids"][order]]])
    loss2, grad2, metrics2 = gradient(name, moved)
    torch.testing.assert_close(loss2, loss)
    torch.testing.assert_close(grad2[3:], grad[order])
    assert grad2[:3].tolist() == [0, 0, 0]
    assert averages(metrics2) == pytest.approx(averages(metrics))

    # two micro-batches, whole steps in each
    first = data["step_ids"] < len(lengths) // 2
    parts = [gradient(name, {k: v.detach()[half].requires_grad_(k == "log_probs") for k, v in data.items()})
             for half in (first, ~first)]  # fmt: skip
    torch.testing.assert_close(parts[0][0] + parts[1][0], loss)
    torch.testing.assert_close(torch.cat([parts[0][1], parts[1][1]]), grad)
    assert averages(merge(part[2] for part in parts)) == pytest.approx(averages(metrics))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [0, 3])
def test_padding_alone_has_no_gradient(name, tokens):
    lp = torch.full((tokens,), math.nan, requires_grad=True)
    rest = torch.full((tokens,), math.nan)
    loss, metrics = policy_loss(name)(
        lp, rest, rest, torch.zeros(tokens), torch.full((tokens,), -1), OPTIONS, is_weights=rest
    )
    loss.backward()
    assert float(loss.detach()) == 0.0 and lp.grad.tolist() == [0.0] * tokens
    assert averages(metrics) == {}
    for other, _ in (kl_loss(lp, rest, torch.zeros(tokens), "k3"), entropy_loss(lp, torch.zeros(tokens)),
                     value_loss(lp, rest, rest, torch.zeros(tokens), clip=0.5)):  # fmt: skip
        assert float(other.detach()) == 0.0
        assert torch.autograd.grad(other, lp)[0].tolist() == [0.0] * tokens


def test_weights_by_hand():
    lengths, trajectory = torch.tensor([2, 0, 1, 4, 3]), torch.tensor([0, 0, 1, 1, 9])
    assert step_weights("trajectory", lengths, trajectory).tolist() == pytest.approx([1 / 6, 0, 1 / 6, 1 / 24, 1 / 9])
    assert step_weights("row", lengths, trajectory).tolist() == pytest.approx([1 / 8, 0, 1 / 4, 1 / 16, 1 / 12])
    assert step_weights("token", lengths, trajectory).tolist() == pytest.approx([0.1, 0, 0.1, 0.1, 0.1])
    mini = torch.tensor([0, 0, 1, 1, 0])
    assert step_weights("trajectory", lengths, trajectory, mini).tolist() == pytest.approx(
        [1 / 4, 0, 1 / 2, 1 / 8, 1 / 6]
    )
    assert step_weights("row", lengths, trajectory, mini).tolist() == pytest.approx([1 / 4, 0, 1 / 2, 1 / 8, 1 / 6])
    assert step_weights("token", lengths, trajectory, mini).tolist() == pytest.approx([0.2, 0, 0.2, 0.2, 0.2])
    assert step_weights("row", torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)).tolist() == [0, 0]
    with pytest.raises(ConfigError, match="'row'.*'trajectory'.*got 'tokn'"):
        step_weights("tokn", lengths, trajectory)


@pytest.mark.parametrize("name", NAMES)
def test_log_probabilities_in_bfloat16_are_added_up_in_float32(name):
    data = {k: v.detach().float() if v.is_floating_point() else v for k, v in batch(4).items()}
    rounded = {**data, "log_probs": data["log_probs"].bfloat16().requires_grad_()}
    loss, grad, _ = gradient(name, rounded)
    exact = {**data, "log_probs": data["log_probs"].bfloat16().float().requires_grad_()}
    assert loss.dtype == torch.float32 and grad.dtype == torch.bfloat16
    torch.testing.assert_close(loss, gradient(name, exact)[0])


# ---------------------------------------------------------------- ratios


def test_a_run_whose_ratios_never_leave_1_says_so_once():
    watch = RatioWatch("steppo", patience=3)
    said = [watch.update(0.0) for _ in range(6)]
    assert [bool(x) for x in said] == [False, False, True, False, False, False]
    assert "mini-batches" in said[2] and "steppo" in said[2]
    moving = RatioWatch("steppo", patience=2)
    assert [moving.update(x) for x in (0.0, 0.3, 0.0, 0.0, 0.0)] == [None] * 5
    rounding = RatioWatch("steppo", patience=2, updates=1)  # in bfloat16 a second pass gives other last bits
    assert [rounding.update(0.9) is None for _ in range(3)] == [True, False, True]
    assert [RatioWatch("steppo", 1, updates=2).update(0.9) for _ in range(3)] == [None] * 3
    assert [RatioWatch("reinforce", 1).update(0.0) for _ in range(3)] == [None] * 3


# ---------------------------------------------------------------- KL, entropy, value


@pytest.mark.parametrize("kind", KL_KINDS)
@pytest.mark.filterwarnings("ignore")
def test_kl_equals_verl(kind):
    core = pytest.importorskip("verl.trainer.ppo.core_algos")
    sizes = torch.tensor([1.0, 9.0, 900.0]).repeat(20)  # past every bound too
    a, b = torch.randn(2, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * sizes
    ours, theirs = a.clone().requires_grad_(), a.clone().requires_grad_()
    x, y = kl_penalty(ours, b, kind), core.kl_penalty(theirs, b, kind)
    torch.testing.assert_close(x, y)
    x.sum().backward()
    y.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_kl_in_reward_and_controllers():
    lp, ref = torch.tensor([-1.0, math.nan, -2.0, -3.0]), torch.tensor([-1.5, -1.0, -2.0, -2.0])
    rewards, kl = kl_in_reward(lp, ref, torch.tensor([0, -1, 0, 2]), "k1", 0.5)
    assert rewards.tolist() == [-0.25, 0.0, 0.0, 0.5]
    assert kl == pytest.approx((0.25 - 1.0) / 2)
    assert kl_in_reward(lp, ref, torch.full((4,), -1), "k1", 0.5)[1] == 0.0
    adaptive = kl_controller("adaptive", 0.2, target=0.1, horizon=100)
    adaptive.update(0.11, 50)  # 1 + .1 * .5
    assert adaptive.value == pytest.approx(0.2 * 1.05)
    adaptive.update(0.0, 50)  # clipped at -.2
    assert adaptive.value == pytest.approx(0.2 * 1.05 * 0.9)
    adaptive.update(math.nan, 50)
    assert adaptive.value == pytest.approx(0.2 * 1.05 * 0.9)
    fixed = kl_controller("fixed", 0.2)
    fixed.update(5.0, 50)
    assert fixed.value == 0.2
    for bad in (("adaptiv", 0.1), ("fixed", -1.0)):
        with pytest.raises(ConfigError):
            kl_controller(*bad)
    with pytest.raises(ConfigError, match="target"):
        kl_controller("adaptive", 0.1, target=0.0)


def test_kl_loss_and_entropy_by_hand():
    lp = torch.tensor([-1.0, -2.0, math.nan], requires_grad=True)
    weights = torch.tensor([0.75, 0.25, 0.0])
    loss, metrics = kl_loss(lp, torch.tensor([-2.0, -2.5, -1.0]), weights, "k2")
    assert float(loss.detach()) == pytest.approx(0.75 * 0.5 + 0.25 * 0.125)
    assert averages(metrics) == pytest.approx({"kl": (0.5 + 0.125) / 2})
    loss.backward()
    assert lp.grad.tolist() == [0.75, 0.125, 0.0]
    entropy, metrics = entropy_loss(torch.tensor([2.0, 1.0, math.nan]), weights)
    assert float(entropy) == 1.75 and averages(metrics) == {"entropy": 1.5}


def test_value_loss_at_the_action_start_by_hand():
    ids = torch.tensor([-1, 0, 0, 1, -1, 2, 2, 2])
    start = action_start(ids)
    assert start.tolist() == [False, True, False, True, False, True, False, False]
    g = torch.Generator().manual_seed(0)
    values, old, returns = torch.randn(3, 8, generator=g)
    values = values.requires_grad_()
    weights = token_weights("row", torch.ones(3, dtype=torch.int64), torch.arange(3), ids.where(start, -1))
    loss, metrics = value_loss(values, old, returns, weights, clip=0.5)
    v, o, r = (x[start].detach() for x in (values, old, returns))
    bounded = o + (v - o).clamp(-0.5, 0.5)
    by_hand = 0.5 * torch.maximum((v - r) ** 2, (bounded - r) ** 2).mean()
    assert float(loss.detach()) == pytest.approx(float(by_hand))
    assert averages(metrics)["vpred_mean"] == pytest.approx(float(v.mean()))
    grad = torch.autograd.grad(loss, values)[0]
    assert (grad[~start] == 0).all() and (grad[start] != 0).any()
    free, _ = value_loss(values, old, returns, weights)
    assert float(free.detach()) == pytest.approx(float(0.5 * ((v - r) ** 2).mean()))


# ---------------------------------------------------------------- bad input


def test_unknown_names_and_values():
    with pytest.raises(ConfigError, match=r"'gspo'.*'vanilla'.*got 'vanila'"):
        policy_loss("vanila")
    with pytest.raises(ConfigError, match="'k3'.*got 'k4'"):
        kl_penalty(torch.zeros(1), torch.zeros(1), "k4")
    for wrong in ({"clip_ratio_low": -0.1}, {"clip_ratio_c": 1.0}, {"clip_ratio_high": math.nan}):
        with pytest.raises(ConfigError, match="clip_ratio"):
            LossOptions(**wrong)
