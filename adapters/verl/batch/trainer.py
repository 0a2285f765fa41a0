"""Training over steps of episodes with verl's v1 trainers (verl/trainer/ppo/v1/trainer_base.py), synchronous or not.

- Advantages come from ``agent_envs.adapters.estimators``, over (trajectory, step); each step has its own reward, where
  verl gives every row the last one's (v1/agent_loop_tq.py:174).
- Mini-batches hold whole groups and their number is fixed (``layout``). Each token's weight in the losses is computed
  for the whole batch (``columns``), and the workers add up (``losses``). Padding, broken episodes and tokens the policy
  did not write have weight 0.
- The estimator ``remax`` plays one more episode per prompt, greedily, which is never trained on.
- Prompts are numbered as they are submitted, through all of a run: update s trains those of batch s, whenever they were
  played. Batches are submitted ``lookahead`` updates ahead, and no more of them than there are updates.
- Metrics are over episodes, which are written to ``agentr1.episodes_dir``; checkpoints are saved after them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.seqlen_balancing import log_seqlen_unbalance
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agent_envs.adapters.branches import Branches
from agent_envs.adapters.losses import RatioWatch
from agent_envs.adapters.run import CollapseWatch, FailureBudget
from agent_envs.adapters.trees import sort_rows
from agent_envs.adapters.verl.batch import losses, rows
from agent_envs.adapters.verl.batch.columns import Levels, step_columns
from agent_envs.adapters.verl.batch.layout import Layout, plan_layout
from agent_envs.adapters.verl.batch.metrics import PER_STEP, BatchPart, batch_metrics, endings, validation_metrics
from agent_envs.adapters.verl.batch.phases import PhasedTrainer
from agent_envs.adapters.verl.batch.table import flat, row_offsets, step_table
from agent_envs.adapters.verl.config.checks import check_config, row_loss_notice
from agent_envs.adapters.verl.config.engines import attention_notice
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.adapters.verl.run.checkpoints import last_step
from agent_envs.errors import BackendError, ConfigError
from agent_envs.files import read_object, write_text
from agent_envs.prompts.pictures import IMAGE_PROCESSOR

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05  # each poll lists every row, so that more frequent ones would take time from generation
_MOST_BATCHES = 10  # that a step plays at most where groups are filtered, if verl's setting does not say another number
_GIVEN = ("rollout_log_probs", "old_log_probs", "ref_log_prob", "values", "entropy", "sum_pi_squared")


class StepTrainer(PhasedTrainer):
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
        """Check the configuration before anything is started."""
        self.objective = read_objective(config)
        self.settings, self.estimator = self.objective.settings, self.objective.estimator
        actor = config.actor_rollout_ref.actor
        check_config(config, self.estimator)
        loss = str(actor.policy_loss.loss_mode)
        for notice in filter(None, (self.objective.row_loss and row_loss_notice(loss), attention_notice(config))):
            logger.warning(notice)
        self.loss_options = losses.loss_options(actor)
        self.failures = FailureBudget(self.settings.max_broken)
        self.counts_rows = self.settings.mini_batches_of_rows
        self.actor_mini_batches, self.critic_mini_batches = self._mini_batches(config, 0 if self.counts_rows else None)
        recomputed = self.objective.correction is not None  # otherwise the old log-probabilities are the sampler's
        updates = self.actor_mini_batches * actor.ppo_epochs if recomputed and not self.counts_rows else None
        self.watch = RatioWatch(loss, updates=updates)
        self.collapse = CollapseWatch()
        self.squares = self.estimator.needs_score_norms
        self.written: set[str] = set()  # further columns of the actor's loss in the batch
        self.layout: Layout | None = None
        self.order: dict[str, int] = {}  # position of each uid of the batch that is trained
        self.parts: list[BatchPart] = []  # of the step's updates so far
        self.baselines: dict[str, float] = {}  # this step's greedy returns by uid
        self.prompts: dict[str, int] = {}  # number of each uid that has not been trained yet, as submitted
        self.submitted = self.begun = 0  # prompts of the whole run, and those before this step
        self.batches = 0  # batches of the whole run
        self.levels = Levels(self.settings.chosen, self.settings.seed)
        self.checkpoint_due = False
        super().__init__(config)

    def _mini_batches(self, config: Any, count: int | None) -> tuple[int, int]:
        """How many updates of actor and critic a batch is divided into, of so many rows if rows are counted."""
        with_critic = self.estimator.needs_critic or config.critic.enable
        actor = rows.mini_batches(config.actor_rollout_ref.actor, config, count)
        return actor, rows.mini_batches(config.critic, config, count) if with_critic else 1

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()  # which polls every 2 s (replay_buffer.py:144)
        buffer.poll_interval = POLL_SECONDS
        return buffer

    def _setup(self) -> None:
        super()._setup()
        actor, function = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor), self.objective.row_loss
        if function is None:
            loss = partial(losses.actor_loss, config=actor, options=self.loss_options, ratios=self.settings.ratios_dir)
            self.actor_rollout_wg.set_loss_fn(loss)
        else:
            self.actor_rollout_wg.set_loss_fn(partial(losses.row_actor_loss, config=actor, function=function))
        if self.use_critic:
            self.critic_wg.set_loss_fn(partial(losses.critic_loss, config=omega_conf_to_dataclass(self.config.critic)))

    def on_step_begin(self) -> None:
        super().on_step_begin()
        self.baselines.clear()
        self.parts.clear()
        self.begun = self.submitted
        if not self.settings.batches_ahead:
            self.prompts.clear()  # of groups that were filtered out

    def _add_batch_to_generate(self) -> None:
        """Submit batches until `lookahead` more are under way than the one that is trained next."""
        while self.batches < min(self.global_steps + self.settings.batches_ahead, int(self.total_training_steps)):
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
        self.levels.choose(batch, self.global_steps, int(self.config.trainer.total_training_steps))
        sessions = self.config.actor_rollout_ref.rollout.n + self.estimator.needs_baseline  # which is played greedily
        if self.settings.branch:  # each is a tree of episodes
            sessions //= Branches.read(self.settings.branch).size
        batch["__rollout_n__"] = torch.full((len(batch),), sessions)
        return super()._submit_batch_to_rollout(batch)

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict, logging_prefix: str = "global_seqlen", keep_minibatch: bool = False
    ) -> KVBatchMeta:
        """Order rows by rank and mini-batch and add padding rows; the same for the same seed."""
        uids = {key.rsplit("_", 2)[0] for key in batch.keys}
        self.order = {uid: i for i, uid in enumerate(sorted(uids, key=lambda uid: self.prompts.pop(uid)))}
        if self.estimator.needs_baseline:
            batch = rows.take_baselines(batch, self.config.actor_rollout_ref.rollout.n, self.baselines)
        if not batch.keys:
            raise RuntimeError(f"none of the prompts of step {self.global_steps} has a row to train; see the log")
        batch.reorder(rows.by_submission(batch.keys, self.order))
        if self.counts_rows:
            self.actor_mini_batches, self.critic_mini_batches = self._mini_batches(self.config, len(batch.keys))
        trees = None
        if self.settings.layout == "tree":
            tokens = rows.read(batch, "input_ids")["input_ids"]
            trees = sort_rows(flat(tokens).numpy(), row_offsets(tokens).numpy())
        self.layout = plan_layout(
            batch.keys if self.counts_rows else [key.rsplit("_", 1)[0] for key in batch.keys],
            [tag["seq_len"] for tag in batch.tags],
            mini_batches=math.lcm(self.actor_mini_batches, self.critic_mini_batches),
            ranks=max(self.actor_rollout_wg._query_dispatch_info("actor")) + 1,
            row_multiple=rows.row_multiple(self.config, critic=self.use_critic, reference=self.use_reference_policy),
            seed=self.global_steps,
            groups=None if self.counts_rows else [key.rsplit("_", 2)[0] for key in batch.keys],
            trees=trees,
        )
        missing = sum(row is None for row in self.layout.order)
        keys, tags = self._padding_rows(batch, missing)
        spare = iter(range(len(batch), len(batch) + missing))
        order = [next(spare) if row is None else row for row in self.layout.order]
        out = dataclasses.replace(batch, keys=[*batch.keys, *keys], tags=[*batch.tags, *tags])
        out.reorder(order)
        of_ranks = [part.tolist() for part in torch.arange(len(order)).chunk(self.layout.ranks)]
        metrics.update(log_seqlen_unbalance([tag["seq_len"] for tag in out.tags], of_ranks, prefix=logging_prefix))
        return out

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
        """Write what the batch is trained with, and its episodes to their file."""
        assert self.layout is not None
        data = rows.read(batch, "response_mask", *_GIVEN, "extra_fields", "uid")
        extra = [rows.plain(fields) for fields in data.pop("extra_fields")]
        offsets = row_offsets(data["response_mask"])
        lines = [fields["episode"] for fields in extra if fields["episode"]]
        before = [line for part in self.parts for line in part.lines]
        self.write_lines("train", before + lines)  # also if what follows fails
        table = step_table(extra, [str(uid) for uid in data.pop("uid")], offsets, self.order)
        tensors = {name: flat(data[name]).float() for name in _GIVEN if name in data}
        entropies = tensors.pop("entropy", None)  # verl computes it where it recomputes log-probabilities
        actor, critic = map(self.layout.mini_batches_of_rows, (self.actor_mini_batches, self.critic_mini_batches))
        baselines = self.baselines if self.estimator.needs_baseline else None
        weight = self.settings.teaching.weight_at(self.global_steps)
        result = step_columns(table, tensors, int(offsets[-1]), self.objective, actor, critic, baselines, weight)
        trained = result.columns[losses.POLICY_WEIGHTS] != 0
        valued = rows.with_token_values(lines, table, result.columns["advantages"], trained, entropies)
        self.write_lines("train", before + valued)
        shaped = torch.zeros(len(table.names), dtype=torch.float64)
        shaped.index_add_(0, table.steps.trajectory, result.rewards)
        tokens = [tag["seq_len"] for tag in batch.tags]
        self.parts.append(BatchPart(extra, tokens, shaped.tolist(), int(trained.sum()), self.layout.nodes, valued))
        metrics.update(result.metrics)
        if self.local_trigger_step == self.parameter_sync_step - 1:  # the step's last: verl would take means of counts
            broken = self.failures.note(endings(row for part in self.parts for row in part.rows))
            metrics.update({f"env/{name}": count for name, count in broken.items()})
            if (roles := self.settings.train_roles) and not any(part.trained for part in self.parts):
                raise ConfigError(f"nobody plays {' or '.join(map(repr, roles))}; train_roles trains nothing")
            metrics.update(batch_metrics(self.parts, self.config.data))
            self.levels.note(metrics, self.global_steps)
        self.written = {"rollout_is_weights", losses.LABEL_WEIGHTS, losses.TOKEN_WEIGHTS} & result.columns.keys()
        nest = torch.nested.nested_tensor_from_jagged  # [rows, tokens of the row]
        columns = {name: nest(column, offsets) for name, column in result.columns.items()}
        fields = TensorDict(columns, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)

    def _update_info(self, config: Any, wanted: int) -> dict[str, Any]:
        assert self.layout is not None
        size = len(self.layout.order) // math.gcd(wanted, self.layout.mini_batches)
        return {
            "global_batch_size": size,
            "mini_batch_size": size,
            "epochs": config.ppo_epochs,
            "seed": config.data_loader_seed,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        batch.extra_info.update(self._update_info(self.config.critic, self.critic_mini_batches))
        asked = self.asked(batch, "values", "returns", losses.VALUE_WEIGHTS)
        metrics.update(losses.collect(self.critic_wg.train_mini_batch(asked).get()["metrics"], "critic"))
        self.phase.progress()
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        actor = self.config.actor_rollout_ref.actor
        columns = ["old_log_probs", "advantages", losses.POLICY_WEIGHTS, losses.STEP_NUMBERS]
        columns += ["ref_log_prob"] if self.use_reference_policy else []
        columns += sorted(self.written)
        batch.extra_info.update(
            calculate_entropy=bool(actor.calculate_entropy or actor.entropy_coeff != 0.0),
            distillation_use_topk=False,
            distillation_only=False,
            training_step=self.global_steps,
            **self._update_info(actor, self.actor_mini_batches),
        )
        updated = losses.collect(self.actor_rollout_wg.update_actor(self.asked(batch, *columns))["metrics"], "actor")
        if "actor/ratio/moved" in updated and (notice := self.watch.update(updated["actor/ratio/moved"])):
            logger.warning(notice)
        metrics.update(updated)
        for line, reason in self.collapse.update(metrics):
            logger.warning("%s: %s", line, reason)
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

    def write_lines(self, phase: str, lines: list[str]) -> None:
        """Write the step's episodes of a phase to a file of their own, if they are kept, whole or not at all."""
        if self.settings.episodes_dir and lines:
            path = Path(self.settings.episodes_dir) / f"{phase}-{self.global_steps:06d}.jsonl"
            write_text(path, "".join(f"{line}\n" for line in lines))

    def on_train_begin(self) -> None:
        """Save after logging: verl saves first, so a kill in between would lose the step's metrics."""
        super().on_train_begin()
        tracking: Any = self.logger
        log = tracking.log

        def log_then_save(*args: Any, **kwargs: Any) -> None:
            log(*args, **kwargs)
            self._save_if_due()

        tracking.log = log_then_save

    def _save_checkpoint(self) -> None:
        self.checkpoint_due = True

    def _save_if_due(self) -> None:
        """Save verl's checkpoint, what a resumed run needs beside it, and how the model reads pictures.

        verl saves an image processor only where it can load the whole processor, with its part for videos.
        """
        if not self.checkpoint_due:
            return
        self.checkpoint_due = False
        self.phase.enter("saving", self.global_steps)
        self._take_devices()
        super()._save_checkpoint()
        kept_too = {"submitted": self.submitted, "batches": self.batches, "levels": self.levels.records}
        write_text(self._state_file(), json.dumps({**self.objective.state_dict(), **kept_too}))
        read = Path(self.config.actor_rollout_ref.model.path) / IMAGE_PROCESSOR
        checkpoint = self._state_file().parent / "actor" / "huggingface"
        if read.is_file() and checkpoint.is_dir() and not (checkpoint / read.name).exists():
            shutil.copyfile(read, checkpoint / read.name)
        self._give_devices_back()

    def _take_devices(self) -> None:
        """Free the memory of the generation servers, as verl does when it saves."""
        self.checkpoint_manager.sleep_replicas()

    def _give_devices_back(self) -> None:
        self.checkpoint_manager.update_weights(self.global_steps)

    def _load_checkpoint(self) -> Any:
        last_step(Path(self.config.trainer.default_local_dir))
        loaded = super()._load_checkpoint()
        state: dict[str, Any] = {}
        if self.global_steps and self._state_file().exists():
            state = read_object(self._state_file())
            self.objective.load_state_dict(state)
        self.levels.records = state.get("levels", [])
        self.batches = int(state.get("batches", self.global_steps))
        self.submitted = int(state.get("submitted", self.global_steps * int(self.config.data.train_batch_size)))
        return loaded

    def _state_file(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}" / "agentr1.json"


@register_trainer("agentr1_sync")
class EnvTrainer(StepTrainer, PPOTrainerSync):
    """Plays a batch, trains on it, and plays the next one with the new weights."""
