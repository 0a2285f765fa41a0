"""Training over the steps of episodes: what a trainer of verl asks for between playing and updating.

- Advantages come from ``agent_envs.adapters.estimators``, over (trajectory, step); each step has its own reward, where
  verl gives every row the last one's (v1/agent_loop_tq.py:174).
- Mini-batches hold whole groups and their number is fixed (``layout``).
- Each token's weight in the losses is computed here, for the whole batch (``columns``); the workers add up
  (``losses``). Padding, broken episodes and tokens the policy did not write have weight 0.
- Metrics are over episodes; episodes are written to ``agentr1.episodes_dir``.

``trainer`` and ``asynchronous`` put it over verl's v1 trainers.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from verl.utils.config import omega_conf_to_dataclass

from agent_envs.adapters.failures import MAX_BROKEN, FailureBudget
from agent_envs.adapters.losses import RatioWatch
from agent_envs.adapters.trees import SortedRows, sort_rows
from agent_envs.adapters.verl.batch import losses, rows
from agent_envs.adapters.verl.batch.columns import step_columns
from agent_envs.adapters.verl.batch.layout import Layout, plan_layout
from agent_envs.adapters.verl.batch.metrics import BatchPart, batch_metrics
from agent_envs.adapters.verl.batch.phases import QueueBatch
from agent_envs.adapters.verl.batch.table import flat, row_offsets, step_table
from agent_envs.adapters.verl.config.checks import check_config
from agent_envs.adapters.verl.config.engines import attention_notice
from agent_envs.adapters.verl.config.objective import read_objective
from agent_envs.adapters.verl.config.row_losses import row_loss_notice
from agent_envs.episodes.record import StopReason
from agent_envs.files import read_text, write_text
from agent_envs.prompts.pictures import IMAGE_PROCESSOR

__all__ = ["StepTraining"]

logger = logging.getLogger(__name__)

_GIVEN = ("rollout_log_probs", "old_log_probs", "ref_log_prob", "values", "entropy", "sum_pi_squared")


class StepTraining(ABC):
    """PPO and its relatives over the steps of episodes."""

    config: Any
    """verl's configuration."""
    global_steps: int
    """The step that is trained, from 1."""
    use_critic: bool
    use_reference_policy: bool

    @abstractmethod
    def ranks(self) -> int:
        """Return the number of data-parallel ranks of actor and critic."""

    def read_config(self, config: Any) -> None:
        """Read the settings before anything is started.

        Raises:
            ConfigError: A setting does not exist, or training over steps does not support it.
        """
        self.objective = read_objective(config)
        self.settings = dict(config.get("agentr1") or {})
        actor = config.actor_rollout_ref.actor
        check_config(config, self.objective.estimator)
        self.loss = str(actor.policy_loss.loss_mode)
        if self.objective.row_loss is not None:
            logger.warning(row_loss_notice(self.loss))
        if (notice := attention_notice(config)) is not None:
            logger.warning(notice)
        self.loss_options = losses.loss_options(actor)
        self.failures = FailureBudget(self.settings.get("max_broken", MAX_BROKEN))
        self.counts_rows = bool(self.settings.get("mini_batches_of_rows", False))
        self.actor_mini_batches, self.critic_mini_batches = self._mini_batches(config, 0 if self.counts_rows else None)
        anew = self.objective.correction is not None  # otherwise the old log-probabilities are the sampler's
        updates = self.actor_mini_batches * actor.ppo_epochs if anew and not self.counts_rows else None
        self.watch = RatioWatch(self.loss, updates=updates)
        self.layout: Layout | None = None
        self.writes_weights = False  # whether rollout correction adds weights to the batch
        self.order: dict[str, int] = {}  # position of each uid of the batch that is trained
        self.parts: list[BatchPart] = []  # of the step's updates so far
        self.baselines: dict[str, float] = {}  # this step's greedy returns by uid

    def set_losses(self, actor_workers: Any, critic_workers: Any) -> None:
        """Give the workers their losses; ``critic_workers`` is None without a critic."""
        actor = omega_conf_to_dataclass(self.config.actor_rollout_ref.actor)
        if self.objective.row_loss is None:
            actor_workers.set_loss_fn(partial(losses.actor_loss, config=actor, options=self.loss_options))
        else:
            of_rows = partial(losses.row_actor_loss, config=actor, function=self.objective.row_loss)
            actor_workers.set_loss_fn(of_rows)
        if critic_workers is not None:
            critic_workers.set_loss_fn(partial(losses.critic_loss, config=omega_conf_to_dataclass(self.config.critic)))

    def plan(self, batch: QueueBatch) -> Layout:
        """Return where each row goes: by rank and mini-batch, with padding; the same for the same seed."""
        if self.counts_rows:
            self.actor_mini_batches, self.critic_mini_batches = self._mini_batches(self.config, len(batch.keys))
        self.layout = plan_layout(
            batch.keys if self.counts_rows else [key.rsplit("_", 1)[0] for key in batch.keys],
            batch.lengths,
            mini_batches=math.lcm(self.actor_mini_batches, self.critic_mini_batches),
            ranks=self.ranks(),
            row_multiple=rows.row_multiple(self.config, critic=self.use_critic, reference=self.use_reference_policy),
            seed=self.global_steps,
            groups=None if self.counts_rows else [key.rsplit("_", 2)[0] for key in batch.keys],
            trees=_shared(batch) if self.settings.get("layout") == "tree" else None,
        )
        return self.layout

    def _mini_batches(self, config: Any, count: int | None) -> tuple[int, int]:
        """How many updates of actor and critic a batch is divided into, of so many rows if rows are counted."""
        actor = rows.mini_batches("actor_rollout_ref.actor", config.actor_rollout_ref.actor, config, count)
        with_critic = self.objective.estimator.needs_critic or config.critic.enable
        return actor, rows.mini_batches("critic", config.critic, config, count) if with_critic else 1

    def add_columns(self, batch: QueueBatch, *, last: bool = True) -> dict[str, float]:
        """Write what the batch is trained with, and its episodes to their file; return metrics.

        Args:
            batch: Rows in the order of the layout, with the log-probabilities and values that the models gave.
            last: Whether no more updates of this step follow; only then are there metrics over episodes.

        Raises:
            DataError: A number is not finite; names the episode.
            BackendError: Too many episodes broke.
        """
        assert self.layout is not None
        data = batch.read("response_mask", *_GIVEN, "extra_fields", "uid")
        extra = [rows.plain(fields) for fields in data.pop("extra_fields")]
        offsets = row_offsets(data["response_mask"])
        lines = [fields["episode"] for fields in extra if fields["episode"]]
        before = [line for part in self.parts for line in part.lines]
        self.write_lines("train", before + lines)  # also if what follows fails
        table = step_table(extra, [str(uid) for uid in data.pop("uid")], offsets, self.order)
        given = {name: flat(data[name]).float() for name in _GIVEN if name in data}
        entropies = given.pop("entropy", None)  # verl computes it where it computes log-probabilities anew
        result = step_columns(
            table,
            given,
            int(offsets[-1]),
            self.objective,
            self.layout.mini_batches_of_rows(self.actor_mini_batches),
            self.layout.mini_batches_of_rows(self.critic_mini_batches),
            self.baselines if self.objective.estimator.needs_baseline else None,
        )
        trained = result.columns[losses.POLICY_WEIGHTS] != 0
        valued = rows.with_token_values(lines, table, result.columns["advantages"], trained, entropies)
        self.write_lines("train", before + valued)
        metrics = dict(result.metrics)
        shaped = torch.zeros(len(table.names), dtype=torch.float64).index_add_(
            0, table.steps.trajectory, result.rewards
        )
        part = BatchPart(extra, batch.lengths, shaped.tolist(), int(trained.sum()), self.layout.nodes, valued)
        self.parts.append(part)
        if last:  # verl would take means of counts
            metrics |= self._note_failures(part.rows for part in self.parts)
            metrics |= batch_metrics(self.parts, self.config.data)
        self.writes_weights = "rollout_is_weights" in result.columns
        batch.write({name: rows.nest(column, offsets) for name, column in result.columns.items()})
        return metrics

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

    def updated(self, output: Mapping[str, Any], role: str) -> dict[str, float]:
        """Return the metrics of an update of ``actor`` or ``critic``, from what the workers returned."""
        metrics = losses.collect(output, role)
        if "actor/ratio/moved" in metrics and (notice := self.watch.update(metrics["actor/ratio/moved"])):
            logger.warning(notice)
        return metrics

    def _note_failures(self, parts: Iterable[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
        """Return how many episodes of a step broke, by kind; BackendError stops the run if these are too many."""
        ended: dict[str, tuple[StopReason, str]] = {}
        for fields in itertools.chain.from_iterable(parts):
            if fields["kind"] != "padding":
                _, error = ended.get(fields["trajectory"], (None, ""))
                reason = StopReason(fields["reward_extra_info"]["stop_reason"])
                ended[fields["trajectory"]] = reason, error or fields["error"]
        return {f"env/{name}": value for name, value in self.failures.note(ended.values()).items()}

    def write_lines(self, phase: str, lines: list[str]) -> None:
        """Write the step's episodes of a phase, ``train`` or ``validation``, if they are kept."""
        folder = self.settings.get("episodes_dir")
        if folder and lines:
            rows.write_lines(rows.episode_path(folder, phase, self.global_steps), lines)

    def save_state(self, **progress: int) -> None:
        """Save what a resumed run needs beside verl's checkpoint of this step, and how its model reads pictures.

        verl saves an image processor only where it can load the whole processor, with its part for videos.
        """
        write_text(self._state_file(), json.dumps({**self.objective.state_dict(), **progress}))
        read = Path(self.config.actor_rollout_ref.model.path) / IMAGE_PROCESSOR
        kept = self._state_file().parent / "actor" / "huggingface"
        if read.is_file() and kept.is_dir() and not (kept / read.name).exists():
            shutil.copyfile(read, kept / read.name)

    def load_state(self) -> dict[str, Any]:
        """Restore what ``save_state`` saved, and return it; empty at the start of a run."""
        path = self._state_file()
        if not self.global_steps or not path.exists():
            return {}
        state: dict[str, Any] = json.loads(read_text(path))
        self.objective.load_state_dict(state)
        return state

    def _state_file(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}" / "agentr1.json"


def _shared(batch: QueueBatch) -> SortedRows:
    """What the rows of a batch share."""
    tokens = batch.read("input_ids")["input_ids"]
    return sort_rows(flat(tokens).numpy(), row_offsets(tokens).numpy())
