"""Merged rows, one row per step, padding and any cut train the same: verl's own worker in this process, one model.

1. actor: gradients, loss and metrics of a batch of merged rows are those of a row per step, for every kind of
   estimator, every loss and weighting, for contexts that only grow and for mixed ones, with padding rows, packed, in
   any micro-batches, over several mini-batches
2. critic: the same; a step-level critic learns at the action's start alone
3. KL in the reward and as a loss, entropy and rollout correction are per step too
4. a mini-batch of padding alone is no update; a rank may have nothing but padding
5. the order rows come back in does not matter; a checkpoint is saved after its step is logged
6. sampled and trained log-probabilities agree, also after an update sent to the generation engine
7. what is refused names the episode
8. on prefix trees gradients, losses and metrics are those of a row per step too, in any cut
9. a teacher's labels train what a row for each labelled state trains, in rows and on trees; alone there is no policy
   loss, and "silent" teaches groups without a signal alone
10. what a model's folder lacks (a critic's head, a LoRA) is drawn with the engine's seed
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from comparisons import relative, unlike_estimators
from local_training import build_worker, local_batch
from toy_episodes import drawn_episodes
from verl.utils import tensordict_utils as tu
from worker_gradients import (
    FILLER,
    Made,
    actor_config,
    critic_config,
    gradients,
    objective,
    rows_of,
)

from agent_envs.adapters.estimators import ESTIMATORS, ProcessRewards, RewardScale, get_estimator
from agent_envs.adapters.estimators.checks import say_once
from agent_envs.adapters.losses import POLICY_LOSSES, WEIGHTINGS, KLController
from agent_envs.adapters.merging import TokenRow
from agent_envs.adapters.verl.batch.columns import step_columns
from agent_envs.adapters.verl.batch.losses import LABEL_WEIGHTS, POLICY_WEIGHTS, VALUE_WEIGHTS
from agent_envs.adapters.verl.batch.rows import by_submission
from agent_envs.adapters.verl.batch.table import step_table
from agent_envs.adapters.verl.config.settings import Settings
from agent_envs.adapters.verl.rollout.cpu_rollout import load_engine
from agent_envs.adapters.verl.rollout.episode_rows import Row, episode_rows
from agent_envs.errors import DataError
from agent_envs.policies.local.requests import SamplingParams

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def packed_actor(model_path, process_group):
    return build_worker(model_path, "language_model", packing=True)


@pytest.fixture(scope="module")
def packed_critic(model_path, process_group):
    return build_worker(model_path, "value_model", packing=True)


@pytest.fixture(scope="module")
def tree_actor(model_path, process_group):
    return build_worker(model_path, "language_model", trees=True)


@pytest.fixture(scope="module")
def tree_critic(model_path, process_group):
    return build_worker(model_path, "value_model", trees=True)


@pytest.mark.parametrize(("kind", "rank", "new"), [("value_model", 0, "score.weight"), ("language_model", 4, "lora_A")])
def test_new_layers_are_drawn_with_the_seed(model_path, process_group, kind, rank, new):
    def drawn(seed):
        torch.rand(seed + 1)  # whatever was drawn before
        module = build_worker(model_path, kind, seed=seed, lora_rank=rank).engine.module
        return torch.cat([p.full_tensor().flatten() for name, p in module.named_parameters() if new in name]).detach()

    first, second, other = drawn(3), drawn(3), drawn(4)
    assert first.any() and torch.equal(first, second) and not torch.equal(first, other)


# ---------------------------------------------------------------------------------------------------- the proof


# An estimator sees nothing of packing but what the models say: three have log-probabilities, values and norms packed.
# Rows that only grow are some of the mixed ones: they are compared with a critic and without.
@pytest.mark.parametrize(
    ("estimator", "path", "contexts"),
    [
        *((estimator, "padded", "mixed") for estimator in unlike_estimators()),
        *((estimator, "packed", "mixed") for estimator in ("gae", "grpo", "optimal_token_baseline")),
        ("gae", "packed", "grow"),
        ("opo", "padded", "grow"),
    ],
)
def test_merged_and_unmerged_train_the_same(request, estimator, path, contexts):
    actor = request.getfixturevalue("actor" if path == "padded" else "packed_actor")
    critic = request.getfixturevalue("critic" if path == "padded" else "packed_critic")
    episodes = drawn_episodes(2, contexts)
    values = critic if get_estimator(estimator).needs_critic else None
    apart, merged = (Made(rows_of(episodes, merge=merge), actor, values) for merge in (False, True))
    assert merged.batch.tokens < apart.batch.tokens * (0.75 if contexts == "grow" else 0.95)
    rows = sum(fields["kind"] != "padding" for fields in merged.batch.extra)
    assert rows == len(episodes) if contexts == "grow" else rows > len(episodes) + 2
    # weights know nothing of packing, and those of the policy nothing of estimators
    number, whole = sorted(ESTIMATORS).index(estimator), (path, contexts) == ("padded", "mixed")
    every = contexts == "grow" or (whole and (estimator == "grpo" or values is not None))
    weightings = WEIGHTINGS if every else [WEIGHTINGS[number % len(WEIGHTINGS)]]
    for which, weighting in enumerate(weightings, number):
        how = objective(estimator, weighting)
        (one, first), (two, second) = apart.columns(how), merged.columns(how)
        assert first.metrics == pytest.approx(second.metrics, rel=1e-5, abs=1e-6)
        scale = float(one["advantages"][one[POLICY_WEIGHTS] != 0].abs().mean())
        assert scale > 0.1
        # Losses know nothing of estimators: all of them with one, shared out over its weightings (of which
        # tests/adapters/test_losses.py draws any pair); one of three with each weighting of the others.
        losses = sorted(POLICY_LOSSES)[which % len(weightings) :: len(weightings)]
        for loss in losses if whole and estimator == "grpo" else (("gspo", "reinforce", "vanilla")[which % 3],):
            (g1,), m1 = gradients(actor, apart.batch, one, "actor", actor_config(loss))
            (g2,), m2 = gradients(actor, merged.batch, two, "actor", actor_config(loss))
            where = f"{loss}, {weighting}"
            assert abs(m1["actor/loss"] - m2["actor/loss"]) <= 1e-6 * scale, where
            assert relative(g2, g1) <= 1e-5, where
            for name in ("pg_clipfrac", "ppo_kl", "entropy", "ratio/max", "ratio/moved"):
                assert m2[f"actor/{name}"] == pytest.approx(m1[f"actor/{name}"], rel=1e-5, abs=1e-6), f"{name}, {where}"
        if values is not None:
            (g1,), m1 = gradients(critic, apart.batch, one, "critic", critic_config())
            (g2,), m2 = gradients(critic, merged.batch, two, "critic", critic_config())
            assert m2 == pytest.approx(m1, rel=1e-5, abs=1e-6)
            assert relative(g2, g1) <= 1e-5, f"critic, {weighting}"


@pytest.mark.parametrize("estimator", unlike_estimators())
def test_trees_train_what_rows_train(actor, critic, tree_actor, tree_critic, estimator):
    """A loss and a weighting each: every pair of them is proved in tests/adapters/test_tree_training.py.

    Estimators that need the same get the same, as the step table shows.
    """
    which = sorted(ESTIMATORS).index(estimator)
    whole = sorted(set(POLICY_LOSSES) - {"clip_cov", "kl_cov"})  # which compare the tokens of a micro-batch
    loss, weighting = whole[which % len(whole)], WEIGHTINGS[which % len(WEIGHTINGS)]
    values = get_estimator(estimator).needs_critic
    episodes = drawn_episodes(5, "mixed", per_group=4)
    episodes += [
        (g, final, dataclasses.replace(e, episode_id=f"{g}_{i}")) for i, (g, final, e) in enumerate(episodes, 9)
    ]
    apart = Made(rows_of(episodes, merge=False), actor, critic if values else None, mini_batches=2)
    trees = Made(rows_of(episodes, merge=True), tree_actor, tree_critic if values else None, mini_batches=2, trees=True)
    assert trees.batch.layout.nodes < 0.6 * trees.batch.tokens < 0.6 * apart.batch.tokens
    how = objective(estimator, weighting)
    (one, first), (two, second) = (m.columns(how, actor_batches=2, critic_batches=2) for m in (apart, trees))
    assert first.metrics == pytest.approx(second.metrics, rel=1e-5, abs=1e-6)
    config = actor_config(loss, entropy_coeff=0.1, use_kl_loss=True, kl_loss_coef=0.1)
    g1, m1 = gradients(actor, apart.batch, one, "actor", config, mini_batches=2)
    for limit in (None, 60):
        g2, m2 = gradients(tree_actor, trees.batch, two, "actor", config, mini_batches=2, micro_tokens=limit)
        assert len(g1) == len(g2) == 2 and max(map(relative, g2, g1)) <= 1e-5
        assert m2 == pytest.approx(m1, rel=1e-5, abs=1e-6)
    if values:
        g1, m1 = gradients(critic, apart.batch, one, "critic", critic_config(), mini_batches=2)
        g2, m2 = gradients(tree_critic, trees.batch, two, "critic", critic_config(), mini_batches=2)
        assert max(map(relative, g2, g1)) <= 1e-5 and m2 == pytest.approx(m1, rel=1e-5, abs=1e-6)


def labelled(episodes, merge, apart=False):
    """Rows with labels, of which every third is what was done and every third is none; ``apart``: a row for each."""
    out = []
    for number, (group, final, episode) in enumerate(episodes):
        labels = {
            i: (step.response_ids, (), (*step.response_ids[:1], 9, 8))[(number + i) % 3]
            for i, step in enumerate(episode.steps)
        }
        how = {"filler_id": FILLER, "final_prompt_ids": list(final), "merge": merge, "anchors": True}
        rows = episode_rows(episode, labels={} if apart else labels, **how)
        for i, step in enumerate(episode.steps) if apart else ():
            if ids := list(labels[i]):
                tokens = TokenRow(list(step.prompt_ids), ids, [-1] * len(ids), [0.0] * len(ids), ())
                rows.append(Row("label", tokens, (), labels=((i, 0, len(ids)),)))
        out += [(f"g{group}", episode.episode_id, row) for row in rows]
    return out


@pytest.mark.parametrize("mode", ["mixed", "alone", "silent"])
def test_labels_train_what_a_row_for_each_of_them_trains(actor, tree_actor, mode):
    episodes = drawn_episodes(2, "mixed", per_group=3)
    for i, (group, final, episode) in enumerate(episodes[:3]):  # the first group has no signal
        steps = tuple(dataclasses.replace(step, reward=0.0) for step in episode.steps)
        episodes[i] = group, final, dataclasses.replace(episode, steps=steps)
    how = objective("grpo", "row", settings=Settings(teacher="expert", teacher_mode=mode))
    found, config = [], actor_config(entropy_coeff=0.1)
    for rows, worker, trees in (
        (labelled(episodes, False, apart=True), actor, False),
        (labelled(episodes, True), actor, False),
        (labelled(episodes, True), tree_actor, True),
    ):
        made = Made(rows, worker, mini_batches=2, trees=trees)
        columns, result = made.columns(how, actor_batches=2, critic_batches=2, label_weight=0.7)
        grads, metrics = gradients(worker, made.batch, columns, "actor", config, mini_batches=2)
        found.append((grads, metrics, result))
        assert float(columns[LABEL_WEIGHTS].sum()) == pytest.approx(0.7 if mode == "silent" else 1.4)
        assert bool((columns[POLICY_WEIGHTS] != 0).any()) == (mode != "alone")
    (one, m1, first), *others = found
    steps = sum(len(e.steps) for _, _, e in (episodes[:3] if mode == "silent" else episodes))
    assert abs(first.metrics["teacher/labels"] - 2 / 3 * steps) <= 1 and first.metrics["teacher/weight"] == 0.7
    for grads, metrics, result in others:
        assert max(relative(b, a) for a, b in zip(one, grads, strict=True)) < 1e-5
        assert metrics == pytest.approx(m1, rel=1e-5, abs=1e-6) and result.metrics["teacher/agreement"] > 0.3


@pytest.mark.parametrize(
    ("merge", "micro", "micro_tokens", "multiple", "loss"),
    [
        (True, 1, None, 1, "gspo"),
        (True, 3, None, 3, "capo"),  # which is centred at the mean of the whole mini-batch
        (False, None, 90, 1, "capo"),
    ],
)
def test_padding_and_the_cut_into_micro_batches_change_nothing(
    actor, critic, merge, micro, micro_tokens, multiple, loss
):
    """Two mini-batches; the padded batch has at least one row of padding in each."""
    rows = rows_of(drawn_episodes(6, "mixed"), merge=merge)
    clean = Made(rows, actor, critic, mini_batches=2)
    padded = Made(rows, actor, critic, mini_batches=2, row_multiple=multiple * 7)
    assert sum(fields["kind"] == "padding" for fields in padded.batch.extra) > multiple
    how = objective("gae", "trajectory")
    (one, _), (two, _) = (m.columns(how, actor_batches=2, critic_batches=2) for m in (clean, padded))
    cut = {"micro": micro, "micro_tokens": micro_tokens}
    for role, worker, config in (("actor", actor, actor_config(loss)), ("critic", critic, critic_config())):
        g1, m1 = gradients(worker, clean.batch, one, role, config, mini_batches=2)
        g2, m2 = gradients(worker, padded.batch, two, role, config, mini_batches=2, **cut)
        assert len(g1) == len(g2) == 2 and max(map(relative, g2, g1)) <= 1e-5
        assert m2 == pytest.approx(m1, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("trees", [False, True])
def test_a_mini_batch_of_padding_alone_is_no_update(actor, tree_actor, trees):
    actor = tree_actor if trees else actor
    rows = rows_of(drawn_episodes(1, "grow", groups=1, per_group=1), merge=True)
    made = Made(rows, actor, row_multiple=4, trees=trees)
    columns, _ = made.columns(objective())
    columns[POLICY_WEIGHTS] = torch.zeros_like(columns[POLICY_WEIGHTS])
    for name in ("old_log_probs", "advantages"):
        columns[name] = torch.full_like(columns[name], float("nan"))  # what does not count may be anything
    (grads,), metrics = gradients(actor, made.batch, columns, "actor", actor_config("gspo"), micro=2)
    assert all(float(g.abs().max()) == 0.0 for g in grads.values())
    assert metrics["actor/loss"] == 0.0 and "actor/pg_clipfrac" not in metrics


def test_kl_entropy_and_rollout_correction_are_per_step(actor):
    """Sequence-level correction and KL over steps, not over the rows that hold them."""
    episodes = drawn_episodes(7, "grow")
    correction = {"rollout_is": "sequence", "rollout_is_threshold": 1.2, "rollout_rs": "token_k1",
                  "rollout_rs_threshold": "0.8_1.2"}  # fmt: skip
    config = actor_config("vanilla", use_kl_loss=True, kl_loss_coef=0.3, kl_loss_type="low_var_kl", entropy_coeff=0.1)
    out = []
    for merge in (False, True):
        made = Made(rows_of(episodes, merge=merge), actor)
        columns, result = made.columns(
            objective("grpo", "row", kl=KLController(0.2), kl_kind="k1", correction=correction)
        )
        (grads,), metrics = gradients(actor, made.batch, columns, "actor", config)
        out.append((grads, metrics, result))
    (g1, m1, r1), (g2, m2, r2) = out
    assert relative(g2, g1) <= 1e-5
    assert m2 == pytest.approx(m1, rel=1e-5, abs=1e-6)
    assert r2.metrics == pytest.approx(r1.metrics, rel=1e-4, abs=1e-6, nan_ok=True)
    torch.testing.assert_close(r2.rewards, r1.rewards)
    assert m1["actor/kl"] > 0 and r1.metrics["actor/reward_kl_penalty"] != 0
    trained = int((r1.columns[POLICY_WEIGHTS] != 0).sum())
    assert 0 < trained < sum(len(step.response_ids) for _, _, episode in episodes for step in episode.steps)  # rejected
    factors = r1.columns["rollout_is_weights"]
    assert len(factors[factors > 0].unique()) > 5


def test_a_step_level_critic_learns_at_the_actions_start_alone(critic, actor):
    """By hand: the value at the last prompt token of each step, against the return, every episode alike."""
    episodes = drawn_episodes(8, "mixed")
    made = Made(rows_of(episodes, merge=True), actor, critic)
    columns, _ = made.columns(objective("gae"))
    table = made.batch.table()
    assert int((columns[VALUE_WEIGHTS] != 0).sum()) == len(table)
    _, metrics = gradients(critic, made.batch, columns, "critic", critic_config(clip=1e6))
    episode_errors = {}
    for i in range(len(table)):
        v, r = made.given["values"][table.start[i]], columns["returns"][table.start[i]]
        episode_errors.setdefault(int(table.steps.trajectory[i]), []).append(0.5 * float((v - r) ** 2))
    by_hand = np.mean([np.mean(errors) for errors in episode_errors.values()])
    assert metrics["critic/vf_loss"] == pytest.approx(by_hand, rel=1e-5)


# ---------------------------------------------------------------------------------------------------- the rest


def test_rows_are_ordered_as_submitted_whatever_their_names_and_arrival():
    rows = [(prompt, session, i) for prompt in range(3) for session in range(2) for i in range(12)]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        uids = [f"{x:08x}-1" for x in rng.integers(0, 2**32, 3)]
        came = [rows[i] for i in rng.permutation(len(rows))]
        keys = [f"{uids[prompt]}_{session}_{i}" for prompt, session, i in came]
        order = by_submission(keys, {uid: i for i, uid in enumerate(uids)})
        assert [came[i] for i in order] == rows


def nested(rows):
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def test_sampled_and_trained_log_probabilities_agree(actor, model_path):
    engine = load_engine(model_path, max_length=128, max_rows=8)
    texts = [
        torch.randint(7, 250, (n,), generator=torch.Generator().manual_seed(n)).tolist()
        for n in (10, 14, 9, 20, 11, 12)
    ]
    seen = []
    for _ in range(2):
        done = [engine.submit(p, SamplingParams(9, temperature=0.7, ignore_eos=True)) for p in texts]
        engine.run()
        mask = nested([torch.ones(9, dtype=torch.int64) for _ in done])
        td = {
            "prompts": nested([torch.tensor(r.prompt_ids) for r in done]),
            "responses": nested([torch.tensor(r.token_ids) for r in done]),
            "input_ids": nested([torch.tensor(r.tokens) for r in done]),
            "position_ids": nested([torch.arange(len(r.tokens)) for r in done]),
            "response_mask": mask,
            "loss_mask": mask,
        }
        out = actor.infer_batch(tu.get_tensordict(td, non_tensor_dict={"temperature": 0.7, "compute_loss": False}))
        for request, log_probs in zip(done, out["log_probs"].unbind(), strict=True):
            trained = log_probs[len(request.prompt_ids) - 1 : len(request.tokens) - 1]
            torch.testing.assert_close(trained, torch.tensor(request.log_probs), rtol=0, atol=1e-5)
        seen.append([r.log_probs for r in done])
        made = Made(rows_of(drawn_episodes(2, "grow"), merge=True), actor)
        made.batch.update(actor, made.columns(objective())[0], "actor", actor_config())
        weights, _ = actor.engine.get_per_tensor_param()
        engine.load_weights({name: tensor.detach().clone() for name, tensor in weights}, version=1)
    assert seen[0] != seen[1]


# ---------------------------------------------------------------------------------------------------- bad input


def fields(trajectory="u_0", value_at=-1, **changed):
    """A row of one step of two tokens."""
    step = {"index": 0, "start": 0, "end": 2, "prompt_tokens": 3, "reward": 1.0, "components": {}, "terminated": True,
            "truncated": False, "anchor": "", **changed}  # fmt: skip
    return {"kind": "step", "trajectory": trajectory, "steps": [step], "value_at": value_at}


def columns_of(rows, objective, tokens=2, baselines=None, **given):
    """What is worked out of rows of one group, each with some tokens."""
    table = step_table(rows, ["u"] * len(rows), torch.arange(0, tokens * len(rows) + 1, tokens), {"u": 0})
    given = {"old_log_probs": torch.full((tokens * len(rows),), -1.0), **given}
    one = torch.zeros(len(rows), dtype=torch.int64)
    return step_columns(table, given, tokens * len(rows), objective, one, one, baselines)


def test_a_step_table_says_the_environment_of_each_step():
    rows = [{**fields(f"u_{i}"), "record": {"env": env}} for i, env in enumerate("ab")]
    assert step_table(rows, ["u", "v"], torch.tensor([0, 2, 4]), {"u": 0, "v": 1}).steps.env.tolist() == [0, 1]
    assert step_table(rows[:1], ["u"], torch.tensor([0, 2]), {"u": 0}).steps.env is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([fields(reward=float("nan"))], "the reward of trajectory 'u_0' at step 0 is nan"),
        ([fields(reward=float("inf"))], "'u_0' at step 0 is inf"),
        ([fields(end=0)], "step 0 has no tokens"),
        ([fields(end=9)], "tokens outside its row"),
        ([fields(), fields()], "'u_0' has step 0 more than once"),
    ],
)
def test_steps_that_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        columns_of(rows, objective())


def test_process_rewards_and_scaling_change_the_rewards_and_say_so(actor):
    made = Made(rows_of(drawn_episodes(4, "grow"), merge=True), actor)
    process = ProcessRewards({"format": 0.5}, normalize="prime")
    _, plain = made.columns(objective())
    _, mixed = made.columns(objective(process=process, scale=RewardScale("batch")))
    components = [step["components"] for fields in made.batch.extra for step in fields["steps"]]
    assert not any("process" in name or "scale" in name for name in plain.metrics)
    assert mixed.metrics["env/process_rewards/count"] == sum(bool(c["format"]) for c in components)
    scale, sigma = mixed.metrics["env/process_rewards/scale"], mixed.metrics["env/reward_scale"]
    added = (0.5 / scale - 1) * made.batch.table().steps.components[:, 0]
    torch.testing.assert_close(mixed.rewards, ((plain.rewards + added) / sigma), rtol=1e-6, atol=1e-7)


def test_the_released_scale_is_of_rewards_less_their_kl(actor):
    made = Made(rows_of(drawn_episodes(4, "grow"), merge=True), actor)
    paid = made.columns(objective(kl=KLController(0.1)))[1].rewards
    scaled = made.columns(objective(kl=KLController(0.1), scale=RewardScale("released")))[1]
    torch.testing.assert_close(scaled.rewards * scaled.metrics["env/reward_scale"], paid, rtol=1e-6, atol=1e-7)
    own = RewardScale("released").scale(dataclasses.replace(made.batch.table().steps, rewards=paid))[1]["reward_scale"]
    assert scaled.metrics["env/reward_scale"] == pytest.approx(own)


@pytest.mark.parametrize(
    ("name", "at", "message"),
    [
        ("old_log_probs", 4, "'u_1'.* is nan"),
        ("values", 4, "'u_1'.* is nan"),
        ("values", 2, "after the last step of trajectory 'u_0' is nan"),
    ],
)
def test_numbers_that_are_none_name_their_episode(name, at, message):
    """Of two episodes of two tokens and one more each, which is the state after the first: a limit cut it."""
    rows = [fields(truncated=True, terminated=False, value_at=2), fields("u_1")]
    given = {"old_log_probs": torch.full((6,), -1.0), "values": torch.zeros(6)}
    given[name][at] = float("nan")
    with pytest.raises(DataError, match=message):
        columns_of(rows, objective("gae"), tokens=3, **given)


@pytest.mark.parametrize(("name", "learned"), [("gae", [0, 2]), ("token_gae", [0, 1, 2, 3])])
def test_metrics_of_values_are_over_the_tokens_the_critic_learns_at(name, learned):
    values = torch.tensor([0.5, 90.0, -0.5, -70.0])
    result = columns_of([fields(), fields("u_1", reward=0.0)], objective(name), values=values)
    assert result.metrics["critic/values/max"] == float(values[learned].max())
    left = (result.columns["returns"] - values)[learned].var() / (result.columns["returns"][learned].var() + 1e-5)
    assert result.metrics["critic/vf_explained_var"] == pytest.approx(float(1 - left), rel=1e-4)


def test_process_rewards_beside_a_greedy_baseline_are_said(caplog):
    said = []
    for process in (ProcessRewards(), ProcessRewards({"format": 2.0})):
        say_once.cache_clear()
        caplog.clear()
        columns_of([fields(components={"format": 0.5})], objective("remax", process=process), baselines={"u": 0.0})
        said.append("not in the returns of the greedy episodes" in caplog.text)
    assert said == [False, True]


def test_a_reward_that_is_all_process_reward_leaves_exactly_nothing():
    rows = [fields(f"u_{i}", reward=x, components={"format": x}) for i, x in enumerate((0.1, 0.2))]
    off = objective(process=ProcessRewards({"format": 0.0}))
    assert columns_of(rows, off).columns["advantages"].tolist() == [0.0] * 4


def test_a_step_table_is_the_same_for_any_rows_in_any_order():
    episodes = drawn_episodes(3, "mixed")
    seen = []
    for merge, seed in ((True, 0), (False, 0), (True, 1), (False, 2)):
        batch = local_batch(rows_of(episodes, merge=merge), filler_id=FILLER, ranks=2, mini_batches=2, seed=seed)
        table = batch.table()
        tokens = torch.tensor([token for row in batch.responses for token in row])
        assert [fields["kind"] for fields in batch.extra].count("padding") == len(batch.extra) - len(
            rows_of(episodes, merge=merge)
        )
        seen.append(
            (tokens[table.tokens].tolist(), table.step_of.tolist(), table.steps.trajectory.tolist(),
             table.steps.step.tolist(),
             table.steps.group.tolist(), table.steps.rewards.tolist(), table.steps.truncated.tolist(), table.names,
             table.steps.anchor.tolist(), table.steps.anchor_texts,
             [i >= 0 for i in table.final.tolist()])
        )  # fmt: skip
    assert all(other == seen[0] for other in seen)
    assert seen[0][0] == [t for _, _, episode in episodes for step in episode.steps for t in step.response_ids]
