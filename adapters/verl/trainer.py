"""verl's synchronous trainer over step rows: per-step rewards, estimators over trajectories, exact padding.

What differs from ``PPOTrainerSync`` (verl/trainer/ppo/v1/trainer_sync.py):

- Advantages come from ``agent_envs.adapters.estimators``, over (trajectory, step); each row gets its own
  reward back, which verl overwrites with the last row's (v1/agent_loop_tq.py:174).
- Mini-batches count trajectories: a batch is always cut into ``train_batch_size / ppo_mini_batch_size``
  mini-batches of whole trajectories (``layout``), so the number of updates does not depend on how long
  episodes are. The rows of a trajectory stay in one mini-batch; across data-parallel ranks they may part.
- Padding rows, broken episodes and value-only rows count in no sum, mean or normaliser (``row_losses``).
- Metrics are over episodes; episodes are written to ``agentr1.episodes_dir``.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.protocol import DataProto
from verl.trainer.distillation import is_distillation_enabled
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.trainer.ppo.ray_trainer import apply_kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.seqlen_balancing import log_seqlen_unbalance
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.config import ActorConfig, CriticConfig
from verl.workers.utils.padding import response_to_nested

from agent_envs.adapters.estimators import EstimatorOptions, StepRows, get_estimator
from agent_envs.adapters.verl.episode_files import episode_path, write_lines
from agent_envs.adapters.verl.episode_metrics import summarise, training_metrics, validation_metrics
from agent_envs.adapters.verl.layout import Layout, plan_layout
from agent_envs.adapters.verl.row_losses import ACTOR_ROWS, CRITIC_ROWS, actor_loss, critic_loss
from agent_envs.adapters.verl.step_batch import (
    LogThen,
    by_submission,
    collect,
    mini_batches,
    plain,
    repair_tracker,
    row_multiple,
    step_rows,
    step_scores,
    with_fields,
)
from agent_envs.errors import BackendError, ConfigError

__all__ = ["TRAINER_MODE", "EnvTrainer"]

TRAINER_MODE = "agentr1_sync"
"""What ``trainer.v1.trainer_mode`` calls it."""


@register_trainer(TRAINER_MODE)
class EnvTrainer(PPOTrainerSync):
    """PPO and its relatives over the steps of episodes."""

    @property
    def trainer_mode(self) -> str:
        """The base class compares with "sync" in several places (trainer_base.py:135, :896, :1499)."""
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None:
        pass

    def __init__(self, config: Any) -> None:
        """Check the configuration before anything is started.

        Raises:
            ConfigError: An unknown estimator, or settings that this trainer cannot honour.
        """
        self.estimator = get_estimator(str(config.algorithm.adv_estimator))
        self.settings = dict(config.get("agentr1") or {})
        actor = config.actor_rollout_ref.actor
        if actor.shuffle or (self.estimator.needs_critic and config.critic.shuffle):
            raise ConfigError("actor.shuffle and critic.shuffle must be False: mini-batches hold whole trajectories")
        if is_distillation_enabled(config.get("distillation")):
            raise ConfigError("the agentr1_sync trainer does not distil; use trainer.v1.trainer_mode=sync")
        if self.estimator.needs_critic and config.critic.enable is False:
            raise ConfigError(f"the estimator {self.estimator.name!r} needs a critic: set critic.enable=True")
        self.actor_mini_batches = mini_batches("actor_rollout_ref.actor", actor, config)
        self.critic_mini_batches = 1
        super().__init__(config)
        if self.use_critic:
            self.critic_mini_batches = mini_batches("critic", config.critic, config)
        self.layout: Layout | None = None
        self.writes_weights = False  # whether rollout correction puts weights beside the batch
        self.prompts: dict[str, int] = {}  # this step's uids in the order they were submitted
        self.checkpoint_due = False

    def _build_replay_buffer(self) -> Any:
        # the buffer looks for finished episodes every 2 s by default (replay_buffer.py:144), and takes no setting
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = float(self.settings.get("poll_interval", 0.02))
        return buffer

    def _setup(self) -> None:
        super()._setup()
        actor_config: ActorConfig = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        self.actor_rollout_wg.set_loss_fn(partial(actor_loss, config=actor_config))
        if self.use_critic:
            critic_config: CriticConfig = omega_conf_to_dataclass(self.config.critic)
            at_start = self.estimator.critic_at_action_start
            self.critic_wg.set_loss_fn(partial(critic_loss, config=critic_config, action_start=at_start))

    # ------------------------------------------------------------------ batch layout

    def on_step_begin(self) -> None:
        """Forget the last step's prompts."""
        super().on_step_begin()
        self.prompts.clear()

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        for uid in batch["uid"]:
            self.prompts.setdefault(str(uid), len(self.prompts))
        return super()._submit_batch_to_rollout(batch)

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict, logging_prefix: str = "global_seqlen", keep_minibatch: bool = False
    ) -> KVBatchMeta:
        """Order rows by rank and mini-batch, filled up with padding rows; the same for the same seed."""
        rows = by_submission(batch.keys, self.prompts)
        batch.keys, batch.tags = [batch.keys[i] for i in rows], [batch.tags[i] for i in rows]
        ranks = max(self._dispatch_info()) + 1
        lengths = [tag["seq_len"] for tag in batch.tags]
        self.layout = plan_layout(
            [key.rsplit("_", 1)[0] for key in batch.keys],
            lengths,
            mini_batches=math.lcm(self.actor_mini_batches, self.critic_mini_batches),
            ranks=ranks,
            row_multiple=row_multiple(self.config, critic=self.use_critic, reference=self.use_reference_policy),
            seed=self.global_steps,
        )
        missing = sum(row is None for row in self.layout.order)
        keys, tags = self._padding_rows(batch, missing)
        spare = iter(range(len(batch), len(batch) + missing))
        order = [next(spare) if row is None else row for row in self.layout.order]
        all_keys, all_tags = [*batch.keys, *keys], [*batch.tags, *tags]
        out = KVBatchMeta(
            keys=[all_keys[i] for i in order],
            tags=[all_tags[i] for i in order],
            partition_id=batch.partition_id,
            fields=batch.fields,
            extra_info=batch.extra_info,
        )
        part = len(order) // ranks
        partitions = [list(range(r * part, (r + 1) * part)) for r in range(ranks)]
        metrics.update(log_seqlen_unbalance([t["seq_len"] for t in out.tags], partitions, prefix=logging_prefix))
        metrics["env/rows"] = float(len(batch))
        metrics["env/pad_row_share"] = missing / len(order)
        return out

    def _dispatch_info(self) -> list[int]:
        group = self.actor_rollout_wg
        if "actor" not in group._dispatch_info:
            group._dispatch_info["actor"] = group._query_dispatch_info("actor")
        return group._dispatch_info["actor"]

    def _padding_rows(self, batch: KVBatchMeta, count: int) -> tuple[list[str], list[dict]]:
        """Put ``count`` rows with an empty mask beside the batch; their keys and tags."""
        if not count:
            return [], []
        first = tq.kv_batch_get(keys=[batch.keys[0]], partition_id=batch.partition_id)[0]
        sample, tag = construct_minimal_padding_template(first, batch.tags[0], self.tokenizer.eos_token_id)
        name = f"pad{self.global_steps}"
        sample["uid"] = name
        sample["extra_fields"] = {**plain(sample["extra_fields"]), "kind": "padding", "episode": "", "error": ""}
        keys = [f"{name}_{i}_0" for i in range(count)]
        tags = [dict(tag) for _ in keys]
        fields = list_of_dict_to_tensordict([dict(sample) for _ in keys])
        tq.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=fields, tags=tags)
        return keys, tags

    # ------------------------------------------------------------------ advantages

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Per-step rewards, our estimator's advantages and returns, and what the losses divide by."""
        fields = ["response_mask", "rm_scores", "rollout_log_probs", "old_log_probs", "ref_log_prob", "values"]
        fields += ["uid", "extra_fields"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
        extra = [plain(fields) for fields in data.pop("extra_fields").tolist()]
        uids = [str(uid) for uid in data.pop("uid").tolist()]
        nested_mask = data["response_mask"]
        data = DataProto(batch=data.to_padded_tensor())
        kinds = np.array([fields["kind"] for fields in extra])
        trained = torch.from_numpy((kinds == "step").nonzero()[0])  # [trained rows]
        self._write_episodes(extra)
        self._fail_if_all_broken(extra, len(trained))

        mask = data.batch["response_mask"]
        scores = step_scores(extra, mask)
        data.batch["token_level_scores"] = scores
        data.batch["token_level_rewards"] = scores.clone()
        columns = self._correct(data, trained, metrics)

        rewards = (data.batch["token_level_rewards"] * mask).sum(1)
        rows = step_rows(extra, uids, kinds, rewards, data.batch.get("values"))
        algorithm = self.config.algorithm
        result = self.estimator.compute(
            rows,
            EstimatorOptions(
                gamma=algorithm.gamma,
                lam=algorithm.lam,
                bootstrap_truncated=bool(self.settings.get("bootstrap_truncated", True)),
                norm_by_std=algorithm.get("norm_adv_by_std_in_grpo", True),
            ),
        )
        metrics.update({f"env/{name}": value for name, value in result.metrics.items()})
        metrics["env/masked_rows"] = float((kinds == "masked").sum())
        metrics["env/trained_rows"] = float(len(trained))
        metrics.update(self._episode_metrics(extra, rows))
        mask = data.batch["response_mask"]
        columns |= {
            "advantages": result.advantages[:, None] * mask,
            "returns": result.returns[:, None] * mask,
            "rm_scores": scores,
        }
        output = {name: response_to_nested(column, nested_mask) for name, column in columns.items()}
        output |= self._mini_batch_rows(mask.sum(1) > 0)
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(output, batch_size=len(batch))
        )

    def _correct(self, data: DataProto, trained: torch.Tensor, metrics: dict) -> dict[str, torch.Tensor]:
        """verl's KL in the reward and its rollout correction, on trained rows alone; columns to write back."""
        columns: dict[str, torch.Tensor] = {}
        if not len(trained):
            return columns
        algorithm = self.config.algorithm
        part = data.select_idxs(trained)
        if algorithm.use_kl_in_reward:
            part, kl_metrics = apply_kl_penalty(part, self.kl_ctrl_in_reward, kl_penalty=algorithm.kl_penalty)
            metrics.update(kl_metrics)
            data.batch["token_level_rewards"][trained] = part.batch["token_level_rewards"]
            columns["token_level_rewards"] = data.batch["token_level_rewards"]
        correction = algorithm.get("rollout_correction", None)
        if correction is not None and "rollout_log_probs" in data.batch and not correction.get("bypass_mode", False):
            part, correction_metrics = compute_rollout_correction_and_add_to_batch(part, correction)
            metrics.update(correction_metrics)
            data.batch["response_mask"][trained] = part.batch["response_mask"].to(data.batch["response_mask"].dtype)
            columns["response_mask"] = data.batch["response_mask"]
            if "rollout_is_weights" in part.batch:
                weights = torch.ones_like(data.batch["token_level_scores"])
                weights[trained] = part.batch["rollout_is_weights"].float()
                columns["rollout_is_weights"] = weights
                self.writes_weights = True
        return columns

    def _mini_batch_rows(self, valid: torch.Tensor) -> dict[str, torch.Tensor]:
        """For every row the number of trained rows in its mini-batch, for the actor and for the critic."""
        assert self.layout is not None
        out = {}
        for name, wanted in ((ACTOR_ROWS, self.actor_mini_batches), (CRITIC_ROWS, self.critic_mini_batches)):
            count = math.gcd(wanted, self.layout.mini_batches)
            which = torch.tensor([self.layout.mini_batch_of(i, count) for i in range(len(valid))])
            totals = torch.zeros(count).index_add_(0, which, valid.float())
            out[name] = totals[which]
        return out

    # ------------------------------------------------------------------ updates

    def _update_info(self, config: Any, wanted: int) -> dict[str, Any]:
        assert self.layout is not None
        rows = len(self.layout.order) // math.gcd(wanted, self.layout.mini_batches)
        return {
            "global_batch_size": rows,  # the losses divide by the trained rows instead
            "mini_batch_size": rows,
            "epochs": config.ppo_epochs,
            "seed": config.data_loader_seed,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }

    def _update_critic(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Update the critic, at the action's start alone where the estimator says so."""
        batch.extra_info.update(self._update_info(self.config.critic, self.critic_mini_batches))
        output = self.critic_wg.train_mini_batch(with_fields(batch, "values", "returns", CRITIC_ROWS)).get()
        collect(output["metrics"], "critic", metrics)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        """Update the actor."""
        actor = self.config.actor_rollout_ref.actor
        batch.extra_info.update(
            {
                "calculate_entropy": bool(actor.calculate_entropy or actor.entropy_coeff != 0.0),
                "distillation_use_topk": False,
                "distillation_only": False,
                **self._update_info(actor, self.actor_mini_batches),
            }
        )
        columns = ["old_log_probs", "advantages", ACTOR_ROWS]
        if self.use_reference_policy:
            columns.append("ref_log_prob")
        if self.writes_weights:
            columns.append("rollout_is_weights")
        output = self.actor_rollout_wg.update_actor(with_fields(batch, *columns))
        collect(output["metrics"], "actor", metrics)
        return batch

    # ------------------------------------------------------------------ metrics and episodes

    def _episode_metrics(self, extra: list[dict], rows: StepRows) -> dict[str, float]:
        records: dict[str, dict] = {}
        broken = set()
        for fields in extra:
            if fields["kind"] == "padding":
                continue
            records[fields["trajectory"]] = fields["reward_extra_info"]
            if fields["kind"] == "masked":
                broken.add(fields["trajectory"])
        shaped = torch.zeros(int(rows.trajectory.max()) + 1).index_add_(0, rows.trajectory, rows.rewards * rows.valid)
        trained = rows.trajectory[rows.valid].unique()
        return {
            **training_metrics(list(records.values())),
            **{f"critic/rewards/{k.split('/')[1]}": v for k, v in summarise("r", shaped[trained].tolist()).items()},
            "env/masked_episodes": float(len(broken)),
        }

    def _fail_if_all_broken(self, extra: list[dict], trained: int) -> None:
        """A batch of errors alone is a broken environment, not something to go on from.

        Raises:
            BackendError: Every episode ended with an error; holds the first traceback.
        """
        errors = [fields["error"] for fields in extra if fields["error"]]
        if errors and not trained:
            raise BackendError(f"every episode of step {self.global_steps} failed; the first one:\n{errors[0]}")

    def _write_episodes(self, extra: list[dict]) -> None:
        self._write_lines("train", [fields["episode"] for fields in extra if fields["episode"]])

    def _write_lines(self, phase: str, lines: list[str]) -> None:
        folder = self.settings.get("episodes_dir")
        if folder and lines:
            write_lines(episode_path(folder, phase, self.global_steps), lines)

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict, timing_raw: dict, global_steps: int, epoch: int
    ) -> None:
        """verl's metrics over real rows, with scores and rewards per episode instead of per row."""
        real = [i for i, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
        rows = KVBatchMeta(
            keys=[batch.keys[i] for i in real],
            tags=[batch.tags[i] for i in real],
            partition_id=batch.partition_id,
            extra_info=batch.extra_info,
        )
        per_episode = {name: value for name, value in metrics.items() if name.startswith("critic/rewards/")}
        super()._compute_metrics(rows, metrics, timing_raw, global_steps, epoch)
        metrics.update(per_episode)
        metrics.update({f"critic/score/{k}": metrics[f"env/return/{k}"] for k in ("mean", "max", "min")})

    def _val_metrics_update(
        self,
        data_sources: Any,
        sample_uids: Any,
        reward_extra_infos_dict: dict[str, list],
        sample_turns: Any,
        expected_acc_counts: dict | None = None,
    ) -> dict[str, float]:
        """verl's validation metrics, and success over whole episodes; verl hands over one record per episode."""
        infos = dict(reward_extra_infos_dict)
        lines = [line for line in infos.pop("episode", []) if line]
        self._write_lines("validation", lines)
        out = super()._val_metrics_update(data_sources, sample_uids, infos, sample_turns, expected_acc_counts)
        names = [name for name in infos if name != "reward"]
        records = [dict(zip(names, values, strict=True)) for values in zip(*(infos[n] for n in names), strict=True)]
        expected = sum((expected_acc_counts or {}).values())
        return {**out, **validation_metrics(records, expected)}

    def on_train_begin(self) -> None:
        """Save after logging: verl saves first, and a kill in between would lose the step's metrics."""
        super().on_train_begin()
        self.logger: Any = LogThen(self.logger, self._save_if_due)

    def _save_checkpoint(self) -> None:
        self.checkpoint_due = True

    def _save_if_due(self) -> None:
        if self.checkpoint_due:
            self.checkpoint_due = False
            self.checkpoint_manager.sleep_replicas()  # as where verl saves: the memory is the trainer's
            super()._save_checkpoint()
            self.checkpoint_manager.update_weights(self.global_steps)

    def _load_checkpoint(self) -> Any:
        repair_tracker(Path(self.config.trainer.default_local_dir))
        return super()._load_checkpoint()
