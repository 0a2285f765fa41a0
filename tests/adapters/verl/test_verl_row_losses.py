"""Losses that users wrote for verl's rows are called as they are, on a row for each step.

1. what they get: padded rows, a mask of what is trained, the numbers of trained tokens and rows of the mini-batch
2. verl's own losses, called so, train what this package's losses train with the weighting of verl's mean
3. they are found by name, and refused where they cannot be called
"""

import dataclasses
import sys

import pytest
import torch
from comparisons import relative
from toy_episodes import drawn_episodes
from verl.trainer.ppo import core_algos
from worker_gradients import Made, actor_config, gradients, objective, rows_of

from agent_envs.adapters.verl.batch.losses import POLICY_WEIGHTS
from agent_envs.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore")
MINE = """
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss

@register_policy_loss("mine")
def mine(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean", config=None,
         rollout_is_weights=None):
    loss = agg_loss(-advantages * log_prob, response_mask, loss_agg_mode, **config.global_batch_info)
    return loss, {"actor/mine": 1.0}

def ours(log_probs, old_log_probs, advantages, weights, step_ids, options, is_weights=None):
    return (weights * log_probs).sum(), {}
"""


@pytest.mark.parametrize(
    ("name", "mean", "weighting"), [("vanilla", "token-mean", "token"), ("gspo", "seq-mean-token-mean", "row")]
)
def test_verls_own_losses_train_what_ours_train(actor, monkeypatch, name, mean, weighting):
    rows = rows_of(drawn_episodes(9, "mixed"), merge=False)
    function, seen = core_algos.POLICY_LOSS_REGISTRY[name], []

    def called(**given):
        seen.append((given["response_mask"].shape, dict(given["config"].global_batch_info)))
        return function(**given)

    monkeypatch.setitem(core_algos.POLICY_LOSS_REGISTRY, name, called)  # the loss puts it there itself
    made = Made(rows, actor, mini_batches=2, row_multiple=4)
    assert any(fields["kind"] == "padding" for fields in made.batch.extra)
    config = actor_config(name, entropy_coeff=0.1, loss_agg_mode=mean)
    ours, _ = made.columns(objective("grpo", weighting), actor_batches=2)
    theirs, _ = made.columns(dataclasses.replace(objective("grpo"), row_loss=called), actor_batches=2)
    g1, _ = gradients(actor, made.batch, ours, "actor", config, mini_batches=2)
    g2, metrics = gradients(actor, made.batch, theirs, "actor", config, mini_batches=2, micro=2, row_loss=called)
    assert len(g1) == len(g2) == 2 and max(map(relative, g2, g1)) <= 1e-5
    assert "actor/pg_loss" in metrics and "actor/pg_clipfrac" in metrics
    trained = theirs[POLICY_WEIGHTS] != 0
    assert {info["dp_size"] for _, info in seen} == {1}
    # every micro-batch is told of its whole mini-batch
    assert sum({info["batch_num_tokens"] for _, info in seen}) == int(trained.sum())
    assert sum({info["global_batch_size"] for _, info in seen}) == len(made.batch.table())


def test_a_mini_batch_without_trained_tokens_is_no_update(actor):
    made = Made(rows_of(drawn_episodes(1, "grow", groups=1, per_group=2), merge=False), actor)
    columns, _ = made.columns(dataclasses.replace(objective(), row_loss=len))
    columns[POLICY_WEIGHTS] = torch.zeros_like(columns[POLICY_WEIGHTS])
    (grads,), _ = gradients(actor, made.batch, columns, "actor", actor_config(), row_loss=None)
    (same,), _ = gradients(actor, made.batch, columns, "actor", actor_config(), row_loss=len)  # is never called
    assert all(float(g.abs().max()) == 0.0 for g in (*grads.values(), *same.values()))


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_row_losses.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_row_losses", raising=False)
    monkeypatch.setattr(core_algos, "POLICY_LOSS_REGISTRY", dict(core_algos.POLICY_LOSS_REGISTRY))
    return "my_row_losses"


def test_they_are_found_by_name_and_said(module, capsys):
    loss = "actor_rollout_ref.actor.policy_loss.loss_mode="
    run = ["train", "--env", "AgentR1/GSM8KTool-v0", "--dry-run"]
    library = f"actor_rollout_ref.model.external_lib={module}"
    mean = "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum"
    for words in ([library, f"{loss}mine", mean], [f"{loss}{module}:mine"]):
        assert main([*run, *words]) == 0
        assert "was written for verl's rows: it is called unchanged" in capsys.readouterr().out
    for words, message in (
        ([library, f"{loss}mine", "+agentr1.layout=merged"], "agentr1.layout must be steps, got merged"),
        ([library, f"{loss}yours"], "the policy loss must be one of"),
        ([f"{loss}mine"], "the policy loss must be one of"),
        ([f"{loss}{module}:ours", mean], "loss_agg_mode follows from +agentr1.weighting"),
        (["actor_rollout_ref.model.external_lib=no_such_module", f"{loss}mine"], "no_such_module cannot be imported"),
    ):
        assert main([*run, *words]) == 2
        assert message in capsys.readouterr().err
