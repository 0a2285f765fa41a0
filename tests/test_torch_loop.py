"""The loop in plain PyTorch, and beside it verl's own workers: what is a gradient there is the same gradient here.

1. the same episodes give the same advantages, loss, metrics and gradients as the verl path, for every estimator, loss and
   weighting, for contexts that only grow and for mixed ones; the critic's too; KL as a loss and in the reward
2. micro-batches change nothing; mini-batches hold whole episodes and make up all of them
3. the state after a cut episode is what an actor would have been shown; one too long for the model is left out
4. a run leaves metrics and a model, goes on where it was stopped as if it had not been, and refuses other settings
5. broken episodes and steps without tokens are not trained
"""

from __future__ import annotations

import dataclasses
import json
import socket
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agent_envs.adapters.batches import LAST_STATE, with_last_state  # noqa: E402
from agent_envs.adapters.estimators import ESTIMATORS, EstimatorOptions, get_estimator  # noqa: E402
from agent_envs.adapters.losses import POLICY_LOSSES, WEIGHTINGS, FixedKL, action_start, token_weights  # noqa: E402
from agent_envs.adapters.tiny.model import build_model, save_model  # noqa: E402
from agent_envs.adapters.tiny.tokenizer import build_tokenizer  # noqa: E402
from agent_envs.adapters.torch_loop import (  # noqa: E402
    Scores,
    accumulate,
    actor_loss,
    assemble,
    credit,
    critic_loss,
    main,
    score,
    train,
    update,
)
from agent_envs.adapters.torch_settings import LoopConfig  # noqa: E402
from agent_envs.episode import Episode, Step, StopReason  # noqa: E402
from agent_envs.errors import ConfigError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
FILLER = 2


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    tokenizer = build_tokenizer(["some words to learn"])
    save_model(build_model(tokenizer, hidden_size=32, intermediate_size=64), tokenizer, path)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def play(seed, contexts, groups=3, per_group=3, longest=4):
    """Episodes as an agent would leave them, with the final prompt of each.

    ``grow``: every prompt extends the one before. ``mixed``: prompts are rebuilt, or two contexts take turns.
    """
    rng = np.random.default_rng(seed)

    def draw(low, high):
        return tuple(int(x) for x in rng.integers(7, 250, int(rng.integers(low, high))))

    out = []
    for group in range(groups):
        start, helper = draw(5, 12), draw(4, 8)
        for session in range(per_group):
            lineages, steps, count = [start, helper], [], int(rng.integers(1, longest + 1))
            for t in range(count):
                which = int(contexts == "mixed" and t > 0 and rng.integers(3) == 1)
                if contexts == "mixed" and t and rng.integers(3) == 2:
                    lineages[0] = draw(5, 12)
                response, last = draw(1, 6), t == count - 1
                cut = last and session % 3 == 1
                steps.append(Step(
                    "o", "a", round(float(rng.normal()), 2), last and not cut, cut, {"anchor": f"{group}/{rng.integers(2)}"},
                    lineages[which], response, tuple(float(x) for x in rng.normal(-5, 0.3, len(response))),
                ))  # fmt: skip
                lineages[which] = (*lineages[which], *response, *draw(1, 5))
            reason = StopReason.TRUNCATED if steps[-1].truncated else StopReason.TERMINATED
            episode = Episode("Toy-v0", f"g{group}_{session}", f"g{group}", None, session, "", (),
                              {"anchor": f"{group}/start"}, tuple(steps), "", reason)  # fmt: skip
            out.append((group, lineages[0], episode))
    return out


def config(**settings):
    return LoopConfig(env="Toy-v0", out="nowhere", gamma=0.95, lam=0.9, group=3, **settings)


def batch_of(episodes, *, critic, baselines=None):
    """The loop's batch, with the state after a cut episode as ``with_last_state`` would add it."""
    ready = []
    for _, final, episode in episodes:
        if critic and episode.steps[-1].truncated:
            state = Step("", "", 0.0, False, False, {LAST_STATE: True}, tuple(final), (FILLER,))
            episode = dataclasses.replace(episode, steps=(*episode.steps, state))
        ready.append(episode)
    groups = [group for group, _, _ in episodes]
    return assemble(ready, groups, None if baselines is None else [baselines[f"g{g}"] for g in groups])


def gradients(model):
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


# ------------------------------------------------------------------------------------------------ beside verl


@pytest.fixture(scope="module")
def verl(model_path):
    """verl's worker and critic in this process, and models of ours with their weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("verl")
        from verl.workers.config import FSDPActorConfig, FSDPCriticConfig, FSDPOptimizerConfig, PolicyLossConfig

        from agent_envs.adapters.verl.local import build_worker, local_batch
    from agent_envs.adapters.verl.episode_rows import episode_rows
    from agent_envs.adapters.verl.objective import Objective
    from agent_envs.adapters.verl.step_losses import POLICY_WEIGHTS

    class Verl:
        def __init__(self):
            self.actor, self.critic = build_worker(model_path, "language_model"), build_worker(model_path, "value_model")
            from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

            self.models = {"actor": AutoModelForCausalLM.from_pretrained(model_path).eval()}
            self.models["critic"] = AutoModelForTokenClassification.from_pretrained(model_path, num_labels=1).eval()
            for name, worker in (("actor", self.actor), ("critic", self.critic)):
                weights = {k: p.full_tensor() for k, p in worker.engine.module.named_parameters()}
                self.models[name].load_state_dict(weights, strict=False)

        def batch(self, episodes):
            rows = [
                (f"g{group}", episode.episode_id, row)
                for group, final, episode in episodes
                for row in episode_rows(episode, filler_id=FILLER, final_prompt_ids=list(final), anchors=True)
            ]
            return local_batch(rows, filler_id=FILLER)

        def objective(self, c):
            options = EstimatorOptions(gamma=c.gamma, lam=c.lam, group_size=c.group)
            kl = FixedKL(c.kl_coef) if c.kl == "reward" else None
            return Objective(get_estimator(c.estimator), options, c.weighting, kl=kl, kl_kind=c.kl_kind)

        def config(self, role, c):
            optim = FSDPOptimizerConfig(lr=1e-2, total_training_steps=1)
            common = {"strategy": "fsdp2", "ppo_mini_batch_size": 9, "ppo_micro_batch_size_per_gpu": 2, "rollout_n": 1}
            if role == "critic":
                return FSDPCriticConfig(**common, cliprange_value=0.5, optim=optim)
            clips = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0}
            if c.loss == "pspo":
                clips = {"clip_ratio": 0.2, "clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4, "clip_ratio_c": 10.0}
            return FSDPActorConfig(
                **common, **clips, policy_loss=PolicyLossConfig(loss_mode=c.loss), optim=optim,
                entropy_coeff=c.entropy_coef, use_kl_loss=c.kl == "loss", kl_loss_coef=c.kl_coef, kl_loss_type=c.kl_kind,
            )  # fmt: skip

        def gradients(self, role, batch, columns, c):
            worker, updates = getattr(self, role), []

            def capture():
                named = worker.engine.module.named_parameters()
                updates.append({k: p.grad.full_tensor().clone() for k, p in named if p.grad is not None})
                return 0.0

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(worker.engine, "optimizer_step", capture)
                metrics = batch.update(worker, columns, role, self.config(role, c))
            (only,) = updates
            return only, metrics

    names = {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as s, pytest.MonkeyPatch.context() as patch:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
        s.close()
        for name, value in {**names, "MASTER_PORT": port}.items():
            patch.setenv(name, value)
        made = Verl()
        made.policy_weights = POLICY_WEIGHTS
        yield made
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def relative(got, expected):
    """Largest relative difference, in norm, of any parameter's gradient."""
    assert max(float(g.abs().max()) for g in expected.values()) > 1e-4
    assert set(got) == set(expected)
    out = 0.0
    for name, gradient in expected.items():
        norm = float(gradient.double().norm())
        difference = float((got[name].double() - gradient.double()).norm())
        out = max(out, difference / norm if norm else float(difference > 0))
    return out


def noise(count, seed):
    """For trained tokens in the order of their steps."""
    return torch.randn(count, generator=torch.Generator().manual_seed(seed)) * 0.1


CASES = [
    *((estimator, "vanilla", "trajectory", "none") for estimator in sorted(ESTIMATORS)),
    *(("gae", loss, "trajectory", "none") for loss in sorted(POLICY_LOSSES)),
    *(("grpo", "steppo", weighting, "loss") for weighting in sorted(WEIGHTINGS)),
    *((estimator, "vanilla", "token", "reward") for estimator in ("gae", "token_gae", "reinforce_pp", "grpo")),
]


@pytest.mark.parametrize("contexts", ["grow", "mixed"])
@pytest.mark.parametrize(("estimator", "loss", "weighting", "kl"), CASES)
def test_the_same_episodes_give_verls_gradients(verl, estimator, loss, weighting, kl, contexts):
    c = config(estimator=estimator, loss=loss, weighting=weighting, kl=kl, kl_coef=0.05, entropy_coef=0.01)
    needs = get_estimator(estimator)
    episodes = play(5, contexts)
    baselines = {f"g{i}": 0.25 * i for i in range(3)} if needs.needs_baseline else None

    theirs = verl.batch(episodes)
    table = theirs.table()
    given = {"old_log_probs": theirs.infer(verl.actor, "log_probs")}
    if needs.needs_critic:
        given["values"] = theirs.infer(verl.critic, "values")
    ours = batch_of(episodes, critic=needs.needs_critic, baselines=baselines)
    order = torch.argsort(ours.step, stable=True)  # ours stand row by row, verl's table step by step
    old = score(verl.models["actor"], ours, c)
    assert torch.allclose(old[ours.place[order]], given["old_log_probs"][table.tokens], atol=2e-5)
    values = score(verl.models["critic"], ours, c, critic=True) if needs.needs_critic else None

    moved = noise(len(order), 1)
    ref = old.clone()
    given["ref_log_prob"] = given["old_log_probs"].clone()
    ref[ours.place[order]] += noise(len(order), 2)
    given["ref_log_prob"][table.tokens] += noise(len(order), 2)
    old[ours.place[order]] += moved
    given["old_log_probs"][table.tokens] += moved

    only = dict(given) if kl == "reward" else {k: v for k, v in given.items() if k != "ref_log_prob"}
    result = theirs.columns(only, verl.objective(c), baselines=baselines)
    columns = {**given, **result.columns}
    scores = Scores(old, ref if kl != "none" else None, values)
    advantages, returns, _ = credit(ours, c, scores)
    assert torch.allclose(advantages[order].float(), columns["advantages"][table.tokens], atol=1e-5)
    assert float(advantages.abs().mean()) > 0.05

    lengths = torch.bincount(ours.step, minlength=len(ours.rows.rewards))
    weights = token_weights(weighting, lengths, ours.rows.trajectory, ours.step)
    assert torch.allclose(weights[order], columns[verl.policy_weights][table.tokens])
    said, _ = accumulate(verl.models["actor"], ours, weights, actor_loss(ours, weights, advantages, scores, c), c)
    expected, metrics = verl.gradients("actor", theirs, columns, c)
    assert said == pytest.approx(metrics["actor/loss"], rel=1e-4, abs=1e-6)
    assert relative(gradients(verl.models["actor"]), expected) <= 1e-4

    if values is not None:
        assert torch.allclose(returns[order].float(), columns["returns"][table.tokens], atol=1e-5)
        counted = torch.ones_like(ours.step, dtype=torch.bool)
        if needs.critic_at_action_start:
            counted = torch.zeros_like(counted)
            counted[order] = action_start(ours.step[order])
        lengths = torch.bincount(ours.step[counted], minlength=len(ours.rows.rewards))
        weights = token_weights(weighting, lengths, ours.rows.trajectory, ours.step) * counted
        said, _ = accumulate(verl.models["critic"], ours, weights, critic_loss(ours, weights, returns, values), c)
        expected, metrics = verl.gradients("critic", theirs, columns, c)
        assert said == pytest.approx(metrics["critic/vf_loss"], rel=1e-4, abs=1e-6)
        assert relative(gradients(verl.models["critic"]), expected) <= 1e-4
