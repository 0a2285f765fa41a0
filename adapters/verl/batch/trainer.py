"""Training over steps with verl's v1 trainers (verl/trainer/ppo/v1/trainer_base.py), synchronous or not.

What is computed is ``steps``; here are the hooks of verl's ``PPOTrainer`` that lead there:

- The estimator ``remax`` plays one more episode per prompt, greedily, which is never trained on.
- Prompts are numbered as they are submitted, through all of a run: update s trains those of batch s, whenever they were
  played. Batches are submitted ``lookahead`` updates ahead, and no more of them than there are updates.
- Checkpoints are saved after a step's metrics.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.seqlen_balancing import log_seqlen_unbalance
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agent_envs.adapters.verl.batch import losses, rows
from agent_envs.adapters.verl.batch.metrics import PER_STEP, validation_metrics
from agent_envs.adapters.verl.batch.phases import PhasedTrainer, QueueBatch, take_baselines
from agent_envs.adapters.verl.batch.steps import StepTraining
from agent_envs.adapters.verl.config.objective import lookahead
from agent_envs.errors import BackendError

__all__ = ["TRAINER_MODE", "EnvTrainer", "QueueTraining"]

TRAINER_MODE = "agentr1_sync"
"""Name of the synchronous trainer in ``trainer.v1.trainer_mode``."""
_MOST_BATCHES = 10
"""Batches that a step plays at most where groups are filtered, if verl's setting does not say another number."""


class QueueTraining(StepTraining, PhasedTrainer):
    """Training over steps, before one of verl's v1 trainers in the order of bases; rows are in TransferQueue."""

    verl_mode = "sync"
    """The mode that verl's base class takes it for (trainer_base.py:153, :902, :1004, :1499)."""

    @property
    def trainer_mode(self) -> str:
        """verl's name of the mode, which is not the one that this trainer is registered under."""
        return self.verl_mode

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None:
        pass

    def __init__(self, config: Any) -> None:
        """Check the configuration before anything is started.

        Raises:
            ConfigError: A setting does not exist, or this trainer does not support it.
        """
        self.read_config(config)
        self.squares = self.objective.estimator.needs_score_norms
        super().__init__(config)
        self.lookahead = lookahead(self.settings)
        self.prompts: dict[str, int] = {}  # number of each uid that has not been trained yet, as submitted
        self.submitted = 0  # prompts of the whole run
        self.begun = 0  # those before this step
        self.batches = 0  # batches of the whole run
        self.checkpoint_due = False

    def _build_replay_buffer(self) -> Any:
        # the buffer polls for finished episodes every 2 s (replay_buffer.py:144) and has no setting for it; each poll
        # lists every row, so that more frequent ones would take time from generation
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = self.poll_interval
        return buffer

    @property
    def poll_interval(self) -> float:
        """Seconds between two looks at the queue of finished episodes."""
        return float(self.settings.get("poll_interval", 0.05))

    def _setup(self) -> None:
        super()._setup()
        self.set_losses(self.actor_rollout_wg, self.critic_wg if self.use_critic else None)

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self.baselines.clear()
        self.parts.clear()
        self.begun = self.submitted
        if not self.lookahead:
            self.prompts.clear()  # of groups that were filtered out

    def _add_batch_to_generate(self) -> None:
        """Submit batches until `lookahead` more are under way than the one that is trained next."""
        while self.batches < min(self.global_steps + self.lookahead, int(self.total_training_steps)):
            self.batches += 1
            super()._add_batch_to_generate()

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        numbers = range(self.submitted, self.submitted + len(batch))
        filters, size = self.config.algorithm.get("filter_groups") or {}, int(self.config.data.train_batch_size)
        most = int(filters.get("max_num_gen_batches") or 0) or _MOST_BATCHES  # verl refills without end
        if filters.get("enable") and numbers.stop - self.begun > most * size:
            raise BackendError(
                f"step {self.global_steps} played {most} batches, and fewer than {size} of its groups have episodes "
                f"with different {filters['metric']}: use easier or harder tasks, or raise "
                "algorithm.filter_groups.max_num_gen_batches"
            )
        self.prompts.update(zip(map(str, batch["uid"]), numbers, strict=True))
        self.submitted = numbers.stop
        batch["prompt_number"] = torch.tensor(numbers)
        if self.objective.estimator.needs_baseline:
            # one session more per prompt; the agent loop plays it greedily
            batch["__rollout_n__"] = torch.full((len(batch),), self.config.actor_rollout_ref.rollout.n + 1)
        return super()._submit_batch_to_rollout(batch)

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict, logging_prefix: str = "global_seqlen", keep_minibatch: bool = False
    ) -> KVBatchMeta:
        """Order rows by rank and mini-batch and add padding rows; the same for the same seed."""
        uids = {key.rsplit("_", 2)[0] for key in batch.keys}
        self.order = {uid: i for i, uid in enumerate(sorted(uids, key=lambda uid: self.prompts.pop(uid)))}
        if self.objective.estimator.needs_baseline:
            batch = take_baselines(batch, self.config.actor_rollout_ref.rollout.n, self.baselines)
        if not batch.keys:
            raise RuntimeError(f"none of the prompts of step {self.global_steps} has a row to train; see the log")
        batch.reorder(rows.by_submission(batch.keys, self.order))
        layout = self.plan(QueueBatch(batch))
        missing = sum(row is None for row in layout.order)
        keys, tags = self._padding_rows(batch, missing)
        spare = iter(range(len(batch), len(batch) + missing))
        order = [next(spare) if row is None else row for row in layout.order]
        out = dataclasses.replace(batch, keys=[*batch.keys, *keys], tags=[*batch.tags, *tags])
        out.reorder(order)
        of_ranks = [part.tolist() for part in torch.arange(len(order)).chunk(self.ranks())]
        metrics.update(log_seqlen_unbalance([tag["seq_len"] for tag in out.tags], of_ranks, prefix=logging_prefix))
        return out

    def ranks(self) -> int:
        """Return the number of the actor's data-parallel ranks."""
        return max(self._dispatch_info()) + 1

    def _dispatch_info(self) -> list[int]:
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return group._dispatch_info["actor"]

    def _padding_rows(self, batch: KVBatchMeta, count: int) -> tuple[list[str], list[dict]]:
        """Add ``count`` rows with an empty mask to the queue; return their keys and tags."""
        if not count:
            return [], []
        first = tq.kv_batch_get(keys=[batch.keys[0]], partition_id=batch.partition_id)[0]
        sample, tag = construct_minimal_padding_template(first, batch.tags[0], self.tokenizer.eos_token_id)
        name = f"pad{self.global_steps}t{self.local_trigger_step}"
        fields = list_of_dict_to_tensordict([rows.padding(sample, name)] * count)
        keys, tags = [f"{name}_{i}_0" for i in range(count)], [dict(tag) for _ in range(count)]
        tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields, tags=tags)
        return keys, tags

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        given = QueueBatch(batch)
        metrics.update(self.add_columns(given, last=self.local_trigger_step == self.parameter_sync_step - 1))
        return given.meta

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        batch.extra_info.update(self._update_info(self.config.critic, self.critic_mini_batches))
        columns = ["values", "returns", losses.VALUE_WEIGHTS]
        output = self.critic_wg.train_mini_batch(self.asked(batch, *columns)).get()
        metrics.update(self.updated(output["metrics"], "critic"))
        self.phase.progress()
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        actor = self.config.actor_rollout_ref.actor
        columns = ["old_log_probs", "advantages", losses.POLICY_WEIGHTS, losses.STEP_NUMBERS]
        columns += ["ref_log_prob"] if self.use_reference_policy else []
        columns += ["rollout_is_weights"] if self.writes_weights else []
        columns += [losses.TOKEN_WEIGHTS] if self.objective.row_loss is not None else []
        batch.extra_info.update(
            calculate_entropy=bool(actor.calculate_entropy or actor.entropy_coeff != 0.0),
            distillation_use_topk=False,
            distillation_only=False,
            **self._update_info(actor, self.actor_mini_batches),
        )
        output = self.actor_rollout_wg.update_actor(self.asked(batch, *columns))
        metrics.update(self.updated(output["metrics"], "actor"))
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        """Add verl's metrics over real rows, except for those of steps and episodes."""
        tags = zip(batch.keys, batch.tags, strict=True)
        real = batch.select_keys([key for key, tag in tags if not tag.get("is_padding", False)])
        ours = dict(metrics)
        super()._compute_metrics(real, metrics, timing_raw, global_steps, epoch)
        metrics.update({name: value for name, value in ours.items() if name.startswith(PER_STEP)})
        metrics.update({f"critic/score/{k}": metrics[f"env/return/{k}"] for k in ("mean", "max", "min")})

    def _val_metrics_update(
        self,
        data_sources: Any,
        sample_uids: Any,
        reward_extra_infos_dict: dict[str, list],
        sample_turns: Any,
        expected_acc_counts: dict | None = None,
    ) -> dict[str, float]:
        """Return verl's validation metrics and success over whole episodes; verl passes one record per episode."""
        infos = dict(reward_extra_infos_dict)
        self.write_lines("validation", [line for line in infos.pop("episode", []) if line])
        out = super()._val_metrics_update(data_sources, sample_uids, infos, sample_turns, expected_acc_counts)
        names = [name for name in infos if name != "reward"]
        records = [dict(zip(names, values, strict=True)) for values in zip(*map(infos.get, names), strict=True)]
        return {**out, **validation_metrics(records, sum((expected_acc_counts or {}).values()))}

    def on_train_begin(self) -> None:
        """Save after logging: verl saves first, so a kill in between would lose the step's metrics."""
        super().on_train_begin()
        self.logger: Any = rows.LogThen(self.logger, self._save_if_due)

    def _save_checkpoint(self) -> None:
        self.checkpoint_due = True

    def _save_if_due(self) -> None:
        if self.checkpoint_due:
            self.checkpoint_due = False
            self.phase.enter("saving", self.global_steps)
            self._take_devices()
            super()._save_checkpoint()
            self.save_state(**self._progress())
            self._give_devices_back()

    def _take_devices(self) -> None:
        """Free the memory of the generation servers, as verl does when it saves."""
        self.checkpoint_manager.sleep_replicas()

    def _give_devices_back(self) -> None:
        self.checkpoint_manager.update_weights(self.global_steps)

    def _load_checkpoint(self) -> Any:
        rows.repair_tracker(Path(self.config.trainer.default_local_dir))
        loaded = super()._load_checkpoint()
        self.batches, self.submitted = self.global_steps, self.global_steps * int(self.config.data.train_batch_size)
        state = self.load_state()
        for name in self._progress():
            setattr(self, name, int(state.get(name, getattr(self, name))))
        return loaded

    def _progress(self) -> dict[str, int]:
        return {"submitted": self.submitted, "batches": self.batches}


@register_trainer(TRAINER_MODE)
class EnvTrainer(QueueTraining, PPOTrainerSync):
    """Plays a batch, trains on it, and plays the next one with the new weights."""
