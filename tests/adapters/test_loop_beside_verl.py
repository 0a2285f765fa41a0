"""The PyTorch loop beside verl's own workers: what is a gradient there is the same gradient here.

1. the same episodes give the same advantages, loss and gradients as the verl path, for every kind of estimator, loss
   and weighting, for contexts that only grow and for mixed ones; the critic's too; KL as a loss and in the reward
2. the same groups that branch from inner states have the same advantages and weights to the last bit
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from comparisons import gradients, relative, step_order, unlike_estimators, weights_of  # noqa: E402
from toy_episodes import drawn_episodes, toy_episode  # noqa: E402

from agent_envs.adapters.batches import LAST_STATE  # noqa: E402
from agent_envs.adapters.branches import Tree, segments  # noqa: E402
from agent_envs.adapters.estimators import EstimatorOptions, get_estimator  # noqa: E402
from agent_envs.adapters.losses import POLICY_LOSSES, WEIGHTINGS, KLController, action_start, loss_preset  # noqa: E402
from agent_envs.adapters.torch.batch import assemble  # noqa: E402
from agent_envs.adapters.torch.loop import Scores, accumulate, actor_loss, credit, critic_loss, score  # noqa: E402
from agent_envs.adapters.torch.settings import LoopConfig  # noqa: E402
from agent_envs.episodes.record import Step, StopReason  # noqa: E402
from tests.helpers import sampled  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
FILLER = 2


def config(**settings):
    return LoopConfig(env="Toy-v0", out="nowhere", gamma=0.95, lam=0.9, group=3, **settings)


def batch_of(episodes, *, critic, baselines=None):
    """The loop's batch, with the state after a cut episode as ``with_last_state`` would add it."""
    ready = []
    for _, final, episode in episodes:
        if critic and episode.steps[-1].truncated:
            state = Step("", "", 0.0, False, False, {LAST_STATE: True}, tuple(final), (FILLER,))
            episode = replace(episode, steps=(*episode.steps, state))
        ready.append(episode)
    groups = [group for group, _, _ in episodes]
    return assemble(ready, groups, None if baselines is None else [baselines[f"g{g}"] for g in groups])


@pytest.fixture(scope="module")
def verl(model_path, actor, critic):
    """verl's worker and critic in this process, and models of ours with their weights."""
    import worker_gradients
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

    ours = {
        "actor": AutoModelForCausalLM.from_pretrained(model_path).eval(),
        "critic": AutoModelForTokenClassification.from_pretrained(model_path, num_labels=1).eval(),
    }
    theirs = {"actor": actor, "critic": critic}
    for name, worker in theirs.items():
        weights = {k: p.full_tensor() for k, p in worker.engine.module.named_parameters()}
        ours[name].load_state_dict(weights, strict=False)
    return SimpleNamespace(models=ours, of=worker_gradients, **theirs)


def noise(count, seed):
    """For trained tokens in the order of their steps."""
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)) * 0.1


CASES = [
    *((estimator, "vanilla", "trajectory", "none") for estimator in unlike_estimators()),
    *(("gae", loss, "trajectory", "none") for loss in sorted({*POLICY_LOSSES} - {"vanilla"})),
    *(("grpo", "steppo", weighting, "loss") for weighting in sorted(WEIGHTINGS)),
    *((estimator, "vanilla", "token", "reward") for estimator in ("gae", "token_gae", "reinforce_pp", "grpo")),
]
QUICK = {(*case, "mixed") for case in CASES if case[1] in ("capo", "gspo", "steppo", "vanilla")}
GROW = [
    ("bi_level_gae", "vanilla", "trajectory", "none"),
    ("gae", "gspo", "trajectory", "none"),
    ("reinforce_pp", "vanilla", "token", "reward"),
    ("remax", "vanilla", "trajectory", "none"),
]


@pytest.mark.parametrize(
    ("estimator", "loss", "weighting", "kl", "contexts"),
    [*sampled([(*case, "mixed") for case in CASES], QUICK), *((*case, "grow") for case in GROW)],
)
def test_the_same_episodes_give_verls_gradients(verl, estimator, loss, weighting, kl, contexts):
    c = config(estimator=estimator, loss=loss, weighting=weighting, kl=kl, kl_coef=0.05, entropy_coef=0.01)
    needs = get_estimator(estimator)
    episodes = drawn_episodes(2, contexts)
    baselines = {f"g{i}": 0.25 * i for i in range(3)} if needs.needs_baseline else None

    from agent_envs.adapters.verl.batch.losses import POLICY_WEIGHTS

    theirs = verl.of.local_batch(verl.of.rows_of(episodes, merge=True), filler_id=FILLER)
    table = theirs.table()
    given = {"old_log_probs": theirs.infer(verl.actor, "log_probs")}
    if needs.needs_critic:
        given["values"] = theirs.infer(verl.critic, "values")
    ours = batch_of(episodes, critic=needs.needs_critic, baselines=baselines)
    order = step_order(ours)
    old = score(verl.models["actor"], ours, c)
    assert torch.allclose(old[order], given["old_log_probs"][table.tokens], atol=2e-5)
    values = None
    if needs.needs_critic:
        values = score(verl.models["critic"], ours, c, of="values")
        assert torch.allclose(values[order], given["values"][table.tokens], atol=2e-5)
        values[order] += 10 * noise(len(order), 3)  # so that the clip of values acts
        given["values"][table.tokens] += 10 * noise(len(order), 3)

    squares = None
    if needs.needs_score_norms:
        squares = score(verl.models["actor"], ours, c, of="squares")
        given["sum_pi_squared"] = theirs.infer(verl.actor, "sum_pi_squared")
        assert torch.allclose(squares[order], given["sum_pi_squared"][table.tokens], atol=2e-5)
    moved = noise(len(order), 1)
    ref = old.clone()
    given["ref_log_prob"] = given["old_log_probs"].clone()
    ref[order] += noise(len(order), 2)
    given["ref_log_prob"][table.tokens] += noise(len(order), 2)
    old[order] += moved
    given["old_log_probs"][table.tokens] += moved

    only = dict(given) if kl == "reward" else {k: v for k, v in given.items() if k != "ref_log_prob"}
    how = {"kl": KLController(c.kl_coef) if kl == "reward" else None, "kl_kind": c.kl_kind}
    result = theirs.columns(only, verl.of.objective(estimator, weighting, **how), baselines=baselines)
    columns = {**given, **result.columns}
    scores = Scores(old, ref if kl != "none" else None, values, squares)
    advantages, returns, _ = credit(ours, c, scores)
    assert torch.allclose(advantages[order].float(), columns["advantages"][table.tokens], atol=1e-5)
    assert float(advantages[order].abs().mean()) > 0.05

    weights = weights_of(ours, weighting)
    assert torch.allclose(weights[order], columns[POLICY_WEIGHTS][table.tokens])
    said, _ = accumulate(verl.models["actor"], ours, weights, partial(actor_loss, ours, c, scores, advantages), c)
    clips = {f"clip_ratio_{side}": getattr(loss_preset(loss), f"clip_ratio_{side}") for side in ("low", "high", "c")}
    own = verl.of.actor_config(
        loss, **clips, entropy_coeff=0.01, use_kl_loss=kl == "loss", kl_loss_coef=0.05, kl_loss_type=c.kl_kind
    )
    (expected,), metrics = verl.of.gradients(verl.actor, theirs, columns, "actor", own)
    assert said == pytest.approx(metrics["actor/loss"], rel=1e-4, abs=1e-6)
    assert relative(gradients(verl.models["actor"]), expected) <= 1e-4

    if values is not None:
        assert torch.allclose(returns[order].float(), columns["returns"][table.tokens], atol=1e-5)
        first = order[action_start(ours.step[order])]
        counted = first if needs.critic_at_action_start else order
        weights = weights_of(
            ours, weighting, torch.full_like(ours.step, -1).index_copy_(0, counted, ours.step[counted])
        )
        said, _ = accumulate(verl.models["critic"], ours, weights, partial(critic_loss, values, returns), c)
        (expected,), metrics = verl.of.gradients(verl.critic, theirs, columns, "critic", verl.of.critic_config())
        assert said == pytest.approx(metrics["critic/vf_loss"], rel=1e-4, abs=1e-6)
        assert relative(gradients(verl.models["critic"]), expected) <= 1e-4


def grown(seed, step, size=3):
    """A tree of recorded episodes that are the same up to a step: prompts that grow, and then one that was rebuilt."""
    rng = np.random.default_rng(seed)

    def ids(low, high):
        return tuple(int(x) for x in rng.integers(7, 250, int(rng.integers(low, high))))

    episodes = []
    for member in range(size):
        steps = list(episodes[0].steps[:step]) if member else []
        prompt = (*steps[-1].prompt_ids, *steps[-1].response_ids, *ids(1, 4)) if steps else ids(4, 9)
        count = step + int(rng.integers(1, 4))
        for t in range(len(steps), count):
            reward, info = round(float(rng.normal()), 2), {"anchor": f"{t}/{rng.integers(2)}"}
            response = ids(1, 6)
            steps.append(Step("o", "a", reward, t == count - 1, False, info, prompt, response, (-5.0,) * len(response)))
            prompt = ids(4, 9) if t == step + 1 else (*prompt, *response, *ids(1, 4))
        name = f"g{seed // 10}_{seed % 10 * size + member}"
        episodes.append(toy_episode(name, steps, reset_info={"anchor": ""}))
    return Tree(step, episodes)


@pytest.mark.parametrize("weighting", ["row", "trajectory"])
def test_the_same_trees_give_verls_gradients(verl, weighting):
    from agent_envs.adapters.verl.batch.losses import POLICY_WEIGHTS
    from agent_envs.adapters.verl.config.objective import Objective
    from agent_envs.adapters.verl.rollout.episode_rows import episode_rows, parts_of

    trees = [grown(seed, step) for seed, step in ((0, 1), (1, 2), (10, 2), (11, 1))]
    broken = replace(trees[3].episodes[1], stop_reason=StopReason.ERROR)
    trees[3] = trees[3]._replace(episodes=[trees[3].episodes[0], broken, trees[3].episodes[2]])
    tasks = [0, 0, 1, 1]
    config = LoopConfig(env="Toy-v0", out="x", estimator="rloo", branch="1-2:2", group=6, gamma=0.9,
                        weighting=weighting)  # fmt: skip
    episodes, groups, counts, of_tasks = segments(trees, tasks, weighting)
    ours = assemble(episodes, groups, layout="merged", counts=counts, tasks=of_tasks)
    model = verl.models["actor"]
    scores = Scores(score(model, ours, config))
    advantages, _, _ = credit(ours, config, scores)
    weights = weights_of(ours, weighting)

    rows = [
        (f"g{task}", episode.episode_id, row)
        for tree, task in zip(trees, tasks, strict=True)
        for episode, parts in zip(tree.episodes, parts_of(tree, 0.9, weighting=weighting), strict=True)
        for part, own in parts
        for row in episode_rows(part, filler_id=FILLER, **own)
    ]
    theirs = verl.of.local_batch(rows, filler_id=FILLER)
    table = theirs.table()
    given = {"old_log_probs": theirs.infer(verl.actor, "log_probs")}
    how = Objective(get_estimator("rloo"), EstimatorOptions(gamma=0.9), weighting)
    columns = {**given, **theirs.columns(given, how).columns}
    order = step_order(ours)
    assert torch.equal(ours.ids[order], theirs.sampled.new_tensor(  # the same tokens
        [token for row in theirs.responses for token in row]).long()[table.tokens])  # fmt: skip
    assert torch.equal(advantages[order].float(), columns["advantages"][table.tokens])
    assert torch.equal(weights[order], columns[POLICY_WEIGHTS][table.tokens])
    assert float(advantages[order].abs().mean()) > 0.05 and len(weights[order].unique()) > 3

    accumulate(model, ours, weights, partial(actor_loss, ours, config, scores, advantages), config)
    own = verl.of.actor_config(clip_ratio_low=0.2, clip_ratio_high=0.2)
    (found,), _ = verl.of.gradients(verl.actor, theirs, columns, "actor", own)
    assert relative(found, gradients(model)) < 1e-5
