"""Gradients of verl's own worker in this process, of rows that are laid out as the trainer lays them out.

What the proofs share that merged rows, rows per step, trees, ranks and the PyTorch loop train the same.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from local_training import local_batch
from verl.workers.config import FSDPActorConfig, FSDPCriticConfig, FSDPOptimizerConfig, PolicyLossConfig

from agent_envs.adapters.estimators import EstimatorOptions, get_estimator
from agent_envs.adapters.verl.config.objective import Objective
from agent_envs.adapters.verl.rollout.episode_rows import episode_rows

FILLER = 2


def rows_of(episodes, *, merge):
    """Rows of episodes as `drawn_episodes` makes them."""
    return [
        (f"g{group}", episode.episode_id, row)
        for group, final, episode in episodes
        for row in episode_rows(episode, filler_id=FILLER, final_prompt_ids=list(final), merge=merge, anchors=True)
    ]


def noise(batch, seed, scale):
    """A number per trained token that depends on its step and place alone, over all response tokens."""
    out = torch.zeros(int(batch.offsets[-1]))
    table = batch.table()
    drawn = torch.randn(len(table.tokens), generator=torch.Generator().manual_seed(seed)) * scale
    out[table.tokens] = drawn
    return out


def objective(estimator="grpo", weighting="trajectory", **more):
    options = EstimatorOptions(gamma=0.95, lam=0.9)
    return Objective(get_estimator(estimator), options, weighting, **more)


COMMON = {"strategy": "fsdp2", "ppo_mini_batch_size": 6, "ppo_micro_batch_size_per_gpu": 2, "rollout_n": 1,
          "optim": FSDPOptimizerConfig(lr=1e-2, total_training_steps=1)}  # fmt: skip


def actor_config(loss="vanilla", **more):
    more = {"clip_ratio_low": 0.1, "clip_ratio_high": 0.15, "use_kl_loss": False, **more}
    return FSDPActorConfig(**COMMON, policy_loss=PolicyLossConfig(loss_mode=loss, dro_beta=1.0), **more)


def critic_config(clip=0.5):
    return FSDPCriticConfig(**COMMON, cliprange_value=clip)


def gradients(
    worker, batch, columns, role, config, *, mini_batches=1, micro=None, micro_tokens=None, rank=0, row_loss=None
):
    """Gradients of every update, none of them applied, and the metrics of all."""
    updates = []

    def capture():
        named = worker.engine.module.named_parameters()
        updates.append({name: p.grad.full_tensor().clone() for name, p in named if p.grad is not None})
        return 0.0

    changed = {"use_dynamic_bsz": micro is None, "micro_batch_size_per_gpu": micro}
    if micro_tokens:
        changed["max_token_len_per_gpu"] = micro_tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker.engine, "optimizer_step", capture)
        patch.setattr(worker, "engine_config", dataclasses.replace(worker.engine_config, **changed))
        metrics = batch.update(worker, columns, role, config, mini_batches=mini_batches, rank=rank, row_loss=row_loss)
    return updates, {name: value for name, value in metrics.items() if "perf" not in name}


class Made:
    """A batch of some rows, with what model and critic say about them."""

    def __init__(self, rows, actor, critic=None, rank=0, **layout):
        self.batch = local_batch(rows, filler_id=FILLER, **layout)
        now = self.infer(actor, "log_probs", rank)
        self.given = {
            "rollout_log_probs": now + noise(self.batch, 1, 0.1),
            "old_log_probs": now + noise(self.batch, 2, 0.1),
            "ref_log_prob": now + noise(self.batch, 3, 0.1),
        }
        self.squares = self.infer(actor, "sum_pi_squared", rank)
        if critic is not None:
            self.given["values"] = self.infer(critic, "values", rank)

    def infer(self, worker, output, rank):
        """Of all ranks' rows: each says what its own are."""
        parts = [None] * self.batch.layout.ranks
        torch.distributed.all_gather_object(parts, self.batch.infer(worker, output, rank))
        return torch.cat(parts)

    def columns(self, objective, **batches):
        given = dict(self.given)
        if objective.kl is None:
            del given["ref_log_prob"]
        if objective.estimator.needs_score_norms:
            given["sum_pi_squared"] = self.squares
        baselines = {f"g{i}": 0.25 * i for i in range(3)} if objective.estimator.needs_baseline else None
        result = self.batch.columns(given, objective, baselines=baselines, **batches)
        return {**self.given, **result.columns}, result
