"""Training over steps with verl's RayPPOTrainer (verl/trainer/ppo/ray_trainer.py), without TransferQueue.

RayPPOTrainer starts the workers, the generation servers and the dataloader, and saves checkpoints. Its own loop pads an
episode to one row and computes advantages over rows, so the loop is here: the same requests to the same workers as
``trainer`` makes, with the batch in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl.protocol import DataProto
from verl.trainer.ppo.metric_utils import compute_data_metrics, compute_throughout_metrics, compute_timing_metrics
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.profiler.performance import marked_timer
from verl.utils.tracking import Tracking
from verl.workers.utils.padding import response_from_nested

from agent_envs.adapters.verl.batch import rows
from agent_envs.adapters.verl.batch.steps import StepTraining
from agent_envs.adapters.verl.batch.table import row_offsets
from agent_envs.adapters.verl.rollout.row_manager import ROW_MANAGER
from agent_envs.adapters.verl.run.phase import PhaseFile

__all__ = ["EnvRayTrainer", "RowBatch", "ray_trainer"]


class RowBatch:
    """A ``StepBatch`` of rows in this process.

    Args:
        found: Rows as ``row_manager`` returns them, at least one, all with the same columns.
    """

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        self.keys = [row["key"] for row in found]
        self.lengths = [len(row["input_ids"]) for row in found]
        columns = {name: [row[name] for row in found] for name in found[0]}
        self.columns = {name: _jagged(x) if isinstance(x[0], torch.Tensor) else x for name, x in columns.items()}

    def read(self, *names: str) -> dict[str, Any]:
        """Return those of the columns that there are: tensors jagged [rows, tokens], anything else as lists."""
        return {name: self.columns[name] for name in names if name in self.columns}

    def write(self, columns: Mapping[str, torch.Tensor]) -> None:
        """Add columns, each jagged [rows, response tokens]."""
        self.columns.update(columns)

    def request(self, *names: str, **settings: Any) -> TensorDict:
        """Return what the workers are sent: what models read, the columns ``names``, and settings."""
        return tu.get_tensordict(self.read(*rows.TOKENS, rows.INPUTS, *names), non_tensor_dict=settings)


def _jagged(column: Sequence[torch.Tensor]) -> torch.Tensor:
    if column[0].dim() > 1:  # positions of rows with pictures, each [4, tokens]
        return tu.nested_tensor_from_tensor_list(list(column))
    return rows.nest(torch.cat(list(column)), torch.tensor([0, *map(len, column)]).cumsum(0))


class EnvRayTrainer(StepTraining, RayPPOTrainer):
    """Plays a batch, trains on it, and plays the next one with the new weights, with ``trainer.use_v1=False``.

    It has fewer features than ``trainer.EnvTrainer``: no asynchronous modes, greedy baselines (``remax``), token
    baselines, LoRA, filtered groups, reward models, profiles, ``trainer.val_only``, ``data.gen_batch_size``, another
    agent loop manager, nor verl's own files of generations; all of these are refused at the start. An agent loop that
    fails stops the run, and generation shows no progress within a batch.
    """

    def __init__(self, config: Any, **parts: Any) -> None:
        """Check the configuration before anything is started; ``parts`` are those of RayPPOTrainer.

        Raises:
            ConfigError: A setting does not exist, or this trainer does not support it.
        """
        self.read_config(config)
        self.phase = PhaseFile(self.settings.get("phase_file"))
        self.global_steps = 0
        with open_dict(config):
            config.actor_rollout_ref.rollout.agent.agent_loop_manager_class = ROW_MANAGER
        super().__init__(config=config, **parts)

    def init_workers(self) -> None:
        """Start the workers, with the losses over steps."""
        super().init_workers()
        self.set_losses(self.actor_rollout_wg, self.critic_wg if self.use_critic else None)

    def ranks(self) -> int:
        """Return the number of the actor's data-parallel ranks."""
        return int(self._get_dp_size(self.actor_rollout_wg, "actor"))

    def fit(self) -> None:
        """Train to the last step, from the newest checkpoint if there is one."""
        trainer = self.config.trainer
        log = Tracking(
            project_name=trainer.project_name,
            experiment_name=trainer.experiment_name,
            default_backend=trainer.logger,
            config=OmegaConf.to_container(self.config, resolve=True),
        )
        rows.repair_tracker(Path(trainer.default_local_dir))
        self._load_checkpoint()
        self.load_state()
        self._sync()
        if trainer.val_before_train:
            log.log(data=self._validate(), step=self.global_steps)
        for prompts in self.train_dataloader:
            if self.global_steps >= self.total_training_steps:
                break
            self.global_steps += 1
            metrics = self._step(prompts)
            if self._is_due(trainer.test_freq):
                metrics |= self._validate()
            log.log(data=metrics, step=self.global_steps)
            if self._is_due(trainer.save_freq):
                self.phase.enter("saving", self.global_steps)
                self.checkpoint_manager.sleep_replicas()
                self._save_checkpoint()
                self.save_state()
                self._sync()
        self._shutdown_dump_executor()
        log.finish()

    def _is_due(self, every: int) -> bool:
        return every > 0 and (self.global_steps % every == 0 or self.global_steps >= self.total_training_steps)

    def _sync(self) -> None:
        self.phase.enter("syncing", self.global_steps)
        self.checkpoint_manager.update_weights(self.global_steps)

    def _play(self, prompts: Mapping[str, Any], sessions: int, *, validate: bool = False) -> list[dict[str, Any]]:
        """Play episodes of a batch of the dataloader; return their rows by prompt, session and output."""
        batch = DataProto.from_single_dict(dict(prompts))
        batch.meta_info = {"validate": validate, "global_steps": self.global_steps}
        count, columns = len(batch), batch.non_tensor_batch
        uids = [str(uuid4()) for _ in range(count)]
        columns["uid"] = np.array(uids, dtype=object)
        if not validate:
            first = (self.global_steps - 1) * int(self.config.data.train_batch_size)
            columns["prompt_number"] = np.arange(first, first + count)
        batch = batch.repeat(repeat_times=sessions, interleave=True)
        batch.non_tensor_batch["session_id"] = np.tile(np.arange(sessions), count)
        batch.non_tensor_batch["global_steps"] = np.full(len(batch), self.global_steps)
        self.order = {uid: i for i, uid in enumerate(uids)}
        found = self.async_rollout_manager.generate_sequences(batch)
        return [found[i] for i in rows.by_submission([row["key"] for row in found], self.order)]

    def _step(self, prompts: Mapping[str, Any]) -> dict[str, Any]:
        timing: dict[str, float] = {}
        metrics: dict[str, Any] = {}
        self.parts.clear()
        with marked_timer("step", timing):
            self.phase.enter("generating", self.global_steps)
            with marked_timer("gen", timing):
                found = self._play(prompts, int(self.config.actor_rollout_ref.rollout.n))
                self.checkpoint_manager.sleep_replicas()
            self.phase.enter("updating", self.global_steps)
            batch = self._lay_out(found)
            metrics |= self.balance_metrics(batch.lengths)
            self._ask_models(batch, timing)
            with marked_timer("adv", timing):
                metrics |= self.add_columns(batch)
            if self.use_critic:
                with marked_timer("update_critic", timing):
                    columns, settings = self.critic_request()
                    output = self.critic_wg.train_mini_batch(batch.request(*columns, **settings)).get()
                metrics |= self.updated(output["metrics"], "critic")
                self.phase.progress()
            if self.config.trainer.critic_warmup <= self.global_steps:
                with marked_timer("update_actor", timing):
                    columns, settings = self.actor_request()
                    output = self.actor_rollout_wg.update_actor(batch.request(*columns, **settings))
                metrics |= self.updated(output["metrics"], "actor")
            with marked_timer("update_weights", timing):
                self._sync()
        ours = dict(metrics)
        metrics |= self._row_metrics(batch, timing)
        self.keep_own(metrics, ours)
        return metrics

    def _lay_out(self, found: Sequence[Mapping[str, Any]]) -> RowBatch:
        """Order rows by rank and mini-batch and add padding rows."""
        sample, _ = construct_minimal_padding_template(dict(found[0]), {}, self.tokenizer.eos_token_id)
        name = f"pad{self.global_steps}"
        filler = {**rows.padding(sample, name), "key": f"{name}_0_0"}
        del filler["attention_mask"]
        order = self.plan(RowBatch(found)).order
        return RowBatch([filler if row is None else found[row] for row in order])

    def _ask_models(self, batch: RowBatch, timing: dict[str, float]) -> None:
        """Write what the models say of the tokens: old and reference log-probabilities, values."""
        with marked_timer("old_log_prob", timing):
            if (self.config.algorithm.rollout_correction or {}).get("bypass_mode", False):
                batch.write({"old_log_probs": batch.columns["rollout_log_probs"]})
            else:
                names = {"log_probs": "old_log_probs", "entropy": "entropy"}
                self._ask(self.actor_rollout_wg.compute_log_prob, batch, names, calculate_entropy=True)
        if self.use_reference_policy:
            with marked_timer("ref", timing):
                ask = self.ref_policy_wg.compute_ref_log_prob
                self._ask(ask, batch, {"log_probs": "ref_log_prob"}, calculate_entropy=False)
        if self.use_critic:
            with marked_timer("values", timing):
                self._ask(lambda request: self.critic_wg.infer_batch(request).get(), batch, {"values": "values"})

    def _ask(
        self, ask: Callable[[TensorDict], TensorDict], batch: RowBatch, names: Mapping[str, str], **settings: Any
    ) -> None:
        """Have workers compute without an update; ``names`` says as which columns their outputs are written."""
        temperature = self.config.actor_rollout_ref.rollout.temperature
        output = ask(batch.request(compute_loss=False, temperature=temperature, **settings))
        mask = batch.columns["response_mask"]
        batch.write({column: response_from_nested(output[name], mask) for name, column in names.items()})
        self.phase.progress()

    def _row_metrics(self, batch: RowBatch, timing: dict[str, float]) -> dict[str, Any]:
        """verl's metrics over real rows, of times and of throughput."""
        real = [i for i, fields in enumerate(batch.columns["extra_fields"]) if fields["kind"] != "padding"]
        names = ["prompts", "responses", "response_mask", "advantages", "returns", "rm_scores"]
        found = batch.read(*names, *(["values"] if self.use_critic else []))
        columns = {}
        for name, column in found.items():
            each = column.unbind()
            columns[name] = pad_sequence([each[i] for i in real], batch_first=True)
        columns["token_level_scores"] = columns["token_level_rewards"] = columns["rm_scores"]
        for name in ("prompts", "responses"):
            lengths = row_offsets(found[name]).diff()[real]
            columns[f"{name.removesuffix('s')}_length"] = lengths.float()
        data = DataProto(
            batch=TensorDict(columns, batch_size=len(real)), meta_info={"global_token_num": list(batch.lengths)}
        )
        devices = self.resource_pool_manager.get_n_gpus()
        return {
            "training/global_step": self.global_steps,
            "training/epoch": 0,
            **compute_data_metrics(batch=data, use_critic=self.use_critic),
            **compute_timing_metrics(batch=data, timing_raw=timing),
            **compute_throughout_metrics(batch=data, timing_raw=timing, n_gpus=devices),
        }

    def _validate(self, merged: bool = False) -> dict[str, Any]:
        """Play the held-out tasks; return verl's metrics of a validation, and those over whole episodes."""
        self.phase.enter("validating", self.global_steps)
        sessions = int(self.config.actor_rollout_ref.rollout.val_kwargs.n)
        played = [row for prompts in self.val_dataloader for row in self._play(prompts, sessions, validate=True)]
        last = list({row["extra_fields"]["trajectory"]: row for row in played}.values())  # of each episode
        records = [row["extra_fields"]["reward_extra_info"] for row in last]
        infos = {name: [record[name] for record in records] for name in records[0]}
        infos["reward"] = [float(row["rm_scores"].sum()) for row in last]
        self.take_episodes(infos)
        sources = np.array([row["data_source"] for row in last], dtype=object)
        turns = [np.array([row["num_turns"] for row in last])]
        theirs = self._val_metrics_update(sources, [row["uid"] for row in last], infos, turns)
        return {**theirs, **self.validated(infos, len(last))}


def ray_trainer(config: Any, **parts: Any) -> RayPPOTrainer:
    """Return the trainer of verl's ``main_ppo_v0``: over steps for a run of this package, otherwise verl's own."""
    return (EnvRayTrainer if "agentr1" in config else RayPPOTrainer)(config=config, **parts)
